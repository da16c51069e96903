"""Reading a page: one snapshot, taken after the locks, under settings of our own."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from shared.archive.copying import copied as copied_lines
from shared.archive.source import reader_name, snapshot, source_errors, terminate_older, trouble_of
from shared.catalog.names import TableName
from shared.chain.batch import PINS
from shared.db.connect import connect
from shared.errors import Code, Missing, Passing, TooMuch, Trouble, Verdict
from tests.postgres.reading import copied, execute, opening_of, page_of, rows_of
from tests.worlds import one, rows

KIND = 'root = "public.note"\ntime = "at"\nrelated = ["public.line"]'
NOTE = "CREATE TABLE note (id integer PRIMARY KEY, at timestamptz, said text)"
LINE = "CREATE TABLE line (note_id integer REFERENCES note, said text)"
FILL = "INSERT INTO note SELECT i, '2020-01-01Z', 'n' FROM generate_series(1, 5) AS i"
LINES = "INSERT INTO line SELECT i, 'l' FROM generate_series(1, 5) AS i"
REWRITE = "ALTER TABLE note ALTER COLUMN said TYPE text USING said || ''"
TABLES = [TableName("public", "note"), TableName("public", "line")]


def waits_for_a_lock(dsn: str) -> bool:
    return bool(
        one(
            dsn,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock'",
        )
    )


def read_while_rewritten(dsn: str, read: Callable[[], int]) -> int:
    """Begin a read while another session rewrites the table, and return the rows that it saw."""
    seen: list[int] = []
    with psycopg.connect(dsn) as other:
        other.execute(REWRITE)
        reader = threading.Thread(target=lambda: seen.append(read()))
        reader.start()
        ends = time.monotonic() + 10
        while not waits_for_a_lock(dsn) and time.monotonic() < ends:
            time.sleep(0.01)
        other.commit()
        reader.join(20)
    return seen[0]


@pytest.fixture
def notes(database: str) -> str:
    execute(database, NOTE, LINE, FILL, LINES)
    return database


def test_a_table_rewritten_while_a_read_begins_is_read_whole(notes: str) -> None:
    def read() -> int:
        with (
            connect(notes) as connection,
            snapshot(connection, TABLES, name="t", seconds=20, lock=True),
        ):
            (row,) = connection.execute("SELECT count(*) AS n FROM public.note").fetchall()
            return int(row["n"])

    assert read_while_rewritten(notes, read) == 5


def test_without_the_lock_first_a_table_rewritten_meanwhile_reads_as_empty(notes: str) -> None:
    """The fault the rule is for: any SELECT before the lock takes the snapshot too early."""

    def read() -> int:
        with connect(notes) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute("SELECT set_config('search_path', 'public', true)")
            connection.execute("LOCK TABLE note IN ACCESS SHARE MODE")
            (row,) = connection.execute("SELECT count(*) AS n FROM note").fetchall()
            return int(row["n"])

    assert read_while_rewritten(notes, read) == 0


def test_root_and_related_rows_come_from_one_snapshot(notes: str) -> None:
    opening = opening_of(notes, KIND)
    with (
        connect(notes) as connection,
        snapshot(connection, TABLES, name="t", seconds=20, lock=True),
    ):
        execute(
            notes,
            "INSERT INTO note VALUES (0, '2019-01-01Z', 'late')",
            "INSERT INTO line VALUES (1, 'late')",
            "DELETE FROM line WHERE note_id = 2",
        )
        from shared.archive.page import related_query, root_query

        roots = list(copied_lines(connection, root_query(opening, None, 10)))
        related = list(copied_lines(connection, related_query(opening, 1, None, None)))
    assert len(roots) == 5
    assert sorted(related) == [b"%d\tl\n" % i for i in range(1, 6)]


def test_the_snapshot_can_write_nothing(notes: str) -> None:
    trouble = seen_from(notes, lambda connection: connection.execute("DELETE FROM public.line"))
    assert (type(trouble), trouble.params["sqlstate"]) == (Verdict, "25006")
    assert one(notes, "SELECT count(*) FROM line") == 5


def test_nothing_is_left_in_the_session_for_whoever_uses_it_next(notes: str) -> None:
    names = [name for name, _ in PINS]
    names += ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"]
    names += ["application_name", "transaction_isolation", "transaction_read_only"]

    def settings(connection: psycopg.Connection[Any]) -> list[object]:
        return [connection.execute(f"SHOW {name}".encode()).fetchone() for name in names]

    with connect(notes) as connection:
        before = settings(connection)
        with snapshot(connection, TABLES, name="tallystick x 1", seconds=20, lock=True):
            assert settings(connection) != before
        assert settings(connection) == before
        assert connection.execute("SELECT * FROM pg_prepared_statements").fetchall() == []
        with (
            pytest.raises(Verdict),
            snapshot(connection, [TableName("public", "gone")], name="t", seconds=20, lock=True),
        ):
            pass
        assert settings(connection) == before


ODD = (
    "SET datestyle = 'German, DMY'",
    "SET intervalstyle = 'sql_standard'",
    "SET timezone = 'America/New_York'",
    "SET extra_float_digits = 0",
    "SET bytea_output = 'escape'",
    "SET search_path = pg_temp, public",
    "SET xmloption = document",
    "SET standard_conforming_strings = off",
    "SET row_security = off",
    "SET client_encoding = 'LATIN1'",
)


def test_the_defaults_of_the_source_do_not_show_in_what_is_read(database: str) -> None:
    execute(
        database,
        "CREATE TABLE note (id integer PRIMARY KEY, at timestamptz, i interval, f float8, b bytea,"
        " d date, t text, r tstzrange, n numeric, m money, x float4[])",
        "INSERT INTO note VALUES (1, '2020-03-02 01:00:00Z', '-1 day 02:00', 0.1::float8 + 0.2, '\\x00ff',"
        " '2020-03-02', 'ä€\\', '[2020-01-01Z,2020-06-01Z)', 'NaN', 1234.5, '{0.1,-0,1e30}')",
        "INSERT INTO note VALUES (2, '-infinity', '1 year -1 mon', '-infinity', '', 'infinity',"
        " E'\\x01\\t\\r\\n\\b', 'empty', 1.10, NULL, NULL)",
    )
    name = one(database, "SELECT current_database()")
    kind = 'root = "public.note"\ntime = "at"'
    opening = opening_of(database, kind)
    with connect(database) as connection:
        plain = page_of(connection, kind, opening, None, 10)
    for setting in ODD:
        execute(database, f"ALTER DATABASE {name} {setting}")
    with connect(database) as connection:
        assert page_of(connection, kind, opening, None, 10) == plain
    pins = [f"{name} = {value}" for name, value in PINS]
    select = "SELECT * FROM public.note ORDER BY at, id"
    assert rows_of(plain) == [copied(database, select, pins)]
    assert b"0.30000000000000004" in plain
    assert b"2020-03-02 01:00:00+00" in plain


def test_a_temporary_object_cannot_take_the_place_of_a_type_or_function(database: str) -> None:
    """With an empty search path pg_temp would be searched first; here it comes last."""
    execute(database, NOTE, LINE, FILL)
    opening = opening_of(database, KIND)
    with connect(database) as connection:
        plain = page_of(connection, KIND, opening, None, 10)
        connection.execute("CREATE TEMPORARY TABLE note (id integer, at timestamptz, said text)")
        connection.execute("CREATE DOMAIN pg_temp.int4 AS text")
        assert page_of(connection, KIND, opening, None, 10) == plain


def test_a_reader_shows_its_job_and_generation(notes: str) -> None:
    with (
        connect(notes) as connection,
        snapshot(connection, TABLES, name=reader_name("abc", 7), seconds=20, lock=True),
    ):
        names = rows(notes, "SELECT application_name AS name FROM pg_stat_activity")
        assert "tallystick abc 7" in [row["name"] for row in names]


def test_a_takeover_ends_the_frozen_readers_of_its_job_and_no_others(notes: str) -> None:
    """A reader that stands still in the middle of COPY keeps its snapshot against every timeout."""
    names = {
        "older": reader_name("abc", 6),
        "same": reader_name("abc", 7),
        "newer": reader_name("abc", 8),
        "other": reader_name("abd", 1),
        "stranger": "tallystick abc six",
    }
    sessions = {what: connect(notes) for what in names}
    try:
        for what, session in sessions.items():
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            session.execute(f"SET LOCAL application_name = '{names[what]}'".encode())
            session.pgconn.exec_(
                b"COPY (SELECT repeat('x', 100000) FROM generate_series(1, 1000)) TO STDOUT"
            )
        with connect(notes) as successor:
            terminate_older(successor, "abc", 7)

        def left() -> set[str]:
            text = "SELECT application_name AS name FROM pg_stat_activity"
            return {row["name"] for row in rows(notes, text)} & set(names.values())

        ends = time.monotonic() + 5
        while names["older"] in left() and time.monotonic() < ends:
            time.sleep(0.02)
        assert left() == set(names.values()) - {names["older"]}
    finally:
        for session in sessions.values():
            session.pgconn.finish()


def seen_from(
    dsn: str, act: Callable[[psycopg.Connection[Any]], object], seconds: float = 20
) -> Trouble:
    """Return the trouble that an error within a snapshot becomes."""
    with (
        connect(dsn) as connection,
        pytest.raises(Trouble) as raised,
        snapshot(connection, TABLES, name="t", seconds=seconds, lock=True),
        source_errors(),
    ):
        act(connection)
    return raised.value


def test_a_statement_that_takes_too_long_asks_for_a_smaller_page(notes: str) -> None:
    trouble = seen_from(notes, lambda connection: connection.execute("SELECT pg_sleep(9)"), 0.2)
    assert (type(trouble), trouble.params["cause"]) == (TooMuch, "timeout")


def test_a_session_that_was_ended_passes(notes: str) -> None:
    def ended(connection: psycopg.Connection[Any]) -> None:
        rows(notes, "SELECT pg_terminate_backend(%s, 5000)", connection.info.backend_pid)
        connection.execute("SELECT 1")

    assert type(seen_from(notes, ended)) is Passing


def test_a_statement_cancelled_by_somebody_passes(notes: str) -> None:
    def cancelled(connection: psycopg.Connection[Any]) -> None:
        threading.Timer(
            0.3, lambda: rows(notes, "SELECT pg_cancel_backend(%s)", connection.info.backend_pid)
        ).start()
        connection.execute("SELECT pg_sleep(9)")

    trouble = seen_from(notes, cancelled)
    assert (type(trouble), trouble.params["cause"]) == (Passing, "cancelled")


def test_a_snapshot_that_was_idle_for_too_long_passes(notes: str) -> None:
    def idle(connection: psycopg.Connection[Any]) -> None:
        connection.execute("SELECT 1")
        time.sleep(0.6)
        connection.execute("SELECT 1")

    assert type(seen_from(notes, idle, 0.2)) is Passing


@pytest.mark.parametrize(
    "said",
    [
        'FATAL:  password authentication failed for user "me"',
        "fe_sendauth: no password supplied",
        'FATAL:  role "me" does not exist',
        'FATAL:  role "me" is not permitted to log in',
        'FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "me", database "db", no encryption',
        'FATAL:  permission denied for database "db"',
    ],
)
def test_a_user_who_is_turned_away_is_a_missing_credential(said: str) -> None:
    trouble = trouble_of(psycopg.OperationalError(f"connection failed: {said}"))
    assert (type(trouble), trouble.code) == (Missing, Code.CREDENTIAL_MISSING)
    assert trouble.params["cause"] == "refused"


def test_a_host_that_is_unreachable_is_no_missing_credential() -> None:
    away = psycopg.OperationalError("connection refused")
    assert type(trouble_of(away)) is Passing


def test_no_value_of_a_row_stands_in_what_is_told_of_an_error(notes: str) -> None:
    execute(notes, "UPDATE note SET said = 'a private remark'")
    trouble = seen_from(
        notes, lambda connection: connection.execute("SELECT said::integer FROM public.note")
    )
    assert "private" not in json.dumps(trouble.params)
    assert "private" not in str(trouble)


def test_memory_stays_flat_however_many_rows_a_page_has(database: str) -> None:
    import tracemalloc

    kind = 'root = "public.note"\ntime = "at"'
    execute(
        database,
        "CREATE TABLE note (id integer PRIMARY KEY, at timestamptz, said text)",
        "INSERT INTO note SELECT i, '2020-01-01Z', repeat(md5(i::text), 30)"
        " FROM generate_series(1, 20000) AS i",
    )
    opening = opening_of(database, kind)
    from shared.archive.page import Page, batch
    from shared.chain.batch import Header
    from shared.clock import Deadline

    header = Header("job", 1, "0" * 64, None, "test")
    tables = [TableName("public", "note")]
    with (
        connect(database) as connection,
        snapshot(connection, tables, name="t", seconds=20, lock=True),
    ):
        tracemalloc.start()
        size = sum(map(len, batch(connection, opening, Page(header, 20_000, Deadline.after(20)))))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert size > 400_000
    assert peak < 5_000_000
