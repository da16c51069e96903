"""What the rules of reading a page are for: each taken away, and what is lost, doubled or misread then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest

from shared.archive.copying import copied
from shared.archive.page import Page, batch, related_query, root_query
from shared.archive.shape import OrderColumn, Relation, Shape
from shared.archive.source import BEGIN, reader_name, terminate_older
from shared.chain.batch import PINS, Header
from shared.chain.frame import decompressed
from shared.clock import Deadline
from shared.db.connect import connect
from shared.db.statement import statement
from tests.operations.stage import wait_for
from tests.postgres.reading import execute, opening_of, paged, rows_of
from tests.worlds import altered, one, rows

KIND = 'root = "public.note"\ntime = "at"\n'
NOTE = "CREATE TABLE note (id integer PRIMARY KEY, at timestamptz, code text)"
FILL = "INSERT INTO note SELECT i, '2020-01-01Z', 'n' || i % 2 FROM generate_series(1, 12) AS i"
ALL = [str(i).encode() for i in range(1, 13)]

Change = Callable[[str], str]


def without(rule: str, instead: str = "") -> Change:
    return lambda text: altered(text, rule, instead)


def ids(lines: list[bytes]) -> list[bytes]:
    """Return the first column of each line."""
    return [line.split(b"\t")[0] for line in lines]


@pytest.fixture
def notes(database: str) -> str:
    execute(database, NOTE, FILL)
    return database


def ordered_by(shape: Shape, *columns: OrderColumn) -> Shape:
    return replace(shape, order=(shape.order[0], *columns))


def test_a_page_that_begins_at_the_cursor_and_not_after_it_takes_a_row_twice(notes: str) -> None:
    opening = replace(opening_of(notes, KIND), after=("2020-01-01 00:00:00+00", "0"))
    assert ids(paged(notes, opening, 5)) == ALL
    found = ids(paged(notes, opening, 5, change=without(") > (", ") >= (")))
    assert sorted(set(found)) == sorted(ALL)
    assert found.count(b"5") == 2


def test_a_cursor_of_the_time_alone_loses_the_rows_of_that_time(notes: str) -> None:
    opening = opening_of(notes, KIND)
    by_time = replace(opening, shape=ordered_by(opening.shape))
    assert len(paged(notes, by_time, 5)) == 5


# Each says that its index is unique, and is not over all rows.
DECEPTIVE = {
    "partial": "CREATE UNIQUE INDEX ON note (code) WHERE id > 100",
    "invalid": "CREATE INDEX broken ON note (code);"
    "UPDATE pg_index SET indisunique = true, indisvalid = false WHERE indexrelid = 'broken'::regclass",
    "on an expression": "CREATE UNIQUE INDEX ON note ((code || id))",
}


@pytest.mark.parametrize("index", DECEPTIVE)
def test_a_key_that_some_unique_index_vouches_for_loses_rows_at_a_seam(
    notes: str, index: str
) -> None:
    execute(notes, *DECEPTIVE[index].split(";"))
    unique = (
        "SELECT indisunique FROM pg_index WHERE indrelid = 'note'::regclass AND NOT indisprimary"
    )
    assert one(notes, unique)
    opening = opening_of(notes, KIND)
    code = OrderColumn("code", "pg_catalog.text", text=True)
    by_code = replace(opening, shape=ordered_by(opening.shape, code))
    found = ids(paged(notes, by_code, 4))
    assert len(found) == len(set(found)) < len(ALL)


WORDS = ["a", "A", "b", "B", "c", "C"]


def test_without_byte_order_another_version_of_a_collation_drops_and_doubles_rows(
    database: str,
) -> None:
    """As when a standby or an upgraded system sorts otherwise than the server that gave the first page."""
    execute(database, 'CREATE TABLE note (id text COLLATE "C" PRIMARY KEY, at timestamptz)')
    for word in WORDS:
        rows(database, "INSERT INTO note VALUES (%s, '2020-01-01Z')", word)
    opening = opening_of(database, KIND)

    def upgraded() -> None:
        execute(database, "ALTER TABLE note ALTER id TYPE text COLLATE upgraded")

    execute(database, collation(database, "upgraded", "en-US"))
    found = ids(paged(database, opening, 3, change=without(' COLLATE "C"'), between=upgraded))
    assert sorted(found) != sorted(word.encode() for word in WORDS)
    execute(database, 'ALTER TABLE note ALTER id TYPE text COLLATE "C"')
    found = ids(paged(database, opening, 3, between=upgraded))
    assert found == sorted(word.encode() for word in WORDS)


def test_without_byte_order_a_loose_collation_loses_rows_at_a_seam(database: str) -> None:
    loose = collation(database, "loose", "und-u-ks-level2", deterministic=False)
    execute(
        database,
        loose,
        "CREATE TABLE note (id text COLLATE loose NOT NULL, at timestamptz)",
        'CREATE UNIQUE INDEX ON note (id COLLATE "C")',
    )
    for word in WORDS:
        rows(database, "INSERT INTO note VALUES (%s, '2020-01-01Z')", word)
    opening = opening_of(database, KIND + 'key = ["id"]')
    assert ids(paged(database, opening, 1)) == sorted(word.encode() for word in WORDS)
    found = ids(paged(database, opening, 1, change=without(' COLLATE "C"')))
    assert len(found) == len(WORDS) / 2


def collation(dsn: str, name: str, locale: str, *, deterministic: bool = True) -> str:
    if not one(dsn, "SELECT 1 FROM pg_collation WHERE collname = 'und-x-icu'"):
        pytest.skip("this server was built without ICU")
    return (
        f"CREATE COLLATION {name} (provider = icu, locale = '{locale}',"
        f" deterministic = {str(deterministic).lower()})"
    )


def test_a_cast_in_the_select_list_captures_an_order_that_is_not_qualified(notes: str) -> None:
    opening = opening_of(notes, KIND)
    cast = without('SELECT "r"."id"', 'SELECT "r"."id"::text AS "id"')
    assert ids(paged(notes, opening, 5, change=cast)) == ALL
    bare = without('ORDER BY "r"."at", "r"."id"', 'ORDER BY "at", "id"')
    assert ids(paged(notes, opening, 5, change=bare)) == ALL
    found = ids(paged(notes, opening, 4, change=lambda text: bare(cast(text))))
    # In the order of texts 12 comes before 2: the cursor stands behind rows that were never read.
    assert found == [b"1", b"10", b"11", b"12"]


def test_a_condition_without_parentheses_takes_rows_out_of_the_window(notes: str) -> None:
    execute(notes, "INSERT INTO note VALUES (13, '2025-01-01Z', 'young')")
    opening = opening_of(notes, KIND + "where = \"code = 'n0' OR code = 'young'\"")
    assert b"13" not in ids(paged(notes, opening, 50))
    bare = without("(\ncode = 'n0' OR code = 'young'\n)", "code = 'n0' OR code = 'young'")
    assert b"13" in ids(paged(notes, opening, 50, change=bare))


def test_a_condition_on_the_line_of_its_parenthesis_may_comment_it_out(notes: str) -> None:
    opening = opening_of(notes, KIND + 'where = "code IS NOT NULL -- all of them"')
    assert ids(paged(notes, opening, 50)) == ALL
    with pytest.raises(Exception, match="syntax error"):
        paged(notes, opening, 50, change=without("\n)", ")"))


def test_a_condition_that_reads_the_clock_skips_what_it_lets_in_too_late(database: str) -> None:
    execute(
        database,
        "CREATE TABLE note (id integer PRIMARY KEY, at timestamptz, until timestamptz)",
        "INSERT INTO note SELECT i, '2020-01-01Z', CASE i WHEN 2 THEN clock_timestamp() + interval '1 s'"
        " ELSE '2020-01-01Z' END FROM generate_series(1, 5) AS i",
    )
    opening = opening_of(database, KIND + 'where = "id > 0"')
    clock = without("id > 0", "until < clock_timestamp()")

    def a_second_later() -> None:
        rows(database, "SELECT pg_sleep(1.1)")

    found = ids(paged(database, opening, 2, change=clock, between=a_second_later))
    assert found == [b"1", b"3", b"4", b"5"]
    assert ids(paged(database, opening, 50, change=clock)) == ALL[:5]


def test_a_window_that_takes_in_the_day_of_its_end_loses_what_that_day_still_brings(
    database: str,
) -> None:
    execute(
        database,
        "CREATE TABLE note (id integer PRIMARY KEY, at date)",
        "INSERT INTO note VALUES (1, '2020-01-01'), (5, '2020-01-02')",
    )
    opening = opening_of(database, KIND, "2020-01-02")
    wide = without('"r"."at" <', '"r"."at" <=')
    assert ids(paged(database, opening, 50)) == [b"1"]
    assert ids(paged(database, opening, 50, change=wide)) == [b"1", b"5"]
    execute(database, "INSERT INTO note VALUES (3, '2020-01-02')")
    next_day = opening_of(database, KIND, "2020-01-03")
    assert ids(paged(database, replace(next_day, after=("2020-01-02", "5")), 50)) == []
    assert ids(paged(database, replace(next_day, after=("2020-01-01", "1")), 50)) == [b"3", b"5"]


def test_a_namespace_compared_loosely_takes_rows_of_another(database: str) -> None:
    loose = collation(database, "loose", "und-u-ks-level2", deterministic=False)
    execute(
        database,
        loose,
        "CREATE TABLE note (id integer PRIMARY KEY, at date, owner text COLLATE loose)",
        "INSERT INTO note VALUES (1, '2020-01-01', 'acme'), (2, '2020-01-01', 'ACME')",
    )
    opening = opening_of(database, KIND + 'namespace = "owner"', "2021-01-01")
    acme = replace(opening, namespace_value="acme")
    assert ids(paged(database, acme, 50)) == [b"1"]
    exact = '"r"."owner"::pg_catalog.text COLLATE "C" ='
    assert ids(paged(database, acme, 50, change=without(exact, '"r"."owner" ='))) == [b"1", b"2"]


def test_a_definition_that_changes_inside_a_job_leaves_out_rows_its_manifest_speaks_of(
    notes: str,
) -> None:
    opening = opening_of(notes, KIND)
    first = ids(paged(notes, opening, 50))[:5]
    # Derived from a kinds file that was changed meanwhile, in place of what the job keeps.
    today = opening_of(notes, KIND + "where = \"code = 'n0'\"")
    rest = paged(notes, replace(today, after=("2020-01-01 00:00:00+00", "5")), 50)
    assert first + ids(rest) == [b"1", b"2", b"3", b"4", b"5", b"6", b"8", b"10", b"12"]


def lines_of(dsn: str, shape: Shape, index: int) -> list[bytes]:
    """Return what a page takes along of one related table."""
    opening = replace(opening_of(dsn, KIND), shape=shape)
    last = ("2020-01-01 00:00:00+00", "12")
    with connect(dsn) as connection:
        return list(copied(connection, related_query(opening, index, None, last)))


def test_a_parent_whose_column_is_not_unique_takes_its_children_along_twice(notes: str) -> None:
    execute(
        notes,
        "CREATE TABLE line (note integer REFERENCES note, code text)",
        "INSERT INTO line VALUES (1, 'n1'), (2, 'n0')",
    )
    shape = opening_of(notes, KIND + 'related = ["public.line"]').shape
    assert len(lines_of(notes, shape, 1)) == 2
    root, line = shape.relations
    by_code = replace(line.table, foreign_key=("code",), references=("code",))
    loose = replace(shape, relations=(root, Relation(by_code, None, (True,))))
    assert len(lines_of(notes, loose, 1)) == 2 * 6


def test_a_table_that_is_followed_on_two_paths_has_its_rows_twice(notes: str) -> None:
    execute(
        notes,
        "CREATE TABLE line (a integer, b integer)",
        "INSERT INTO line VALUES (1, 2), (3, 3)",
    )
    kind = KIND + 'related = [{{ table = "public.line", foreign_key = ["{}"] }}]'
    root, by_a = opening_of(notes, kind.format("a")).shape.relations
    _, by_b = opening_of(notes, kind.format("b")).shape.relations
    shape = replace(opening_of(notes, KIND).shape, relations=(root, by_a, by_b))
    assert lines_of(notes, shape, 1) + lines_of(notes, shape, 2) == [b"1\t2\n", b"3\t3\n"] * 2


def test_without_one_snapshot_a_page_has_children_of_another_moment(notes: str) -> None:
    execute(
        notes,
        "CREATE TABLE line (note integer REFERENCES note)",
        "INSERT INTO line SELECT i FROM generate_series(1, 12) AS i",
    )
    opening = opening_of(notes, KIND + 'related = ["public.line"]')

    def children_of_a_root_that_was_read(begin: str) -> int:
        with connect(notes) as connection:
            connection.execute(begin.encode())
            assert list(copied(connection, root_query(opening, None, 50)))
            execute(notes, "DELETE FROM line WHERE note = 1")
            found = list(copied(connection, related_query(opening, 1, None, None)))
            execute(notes, "INSERT INTO line VALUES (1)")
        return len(found)

    assert children_of_a_root_that_was_read(BEGIN) == 12
    loose = altered(BEGIN, "REPEATABLE READ", "READ COMMITTED")
    assert children_of_a_root_that_was_read(loose) == 11


def test_without_the_look_at_the_tables_a_new_column_is_left_out_in_silence(notes: str) -> None:
    opening = opening_of(notes, KIND)
    execute(notes, "ALTER TABLE note ADD paid text DEFAULT 'yes'")
    header = Header("job", 1, "0" * 64, None, "test")
    with connect(notes) as connection:
        connection.execute(BEGIN.encode())
        page = Page(header, 50, Deadline.after(20))
        text = b"".join(decompressed([b"".join(batch(connection, opening, page))]))
    (block,) = rows_of(text)
    assert len(block) == 12
    assert b"yes" not in text
    # What a page does first: it holds the tables against those that its job began with.
    assert opening_of(notes, KIND).shape != opening.shape


# For each setting another value that it may have in a database, and a text that reads otherwise then.
MISREAD = {
    "client_encoding": ("'LATIN1'", "chr(233)"),
    "standard_conforming_strings": ("off", r"'\x41'"),
    "search_path": ("pg_temp, pg_catalog", "'9'::int8 < '10'::int8"),
    "datestyle": ("'German, DMY'", "'2020-03-02'::date"),
    "intervalstyle": ("'sql_standard'", "'-1 day 02:00'::interval"),
    "timezone": ("'America/New_York'", "'2020-03-02 01:00Z'::timestamptz"),
    "extra_float_digits": ("0", "0.1::float8 + 0.2"),
    "bytea_output": ("'escape'", r"'\x00ff'::bytea"),
    "lc_monetary": ("''", "1234.5::float8::numeric::money"),
}


@pytest.mark.parametrize("setting", MISREAD)
def test_without_its_pin_a_setting_of_the_source_shows_in_what_is_read(
    database: str, setting: str
) -> None:
    odd, value = MISREAD[setting]
    if setting == "lc_monetary":
        odd = f"'{a_locale_with_another_currency(database)}'"
    pinned = [f"{name} = {fixed}" for name, fixed in PINS]
    assert any(each.startswith(f"{setting} = ") for each in pinned)
    unpinned = [each for each in pinned if not each.startswith(f"{setting} = ")]

    def read(settings: list[str]) -> bytes:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("CREATE DOMAIN pg_temp.int8 AS text")
            for each in (f"{setting} = {odd}", *settings):
                connection.execute(f"SET {each}".encode())
            with connection.cursor().copy(f"COPY (SELECT {value}) TO STDOUT".encode()) as copy:
                return b"".join(bytes(piece) for piece in copy)

    assert read(pinned) != read(unpinned)


def a_locale_with_another_currency(dsn: str) -> str:
    found = one(
        dsn,
        "SELECT collcollate FROM pg_collation"
        " WHERE collprovider = 'c' AND collcollate ~ '^(de|en)_..\\.utf-?8$' LIMIT 1",
    )
    if found is None:
        pytest.skip("this system has no locale of a country")
    return str(found)


def test_with_an_empty_search_path_a_temporary_type_takes_the_place_of_the_servers(
    notes: str,
) -> None:
    opening = opening_of(notes, KIND + "where = \"id::text::int8 < '10'::int8\"")
    assert opening.shape.relations[0].where is not None

    def taken(path: str) -> int:
        with connect(notes) as connection:
            connection.execute("CREATE DOMAIN pg_temp.int8 AS text")
            connection.execute(f"SET search_path = {path}".encode())
            return len(list(copied(connection, root_query(opening, None, 50))))

    assert taken(dict(PINS)["search_path"]) == 9
    # As texts only 1 comes before 10.
    assert taken("''") == 1


def test_rows_that_a_policy_hides_are_missing_in_silence_without_row_security_off(
    notes: str,
) -> None:
    reader = f"reader_{one(notes, 'SELECT pg_backend_pid()')}"
    execute(
        notes,
        f"CREATE ROLE {reader}",
        f"GRANT SELECT ON note TO {reader}",
        "ALTER TABLE note ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY few ON note USING (id < 4)",
    )

    def read(setting: str) -> int:
        with connect(notes) as connection:
            connection.execute(f"SET row_security = {setting}; SET ROLE {reader}".encode())
            return len(list(copied(connection, root_query(opening_of(notes, KIND), None, 50))))

    try:
        assert read("on") == 3
        with pytest.raises(Exception, match="row-security"):
            read(dict(PINS)["row_security"])
    finally:
        execute(notes, f"DROP OWNED BY {reader}", f"DROP ROLE {reader}")


def test_a_reader_frozen_in_mid_copy_keeps_its_snapshot_against_every_timeout(notes: str) -> None:
    """Until its successor ends it: no timeout of the server is heard while it waits to send."""
    waits = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
    keeps = "SELECT backend_xmin IS NOT NULL FROM pg_stat_activity WHERE pid = %s"
    with closing(connect(notes)) as frozen:
        frozen.execute(BEGIN.encode())
        for each in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            frozen.execute(f"SET LOCAL {each} = '200ms'".encode())
        if frozen.info.server_version >= 170000:
            frozen.execute("SET LOCAL transaction_timeout = '400ms'")
        frozen.execute(f"SET LOCAL application_name = '{reader_name('abc', 6)}'".encode())
        pid = frozen.info.backend_pid
        endless = b"COPY (SELECT repeat('x', 100000) FROM generate_series(1, 1000)) TO STDOUT"
        frozen.pgconn.exec_(endless)
        wait_for(lambda: one(notes, waits, pid) == "ClientWrite")
        rows(notes, "SELECT pg_sleep(1)")
        assert one(notes, keeps, pid)
        with connect(notes) as successor:
            terminate_older(successor, "abc", 7)
        wait_for(lambda: one(notes, keeps, pid) is None)


def test_a_window_up_to_now_loses_what_a_transaction_that_runs_brings_in_later(
    database: str,
) -> None:
    execute(database, "CREATE TABLE note (id integer PRIMARY KEY, at timestamptz DEFAULT now())")
    with psycopg.connect(database) as slow:
        slow.execute("INSERT INTO note VALUES (1)")
        execute(database, "INSERT INTO note VALUES (2)")
        rows(database, "SELECT pg_sleep(0.01)")
        ends = {
            name: window_end(database, bounded=name == "bounded") for name in ("bounded", "now")
        }
        openings = {name: opening_of(database, KIND, end) for name, end in ends.items()}
        first = {name: ids(paged(database, each, 50)) for name, each in openings.items()}
        slow.commit()
    assert first == {"bounded": [], "now": [b"2"]}
    # The next window begins where that one ended: at the time and key of its last row.
    (last,) = rows(database, "SELECT at::text FROM note WHERE id = 2")
    later = "2999-01-01 00:00:00+00"
    goes_on = replace(opening_of(database, KIND, later), after=(last["at"], "2"))
    assert ids(paged(database, goes_on, 50)) == []
    assert ids(paged(database, opening_of(database, KIND, later), 50)) == [b"1", b"2"]


def window_end(dsn: str, *, bounded: bool) -> str:
    """Return the end of a window that asks for everything up to now."""
    text = statement("shared.archive", "window")
    if not bounded:
        text = altered(text, "least(asked, newest, oldest)", "least(asked, newest)")
    params = {"cutoff_at": one(dsn, "SELECT now()::text"), "time_zone": "UTC", "per_second": 1}
    params |= {"margin": 0, "hidden_margin": 0}
    with connect(dsn) as connection:
        row = connection.execute(text.encode(), params).fetchone()
    assert row is not None
    return str(row["instant"])
