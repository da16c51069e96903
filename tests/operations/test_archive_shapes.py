"""Every shape a kind can have, from first tick to last: nothing lost, nothing twice, at any batch size."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest

from shared.jobs.model import Ending, Job, State
from tests.operations.stage import (
    Stage,
    assert_sound,
    copied,
    directory,
    end_of,
    event_types,
    events,
    execute,
    jobs,
    make_namespace,
    only_job,
    plan,
    plans_due,
    rows_in,
    stage,
)
from tests.worlds import rows

NOTES = """
[kinds.notes]
root = "public.note"
time = "written_at"
"""


def archived(
    here: Stage, kind: str, size: int, **changes: object
) -> tuple[Job, dict[str, Counter[bytes]]]:
    """Archive a kind to its end; return its job, which succeeded, and the rows of its sound files."""
    plan(here, kind, batch_size=size, **changes)  # type: ignore[arg-type]
    reports = here.until_idle()
    assert reports[-1].outcome.ending is Ending.IDLE, reports[-1]
    job = jobs(here)[-1]
    assert job.state is State.SUCCEEDED
    return job, rows_in(assert_sound(here, job))


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_equal_times_and_a_composite_key_lose_nothing_at_the_seams(
    database: str, volume_root: Path, size: int
) -> None:
    here = stage(
        database,
        volume_root,
        NOTES,
        "CREATE TABLE note (shelf integer, place smallint, written_at timestamptz, said text,"
        " PRIMARY KEY (shelf, place))",
        "INSERT INTO note SELECT i % 5, i / 5, '2020-01-01 00:00:00Z'::timestamptz"
        " + (i % 3) * interval '1 s', repeat('x', i) FROM generate_series(0, 39) AS i",
    )
    job, found = archived(here, "notes", size)
    assert found == {'"public"."note"': copied(database, "SELECT * FROM note")}
    assert (job.batches, job.roots) == (-(-40 // size), 40)


def needs_icu(database: str) -> None:
    if not rows(database, "SELECT 1 FROM pg_collation WHERE collname = 'und-x-icu'"):
        pytest.skip("this server was built without ICU")


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("collation", ['"und-x-icu"', '"en-US-x-icu"', '"C"'])
def test_text_keys_under_any_collation_lose_nothing_at_the_seams(
    database: str, volume_root: Path, collation: str, size: int
) -> None:
    if "icu" in collation:
        needs_icu(database)
    words = [
        "a",
        "A",
        "ä",
        "Ä",
        "b",
        "B",
        "z",
        "Z",
        "é",
        "e",
        "E",
        "",
        " ",
        "a b",
        "ab",
        "-a",
        "ß",
        "ss",
    ]
    words += [
        "tab\tin",
        "new\nline",
        "back\\slash",
        "\\N",
        "\\.",
        "quote'd",
        '"',
        "\x7f",
        "日本",
        "🐍",
    ]
    here = stage(
        database,
        volume_root,
        NOTES,
        f"CREATE TABLE note (id text COLLATE {collation} PRIMARY KEY, written_at date)",
    )
    for word in words:
        rows(database, "INSERT INTO note VALUES (%s, '2020-01-01')", word)
    _, found = archived(here, "notes", size)
    assert found == {'"public"."note"': copied(database, "SELECT * FROM note")}


TIMES = {
    "timestamptz": ("timestamptz", "'2020-06-01 12:00:00Z'::timestamptz + i * interval '1 us'", ""),
    "timestamp": ("timestamp", "'2020-06-01 12:00:00'::timestamp + i * interval '1 us'", ""),
    "zoned": (
        "timestamp",
        "'2020-10-25 02:30:00'::timestamp + i * interval '1 min'",
        'time_zone = "Europe/Berlin"',
    ),
    "date": ("date", "'2020-06-01'::date + i / 4", ""),
    "seconds": ("integer", "1590000000 + i / 3", 'time_unit = "s"'),
    "milliseconds": ("bigint", "1590000000000 + i / 3", 'time_unit = "ms"'),
    "microseconds": ("bigint", "1590000000000000 + i / 3", 'time_unit = "us"'),
    "domain": ("moment", "'2020-06-01 12:00:00Z'::timestamptz + (i / 5) * interval '1 h'", ""),
}


@pytest.mark.parametrize("sort", TIMES)
def test_every_sort_of_time_is_read_to_its_end(database: str, volume_root: Path, sort: str) -> None:
    declared, value, more = TIMES[sort]
    here = stage(
        database,
        volume_root,
        NOTES + more,
        "CREATE DOMAIN moment AS timestamptz CHECK (value > '2000-01-01Z')",
        f"CREATE TABLE note (id bigint PRIMARY KEY, written_at {declared})",
        f"INSERT INTO note SELECT i, {value} FROM generate_series(0, 19) AS i",
    )
    _, found = archived(here, "notes", 3)
    assert found == {'"public"."note"': copied(database, "SELECT * FROM note")}


NOWS = {
    "timestamptz": ("now() - interval '365 days'", "interval '1 min'", ""),
    "timestamp": (
        "now() AT TIME ZONE 'Pacific/Auckland' - interval '365 days'",
        "interval '1 min'",
        'time_zone = "Pacific/Auckland"',
    ),
    "date": ("(now() AT TIME ZONE 'UTC')::date - 365", "1", ""),
    "bigint": (
        "(extract(epoch FROM now() - interval '365 days') * 1000)::bigint",
        "60000",
        'time_unit = "ms"',
    ),
}


@pytest.mark.parametrize("declared", NOWS)
def test_rows_as_old_as_the_policy_asks_go_and_younger_ones_stay(
    database: str, volume_root: Path, declared: str
) -> None:
    edge, step, more = NOWS[declared]
    here = stage(
        database,
        volume_root,
        NOTES + more,
        f"CREATE TABLE note (id text PRIMARY KEY, written_at {declared})",
        f"INSERT INTO note VALUES ('older', {edge} - {step}), ('younger', {edge} + {step}),"
        " ('never', NULL)",
    )
    job, found = archived(here, "notes", 10)
    assert job.roots == 1
    assert found == {'"public"."note"': copied(database, "SELECT * FROM note WHERE id = 'older'")}


def test_rows_without_a_time_are_never_candidates(database: str, volume_root: Path) -> None:
    here = stage(
        database,
        volume_root,
        NOTES,
        "CREATE TABLE note (id integer PRIMARY KEY, written_at timestamptz)",
        "INSERT INTO note SELECT i, CASE WHEN i % 2 = 0 THEN '2020-01-01Z'::timestamptz END"
        " FROM generate_series(1, 10) AS i",
        "INSERT INTO note VALUES (11, '-infinity'), (12, 'infinity')",
    )
    _, found = archived(here, "notes", 2)
    aged = "SELECT * FROM note WHERE written_at < '2021-01-01Z'"
    assert found == {'"public"."note"': copied(database, aged)}


def test_a_namespace_takes_its_own_rows_by_name_or_by_id(database: str, volume_root: Path) -> None:
    kinds = """
        [kinds.named]
        root = "public.named"
        time = "at"
        namespace = "owner"
        [kinds.numbered]
        root = "public.numbered"
        time = "at"
        namespace = "owner"
        namespace_by = "id"
    """
    here = stage(
        database,
        volume_root,
        kinds,
        "CREATE TABLE named (id integer PRIMARY KEY, at date, owner text)",
        "CREATE TABLE numbered (id integer PRIMARY KEY, at date, owner uuid)",
    )
    north, south = make_namespace(here, "north"), make_namespace(here, "south")
    execute(
        database,
        "INSERT INTO named SELECT i, '2020-01-01', (ARRAY['north', 'south', 'NORTH'])[1 + i % 3]"
        " FROM generate_series(1, 12) AS i",
        f"INSERT INTO numbered SELECT i, '2020-01-01', (ARRAY['{north}', '{south}', '{uuid4()}'])"
        "[1 + i % 3]::uuid FROM generate_series(1, 12) AS i",
    )
    for kind, value in (("named", "north"), ("numbered", str(north))):
        job, found = archived(here, kind, 3, namespace="north")
        assert job.namespace_id == north
        table = f"SELECT * FROM {kind} WHERE owner = '{value}'"
        assert found == {f'"public"."{kind}"': copied(database, table)}
    assert len(jobs(here)) == 2


def test_a_condition_may_end_in_a_comment(database: str, volume_root: Path) -> None:
    here = stage(
        database,
        volume_root,
        NOTES + "where = \"said LIKE '%keep%' OR said = '{}' -- and nothing else\"",
        "CREATE TABLE note (id integer PRIMARY KEY, written_at date, said text)",
        "INSERT INTO note VALUES (1, '2020-01-01', 'to keep'), (2, '2020-01-01', 'to lose'),"
        " (3, '2999-01-01', 'keep for later'), (4, '2020-01-01', '{}')",
    )
    _, found = archived(here, "notes", 1)
    assert found == {'"public"."note"': copied(database, "SELECT * FROM note WHERE id IN (1, 4)")}


def test_a_condition_of_a_related_table_sees_its_own_columns_only(
    database: str, volume_root: Path
) -> None:
    kinds = """
        [kinds.orders]
        root = "public.orders"
        time = "at"
        where = "state = 'done' -- of the order"
        [[kinds.orders.related]]
        table = "public.item"
        where = "state = 'kept' AND at >= '2021-01-01' -- of the item"
    """
    here = stage(
        database,
        volume_root,
        kinds,
        "CREATE TABLE orders (id integer PRIMARY KEY, at date, state text)",
        "CREATE TABLE item (id integer, order_id integer REFERENCES orders, at date, state text)",
        "INSERT INTO orders SELECT i, '2020-01-01', CASE WHEN i % 4 = 0 THEN 'open' ELSE 'done' END"
        " FROM generate_series(1, 12) AS i",
        "INSERT INTO item SELECT i, 1 + i % 12, '2020-06-01'::date + 365 * (i % 2),"
        " (ARRAY['kept', 'lost', 'done'])[1 + i % 3] FROM generate_series(1, 60) AS i",
    )
    _, found = archived(here, "orders", 2)
    assert found == {
        '"public"."orders"': copied(database, "SELECT * FROM orders WHERE state = 'done'"),
        '"public"."item"': copied(
            database,
            "SELECT i.* FROM item AS i JOIN orders AS o ON o.id = i.order_id"
            " WHERE o.state = 'done' AND i.state = 'kept' AND i.at >= '2021-01-01'",
        ),
    }


def test_related_rows_travel_from_any_depth_each_with_its_root(
    database: str, volume_root: Path
) -> None:
    kinds = '''
        [kinds.tickets]
        root = "app.ticket"
        time = "closed_at"
        related = [
            "app.step", "app.part", "app.scratch",
            { table = "app.comment", foreign_key = ["subject_id"], references = "app.part", where = """
                subject_type = 'Part'""" },
        ]
    '''
    here = stage(
        database,
        volume_root,
        kinds,
        "CREATE SCHEMA app",
        "CREATE TABLE app.ticket (team text, no integer, closed_at timestamptz,"
        " PRIMARY KEY (team, no))",
        "CREATE TABLE app.step (team text, ticket integer, pos integer, at timestamptz,"
        " PRIMARY KEY (team, ticket, pos), FOREIGN KEY (team, ticket) REFERENCES app.ticket)",
        "CREATE TABLE app.part (p_pos integer, p_ticket integer, p_team text, id serial PRIMARY KEY,"
        " FOREIGN KEY (p_team, p_ticket, p_pos) REFERENCES app.step)",
        "CREATE TABLE app.scratch (part integer REFERENCES app.part (id), said text)",
        "CREATE TABLE app.comment (subject_type text, subject_id bigint, body text)",
        "INSERT INTO app.ticket SELECT chr(97 + i % 2), i, '2020-01-01Z'::timestamptz"
        " + (i / 4) * interval '1 h' FROM generate_series(1, 11) AS i",
        "INSERT INTO app.ticket VALUES ('a', 99, '2999-01-01Z')",
        "INSERT INTO app.step SELECT team, no, p, now() FROM app.ticket, generate_series(1, 2) AS p",
        "INSERT INTO app.part SELECT pos, ticket, team FROM app.step, generate_series(1, 2)",
        "INSERT INTO app.scratch SELECT id, 'twice' FROM app.part, generate_series(1, 2)",
        "INSERT INTO app.comment SELECT kind, id, 'same' FROM app.part,"
        " unnest(ARRAY['Part', 'Part', 'User']) AS kind",
    )
    _, found = archived(here, "tickets", 4)
    aged = "app.ticket AS t JOIN app.step AS s ON (s.team, s.ticket) = (t.team, t.no)"
    parts = f"{aged} JOIN app.part AS p ON (p_team, p_ticket, p_pos) = (s.team, s.ticket, s.pos)"
    old = "t.closed_at < '2021-01-01Z'"
    assert found == {
        '"app"."ticket"': copied(database, f"SELECT * FROM app.ticket AS t WHERE {old}"),
        '"app"."step"': copied(database, f"SELECT s.* FROM {aged} WHERE {old}"),
        '"app"."part"': copied(database, f"SELECT p.* FROM {parts} WHERE {old}"),
        '"app"."scratch"': copied(
            database, f"SELECT c.* FROM {parts} JOIN app.scratch AS c ON c.part = p.id WHERE {old}"
        ),
        '"app"."comment"': copied(
            database,
            f"SELECT c.* FROM {parts} JOIN app.comment AS c ON c.subject_id = p.id"
            f" WHERE {old} AND subject_type = 'Part'",
        ),
    }


def test_a_related_row_that_only_a_loose_collation_ties_to_its_root_is_not_lost_in_silence(
    database: str, volume_root: Path
) -> None:
    needs_icu(database)
    kinds = """
        [kinds.notes]
        root = "public.note"
        time = "at"
        related = ["public.line"]
    """
    here = stage(
        database,
        volume_root,
        kinds,
        "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        "CREATE TABLE note (id text COLLATE loose PRIMARY KEY, at date)",
        "CREATE TABLE line (note_id text COLLATE loose REFERENCES note, said text)",
        "INSERT INTO note VALUES ('abc', '2020-01-01')",
        "INSERT INTO line VALUES ('abc', 'same spelling'), ('ABC', 'other spelling')",
    )
    plan(here, "notes", batch_size=10)
    here.until_idle()
    job = only_job(here)
    if job.state is State.SUCCEEDED:
        found = rows_in(assert_sound(here, job))
        assert found['"public"."line"'] == copied(database, "SELECT * FROM line")
    else:
        assert job.state is State.FAILED


def test_a_partitioned_root_is_read_through_all_its_partitions(
    database: str, volume_root: Path
) -> None:
    kinds = """
        [kinds.measures]
        root = "public.measure"
        time = "at"
        related = ["public.remark"]
    """
    here = stage(
        database,
        volume_root,
        kinds,
        "CREATE TABLE measure (at timestamptz, id integer, value float8, PRIMARY KEY (at, id))"
        " PARTITION BY RANGE (at)",
        "CREATE TABLE measure_20 PARTITION OF measure FOR VALUES FROM ('2020-01-01Z') TO ('2021-01-01Z')",
        "CREATE TABLE measure_21 PARTITION OF measure FOR VALUES FROM ('2021-01-01Z') TO ('2022-01-01Z')",
        "CREATE TABLE measure_rest PARTITION OF measure DEFAULT",
        "CREATE TABLE remark (at timestamptz, measure integer, said text,"
        " FOREIGN KEY (at, measure) REFERENCES measure)",
        "INSERT INTO measure SELECT '2019-12-15Z'::timestamptz + (i / 2) * interval '60 days', i, i / 3.0"
        " FROM generate_series(1, 25) AS i",
        "INSERT INTO remark SELECT at, id, 'r' FROM measure, generate_series(1, 2)",
    )
    _, found = archived(here, "measures", 4)
    assert found == {
        '"public"."measure"': copied(database, "SELECT * FROM measure"),
        '"public"."remark"': copied(database, "SELECT * FROM remark"),
    }


def test_generated_columns_stay_out_and_strange_names_and_types_go_in(
    database: str, volume_root: Path
) -> None:
    kinds = r"""
        [kinds.odd]
        root = '"Odd [Schema]"."The ""\ Table"'
        time = "When'd"
        key = ["select", "Mood"]
        related = ['"Odd [Schema]"."r"']
    """
    odd = '"Odd [Schema]"'
    root = f'{odd}."The ""\\ Table"'
    here = stage(
        database,
        volume_root,
        kinds,
        f"CREATE SCHEMA {odd}",
        f"CREATE TYPE {odd}.\"Mood\" AS ENUM ('sad', 'it''s ok', 'Happy \"!\"', 'afraid')",
        f"CREATE DOMAIN {odd}.code AS varchar(8) CHECK (value <> '')",
        f'CREATE TABLE {root} ("select" {odd}.code, "Mood" {odd}."Mood", "When\'d" timestamp,'
        ' gone integer, "r" jsonb, twice text GENERATED ALWAYS AS (lower("select") || \'!\') STORED,'
        ' PRIMARY KEY ("Mood", "select"))',
        f"ALTER TABLE {root} DROP COLUMN gone",
        f'CREATE TABLE {odd}."r" (a {odd}."Mood", c {odd}.code, r numeric,'
        f" FOREIGN KEY (a, c) REFERENCES {root})",
        f'INSERT INTO {root} ("select", "Mood", "When\'d", "r")'
        f" SELECT c, m, '2020-01-01', '{{\"a\\\\nb\": \"\\\\t\"}}'"
        f" FROM unnest(ARRAY['b', 'B', 'á', 'a\t']) AS c, unnest(enum_range(NULL::{odd}.\"Mood\")) AS m",
        f'INSERT INTO {odd}."r" SELECT "Mood", "select", \'NaN\' FROM {root}',
    )
    job, found = archived(here, "odd", 3)
    stored = '"select", "Mood", "When\'d", "r"'
    assert found == {
        root: copied(database, f"SELECT {stored} FROM {root}"),
        f'{odd}."r"': copied(database, f'SELECT * FROM {odd}."r"'),
    }
    assert b"lower" in (directory(here, job) / "manifest.json").read_bytes()


def test_a_root_without_related_rows_is_archived_all_the_same(
    database: str, volume_root: Path
) -> None:
    here = stage(
        database,
        volume_root,
        NOTES + 'related = ["public.line"]',
        "CREATE TABLE note (id integer PRIMARY KEY, written_at date)",
        "CREATE TABLE line (note_id integer REFERENCES note)",
        "INSERT INTO note VALUES (1, '2020-01-01')",
    )
    _, found = archived(here, "notes", 10)
    assert found['"public"."line"'] == Counter()
    assert sum(found['"public"."note"'].values()) == 1


def test_an_empty_window_ends_with_one_empty_final_batch(database: str, volume_root: Path) -> None:
    here = stage(
        database,
        volume_root,
        NOTES,
        "CREATE TABLE note (id integer PRIMARY KEY, written_at date)",
        "INSERT INTO note VALUES (1, '2999-01-01')",
    )
    job, _ = archived(here, "notes", 10)
    (file,) = assert_sound(here, job)
    assert end_of(file) == {
        "final": True,
        "last": None,
        "raw_bytes": 0,
        "roots": 0,
        "rows": {"public.note": 0},
    }


def test_rows_that_grow_while_a_job_runs_do_not_stretch_its_window(
    database: str, volume_root: Path
) -> None:
    here = stage(
        database,
        volume_root,
        NOTES,
        "CREATE TABLE note (id integer PRIMARY KEY, written_at timestamptz)",
        "INSERT INTO note SELECT i, '2020-01-01Z' FROM generate_series(1, 4) AS i",
    )
    plan(here, "notes", batch_size=2)
    here.tick()
    execute(
        database,
        "INSERT INTO note VALUES (0, '2020-01-01Z'), (5, '2020-01-01Z'), (6, now())",
    )
    here.until_idle()
    job = only_job(here)
    found = rows_in(assert_sound(here, job))['"public"."note"']
    assert found == copied(database, "SELECT * FROM note WHERE id BETWEEN 1 AND 5")


def test_scope_new_goes_on_where_the_last_job_ended_and_reports_what_came_late(
    database: str, volume_root: Path
) -> None:
    here = stage(
        database,
        volume_root,
        NOTES,
        "CREATE TABLE note (id integer PRIMARY KEY, written_at date)",
        "INSERT INTO note SELECT i, '2020-01-01'::date + i FROM generate_series(1, 5) AS i",
    )
    first, _ = archived(here, "notes", 2, scope="new")
    execute(
        database,
        "INSERT INTO note VALUES (10, '2020-02-01'), (11, '2020-01-02'), (12, '2019-01-01')",
    )
    plans_due(here)
    here.until_idle()
    second = jobs(here)[-1]
    found = rows_in(assert_sound(here, second))
    assert found == {'"public"."note"': copied(database, "SELECT * FROM note WHERE id = 10")}
    (late,) = [event for event in events(here, second) if event["type"] == "late-rows"]
    assert (late["reason_code"], late["reason_params"]["rows"]) == ("LATE_ROWS", 2)
    assert second.input["previous"] == {"job": str(first.id), "tail": first.last_sha256}
    # A third cycle with nothing new starts where the second ended, and counts the same rows as late.
    plans_due(here)
    here.until_idle()
    third = jobs(here)[-1]
    assert (third.roots, third.batches) == (0, 1)
    (late,) = [event for event in events(here, third) if event["type"] == "late-rows"]
    assert late["reason_params"]["rows"] == 2


def test_scope_all_takes_every_candidate_again(database: str, volume_root: Path) -> None:
    here = stage(
        database,
        volume_root,
        NOTES,
        "CREATE TABLE note (id integer PRIMARY KEY, written_at date)",
        "INSERT INTO note SELECT i, '2020-01-01'::date + i FROM generate_series(1, 5) AS i",
    )
    archived(here, "notes", 2, scope="all")
    execute(database, "INSERT INTO note VALUES (9, '2019-01-01')")
    plans_due(here)
    here.until_idle()
    second = jobs(here)[-1]
    found = rows_in(assert_sound(here, second))
    assert found == {'"public"."note"': copied(database, "SELECT * FROM note")}
    assert "late-rows" not in event_types(here)


def test_the_source_is_left_exactly_as_it_was(database: str, volume_root: Path) -> None:
    here = stage(
        database,
        volume_root,
        NOTES,
        "CREATE TABLE note (id integer PRIMARY KEY, written_at date)",
        "INSERT INTO note SELECT i, '2020-01-01' FROM generate_series(1, 9) AS i",
    )
    seen = "SELECT ctid, xmin, xmax, * FROM note ORDER BY id"
    before = rows(database, seen)
    archived(here, "notes", 2)
    assert rows(database, seen) == before
