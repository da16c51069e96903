"""What a role or a database comes with cannot reach us: every setting is judged, none shows in our bytes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from shared.archive import source
from shared.archive.copying import copied as copied_lines
from shared.archive.page import root_query
from shared.archive.shape import Opening
from shared.archive.source import SourceConnection, snapshot
from shared.catalog.names import TableName
from shared.chain.batch import PINS, PREAMBLE
from shared.db import connect as connecting
from shared.db import pins
from shared.db.connect import Database, connect
from shared.errors import Uncertain, Verdict
from shared.restore import target
from tests import worlds
from tests.golden.scenario import Shell
from tests.postgres.reading import execute, opening_of, page_of, rows_of
from tests.worlds import one, rows

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "settings-of-others.md"
REACHED = (
    "SELECT name, context, vartype, enumvals, setting, min_val, max_val FROM pg_settings"
    " WHERE context IN ('user', 'superuser', 'backend', 'superuser-backend')"
    " AND category <> 'Customized Options' ORDER BY name"
)
PINNED_BY = ("pinned", "begin", "session", "neutral", "left")
RESTORED = "SELECT string_agg(t::text, '|' ORDER BY id) FROM {} AS t"

# Not part of a sweep: a read refuses them, they load code or name places, or no session begins with them.
APART = {
    "zero_damaged_pages",
    "ignore_checksum_failure",
    "session_replication_role",
    "default_transaction_read_only",
    "transaction_isolation",
    "transaction_read_only",
    "transaction_deferrable",
    "local_preload_libraries",
    "session_preload_libraries",
    "dynamic_library_path",
    "extension_control_path",
    "extension_destdir",
    "output_plugin_libraries",
    "default_table_access_method",
    "temp_tablespaces",
    "default_tablespace",
    "timezone_abbreviations",
    "wal_consistency_checking",
    "post_auth_delay",
    "debug_discard_caches",
    "max_stack_depth",
    "temp_file_limit",
    "track_activities",
    "jit_debugging_support",
    "jit_profiling_support",
}
TEXTS = {
    "DateStyle": "German, DMY",
    "TimeZone": "America/New_York",
    "search_path": "pg_temp, app, public",
    "application_name": "somebody",
    "client_encoding": "LATIN1",
    "default_text_search_config": "pg_catalog.german",
    "lc_monetary": "C",
    "restrict_nonsystem_relation_kind": "view, foreign-table",
}
NUMBERS = {
    "extra_float_digits": "-15",
    "statement_timeout": "1h",
    "lock_timeout": "1h",
    "idle_in_transaction_session_timeout": "1h",
    "transaction_timeout": "10s",
    "idle_session_timeout": "1h",
    "gin_fuzzy_search_limit": "1",
    "client_connection_check_interval": "1s",
    "log_min_duration_statement": "-1",
}


def table(heading: str) -> list[list[str]]:
    part = PAGE.read_text("utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def judged() -> list[str]:
    cells = [row[0] for name in ("Pinned", "Reported", "Neutral") for row in table(name)]
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_every_setting_that_a_role_or_database_can_bring_is_judged(database: str) -> None:
    found = {row["name"] for row in rows(database, REACHED)}
    assert len(found) > 150
    assert found - set(judged()) == set()
    assert sorted(judged()) == sorted(set(judged()))


def test_the_page_says_what_is_pinned(database: str) -> None:
    with connect(database) as connection:
        always = {pins.WHOLE[0], *dict(pins.STATEMENTS)}
        limits = {"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"}
        actual = (
            {*dict(PINS), *always, *limits, "application_name"},
            {*dict(connecting.PINS), pins.WHOLE[0]},
            {*dict(target.SETTINGS), pins.WHOLE[0]},
        )
        said = {row[0].strip("`").lower(): row[1:4] for row in table("Pinned")}
        assert {word for row in said.values() for word in row} == set(PINNED_BY)
        for place, names in enumerate(actual):
            assert {name for name, row in said.items() if row[place] == "pinned"} == names
        begun = (source.BEGIN, connecting.BEGIN, target.BEGIN)
        assert all("ISOLATION LEVEL" in each for each in begun)
        assert ["READ ONLY" in begun[0], "READ WRITE" in begun[1]] == [True, True]
        assert connection.info.parameter_status("client_encoding") == "UTF8"


def odd_values(database: str, sweep: int) -> dict[str, str]:
    """Return for each setting another value than it has: the next one of a list, the other of two."""
    odd = dict(TEXTS) | NUMBERS
    for row in rows(database, REACHED):
        name, kind, now = row["name"], row["vartype"], row["setting"]
        if name in odd or name in APART or row["context"].endswith("backend"):
            continue
        if name.startswith("enable_") and sweep % 2:
            # One index alone is left to read with: the one that may be asked to leave rows out.
            odd[name] = "on" if name == "enable_bitmapscan" else "off"
        elif kind == "bool":
            odd[name] = "off" if now == "on" else "on"
        elif kind == "enum":
            others = [each for each in row["enumvals"] if each != now] or [now]
            odd[name] = others[sweep % len(others)]
        elif kind in {"integer", "real"} and not name.startswith(("log_", "vacuum_", "tcp_")):
            odd[name] = row["min_val"]
    known = {row["name"] for row in rows(database, REACHED)}
    return {name: value for name, value in odd.items() if name in known and name not in APART}


def overridden(database: str, settings: dict[str, str]) -> None:
    name = one(database, "SELECT current_database()")
    changes = [
        f"ALTER DATABASE {name} SET {setting} = "
        + (value if setting == "search_path" else f"'{value}'")
        for setting, value in settings.items()
    ]
    with psycopg.connect(database, autocommit=True) as connection:
        for change in changes:
            connection.execute(change.encode())


FILL = (
    'INSERT INTO note (id, at, "Said", moods, texts, f, i, b, m, d, j, tags)'
    " SELECT n, '2020-01-01Z'::timestamptz + n * interval '1 minute', 'ä\\' || n, '{glad,NULL,Sad}',"
    " ARRAY['NULL', NULL, 'null'], 0.1::float8 + 0.2, '-1 day 02:00', '\\x00ff', 12.5,"
    " '2020-03-02', '{\"a\": 1}', ARRAY['t' || n % 3, 'all'] FROM generate_series(1, 400) AS n"
)
TABLE = (
    'CREATE TABLE note (id integer PRIMARY KEY, at timestamptz, "Said" text, moods mood[], texts text[],'
    " f float8, i interval, b bytea, m money, d date, j jsonb, tags text[],"
    ' twice text GENERATED ALWAYS AS ("Said" || 1::text) STORED)'
)
NOTE = (
    "CREATE TYPE mood AS ENUM ('glad', 'Sad')",
    TABLE,
    FILL,
    "CREATE INDEX ON note USING gin (tags)",
    "ANALYZE note",
)
KIND = 'root = "public.note"\ntime = "at"\nwhere = "tags @> ARRAY[\'all\']"'


def page(database: str, opening: Opening) -> bytes:
    with connect(database) as connection:
        return page_of(connection, KIND, opening, None, 1000)


@pytest.mark.parametrize("sweep", range(4))
def test_no_setting_of_a_database_shows_in_a_page(database: str, sweep: int) -> None:
    execute(database, *NOTE)
    opening = opening_of(database, KIND)
    plain = page(database, opening)
    assert len(rows_of(plain)[0]) == 400
    odd = odd_values(database, sweep)
    assert {"quote_all_identifiers", "array_nulls", "enable_seqscan", "xmloption"} <= odd.keys()
    overridden(database, odd)
    assert page(database, opening) == plain


@pytest.mark.parametrize("sweep", range(2))
def test_no_setting_of_a_database_shows_in_ticks_answers_or_a_restore(
    shell: Shell, database: str, empty_database: str, sweep: int
) -> None:
    odd = odd_values(database, sweep)
    overridden(database, odd)
    overridden(empty_database, odd)
    assert shell("tick", "--until-idle").code == 0
    job = json.loads(shell("jobs", "list", "--json").out)["items"][0]
    assert (job["state"], job["roots"]) == ("SUCCEEDED", 45)
    for command in (("plan", "list"), ("recovery", "list"), ("jobs", "show", job["id"])):
        assert shell(*command, "--json").code == 0
    answered = shell(
        "archive", "restore", "orders", "--to", empty_database, "--create-tables", "--json"
    )
    assert answered.code == 0, answered
    order = "SELECT string_agg(t::text, '|' ORDER BY placed_at) FROM app.orders AS t"
    with psycopg.connect(database, options="-c datestyle=ISO -c timezone=UTC") as there:
        before = there.execute(order.encode()).fetchone()
    with psycopg.connect(empty_database, options="-c datestyle=ISO -c timezone=UTC") as there:
        assert there.execute(order.encode()).fetchone() == before


def test_without_its_pin_a_fuzzy_index_leaves_rows_out(database: str) -> None:
    execute(database, *NOTE)
    opening = opening_of(database, KIND)

    def found(limit: int) -> int:
        with connect(database) as connection:
            connection.execute(f"SET gin_fuzzy_search_limit = {limit}".encode())
            connection.execute("SET enable_seqscan = off; SET enable_indexscan = off")
            return len(list(copied_lines(connection, root_query(opening, None, 1000))))

    assert found(0) == 400
    assert found(1) < 400


def test_without_its_pin_quoted_names_are_other_types(database: str) -> None:
    execute(database, *NOTE)
    said = "SELECT format_type('date'::regtype, NULL)"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET search_path = public; SET quote_all_identifiers = on")
        assert connection.execute(said).fetchone() != ("date",)
        for each in pins.pinned(connection, pins.STATEMENTS):
            connection.execute(each.replace("LOCAL ", "").encode())
        assert connection.execute(said).fetchone() == ("date",)


def test_without_its_pin_a_null_in_an_array_comes_back_as_a_text(database: str) -> None:
    execute(database, "CREATE TABLE public.held (texts text[])")
    name = one(database, "SELECT current_database()")
    execute(database, f"ALTER DATABASE {name} SET array_nulls = off")

    def brought(before: bytes) -> Any:  # noqa: ANN401 - whatever was read
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("TRUNCATE public.held")
            connection.execute(before)
            with connection.cursor().copy("COPY public.held FROM STDIN") as copy:
                copy.write(b"{NULL,a}\n")
            return connection.execute("SELECT texts FROM public.held").fetchone()

    assert brought(b"SELECT") == (["NULL", "a"],)
    assert brought(PREAMBLE.split(b"\n", 1)[1]) == ([None, "a"],)


@contextmanager
def read_transaction(database: str) -> Iterator[psycopg.Connection[Any]]:
    tables = [TableName("public", "note")]
    with (
        connect(database) as connection,
        snapshot(connection, tables, name="t", seconds=20, lock=True),
    ):
        yield connection


@contextmanager
def control_transaction(database: str) -> Iterator[psycopg.Connection[Any]]:
    control = worlds.control(database)
    with control.transaction() as connection:
        yield connection
    control.close()


@contextmanager
def restore_transaction(database: str) -> Iterator[psycopg.Connection[Any]]:
    with target.connected(database) as connection, target.transaction(connection):
        yield connection


@pytest.mark.parametrize("begun", [read_transaction, control_transaction, restore_transaction])
def test_a_limit_on_whole_transactions_ends_none_of_ours(
    database: str, begun: Callable[[str], Any]
) -> None:
    execute(database, *NOTE)
    name = one(database, "SELECT current_database()")
    known = one(database, "SELECT count(*) FROM pg_settings WHERE name = 'transaction_timeout'")
    if known:
        execute(database, f"ALTER DATABASE {name} SET transaction_timeout = '300ms'")
    with begun(database) as connection:
        connection.execute("SELECT 1")
        time.sleep(0.5)
        assert connection.execute("SELECT count(*) AS n FROM public.note").fetchone()
        said = "SELECT current_setting('transaction_timeout', true) AS limit"
        row = connection.execute(said).fetchone()
    assert row == {"limit": "0" if known else None}


def test_a_session_that_was_ended_while_it_rested_is_opened_again(database: str) -> None:
    name = one(database, "SELECT current_database()")
    execute(database, f"ALTER DATABASE {name} SET idle_session_timeout = '100ms'")
    control = worlds.control(database)
    reader = SourceConnection(database)
    seen = set()
    for _ in range(3):
        # Not repeatable: a statement whose answer is lost would be uncertain.
        (row,) = control.transact("SELECT pg_backend_pid() AS pid", {})
        (other,) = reader.open().execute("SELECT pg_backend_pid() AS pid").fetchall()
        seen |= {row["pid"], other["pid"]}
        time.sleep(0.3)
    control.close()
    reader.close()
    assert len(seen) == 6


def test_without_a_look_before_a_statement_sent_to_an_ended_session_is_lost(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = one(database, "SELECT current_database()")
    execute(database, f"ALTER DATABASE {name} SET idle_session_timeout = '100ms'")
    monkeypatch.setattr(connecting, "still_there", lambda connection: not connection.closed)
    control = worlds.control(database)
    control.transact("SELECT 1 AS x", {})
    time.sleep(0.3)
    with pytest.raises(Uncertain):
        control.transact("SELECT 1 AS x", {})
    control.close()


@pytest.mark.parametrize("setting", ["zero_damaged_pages", "ignore_checksum_failure"])
def test_a_source_that_passes_over_damaged_pages_is_not_read(database: str, setting: str) -> None:
    execute(database, *NOTE)
    opening = opening_of(database, KIND)
    name = one(database, "SELECT current_database()")
    execute(database, f"ALTER DATABASE {name} SET {setting} = on")
    with pytest.raises(Verdict) as verdict:
        page(database, opening)
    assert verdict.value.params["cause"] == "damage-passed-over"
    assert verdict.value.params["settings"] == [setting]


def test_a_restore_is_refused_where_the_role_defaults_to_read_only(
    shell: Shell, empty_database: str
) -> None:
    assert shell("tick", "--until-idle").code == 0
    name = one(empty_database, "SELECT current_database()")
    execute(empty_database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    answered = shell(
        "archive", "restore", "orders", "--to", empty_database, "--create-tables", "--json"
    )
    assert (answered.code, '"cause": "read-only"' in answered.err) == (1, True), answered


def test_no_statement_of_ours_has_a_backslash_in_a_quoted_text() -> None:
    """So it may be read under either setting of `standard_conforming_strings`."""
    shared = Path(connecting.__file__).parents[1]
    files = sorted(shared.rglob("*.sql"))
    assert len(files) > 50
    texts = [text for file in files for text in re.findall(r"E?'[^']*'", file.read_text("utf-8"))]
    assert [text for text in texts if "\\" in text and not text.startswith("E")] == []


def test_control_answers_are_times_whatever_the_role_writes_them_as(database: str) -> None:
    name = one(database, "SELECT current_database()")
    overridden(database, {"DateStyle": "German, DMY", "IntervalStyle": "iso_8601"})
    assert name
    control: Database = worlds.control(database)
    (row,) = control.transact("SELECT timestamptz '2020-03-02 01:00Z' AS at", {})
    control.close()
    assert row["at"].isoformat() == "2020-03-02T01:00:00+00:00"
