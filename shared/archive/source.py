"""The database that rows are read from: short read-only snapshots, and what its errors mean for a job."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from shared.catalog.facts import Facts, inspected
from shared.chain.batch import PINS
from shared.db import reaching
from shared.db.connect import CONNECT_SECONDS, cause_of, connect, still_there, turned_away, was_lost
from shared.db.pins import STATEMENTS, pinned
from shared.db.statement import statement
from shared.errors import Code, Missing, Passing, Refused, TooMuch, Trouble, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shared.catalog.names import TableName
    from shared.db.connect import Dsn, Row

LOCK_SECONDS = 5

BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

# Where the connection string of a source is set.
SETTING = "TALLYSTICK_SOURCE_URL (or TALLYSTICK_DATABASE_URL)"

# What SQLSTATEs mean for a job: how it goes on, and the cause that is told.
MEANING: dict[str, tuple[type[Trouble], str]] = {
    "40001": (Passing, "recovery-conflict"),
    "40P01": (Passing, "recovery-conflict"),
    "40": (Passing, "recovery-conflict"),
    "72": (Passing, "recovery-conflict"),
    "55P03": (Passing, "lock-timeout"),
    "25P03": (Passing, "unreachable"),
    # A pooler ended the session, or gave a wait up.
    "08P01": (Passing, "unreachable"),
    "57014": (TooMuch, "timeout"),
    "25P04": (TooMuch, "timeout"),
    # Values it cannot print, and rows too large for it: a shorter page may get past them.
    "54000": (TooMuch, "unprintable"),
    "22021": (TooMuch, "unprintable"),
    "22P05": (TooMuch, "unprintable"),
    # Its shared table of locks is full, or other work took its memory.
    "53200": (Passing, "out-of-memory"),
    "53400": (Verdict, "server-limit"),
    "54001": (Verdict, "server-limit"),
    "53": (Passing, "overloaded"),
    "42501": (Verdict, "not-granted"),
    "42P01": (Verdict, "table-missing"),
    "42703": (Verdict, "column-missing"),
    "3F000": (Verdict, "schema-missing"),
    "55000": (Passing, "not-ready"),
    "55006": (Passing, "not-ready"),
    "58": (Passing, "server-storage"),
    "XX001": (Verdict, "damaged"),
    "XX002": (Verdict, "damaged"),
    "XX": (Verdict, "server-fault"),
    "P0": (Verdict, "raised"),
}
# What the server says of data errors may quote a value of a row, which no job or log may hold.
DATA = "22"
GONE = frozenset({"table-missing", "column-missing", "schema-missing"})
# The same SQLSTATE, told apart by what the server says.
SAID: tuple[tuple[str, type[Trouble], str], ...] = (
    # A row whose text is longer than a message may be: nothing is wrong with the server.
    ("invalid memory alloc request size", TooMuch, "unprintable"),
    ("string buffer exceeds maximum allowed length", TooMuch, "unprintable"),
    ("out of shared memory", Passing, "lock-table-full"),
    ("row-level security", Verdict, "row-security"),
    ("due to user request", Passing, "cancelled"),
)


class SourceConnection:
    """The one connection of this invocation to a source, opened when first needed."""

    def __init__(self, dsn: Dsn, seconds: int = CONNECT_SECONDS) -> None:
        """Remember where to connect and how long to wait for it; nothing is opened yet."""
        self._dsn = dsn
        self._seconds = seconds
        self._connection: psycopg.Connection[Row] | None = None

    def open(self) -> psycopg.Connection[Row]:
        """Return the connection; raises ``Missing`` without credentials, ``Passing`` if unreachable."""
        if self._connection is not None and not still_there(self._connection):
            self.close()
        if self._connection is None:
            with source_errors(), credential_errors():
                self._connection = connect(self._dsn, self._seconds)
        return self._connection

    def close(self) -> None:
        """Close the connection if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def source_errors(**params: object) -> Iterator[None]:
    """Turn what the source's server says into a trouble of the job."""
    try:
        yield
    except psycopg.Error as error:
        # Without a SQLSTATE it is libpq that speaks, which may quote what it was given as a password.
        raise trouble_of(error, **params) from (error if error.sqlstate else None)


@contextmanager
def credential_errors() -> Iterator[None]:
    """Turn what keeps a credential of the source from being fetched into a trouble of the job."""
    try:
        yield
    except Refused as refused:
        params = dict(refused.params) | {
            "cause": str(refused.code),
            "why": refused.params.get("cause"),
        }
        raise Missing(Code.CREDENTIAL_MISSING, **params) from refused
    except Passing as passing:
        params = dict(passing.params) | {"cause": str(passing.code)}
        raise Passing(Code.EXPORT_FAILED, **params) from passing


def trouble_of(error: psycopg.Error, **params: object) -> Trouble:
    """Say what an error of the source means for the job; the server's words go along, bounded."""
    state, text = error.sqlstate or "", str(error)
    detail = dict(params)
    if not state.startswith(DATA):
        detail["detail"] = cause_of(error)
    if turned_away(error):
        return _trouble(Missing, "refused", detail)
    if found := reaching.obstacle(error):
        kind: type[Trouble] = Missing if found.configured else Passing
        return _trouble(kind, found.cause, detail | {"detail": found.detail, "setting": SETTING})
    for words, kind, cause in SAID:
        if words in text:
            return _trouble(kind, cause, detail)
    if was_lost(error):
        return _trouble(Passing, "unreachable", detail)
    kind, cause = MEANING.get(state) or MEANING.get(state[:2]) or (Verdict, "refused-by-server")
    return _trouble(kind, cause, detail | {"sqlstate": state})


def _trouble(kind: type[Trouble], cause: str, detail: dict[str, object]) -> Trouble:
    code = Code.CREDENTIAL_MISSING if kind is Missing else Code.EXPORT_FAILED
    return kind(code, cause=cause, **detail)


@contextmanager
def snapshot(
    connection: psycopg.Connection[Row],
    tables: Sequence[TableName],
    *,
    name: str,
    seconds: float,
    lock: bool,
) -> Iterator[list[Facts]]:
    """Open one read-only snapshot of the source and yield what its catalog says of ``tables``.

    The order of its statements is a rule: the tables are locked before anything takes the snapshot,
    because a table rewritten between the two would read as empty, without an error. So nothing that
    selects may come before the locks, not even a function that sets a setting. ``name`` shows in
    ``pg_stat_activity``; ``seconds`` bounds each statement. Everything up to the catalog query is one
    round trip.
    """
    with source_errors():
        try:
            yield _begin(connection, tables, name=name, seconds=seconds, lock=lock)
        finally:
            _end(connection)


def terminate_older(connection: psycopg.Connection[Row], job: str, generation: int) -> None:
    """End the snapshots that earlier holders of a job may have left open, frozen in the middle of a read."""
    with source_errors():
        connection.execute(
            statement("shared.archive", "terminate_older"), {"job": job, "generation": generation}
        )


def reader_name(job: str, generation: int) -> str:
    """Return the name under which a holder reads, so that its successor can find and end it."""
    return f"tallystick {job} {generation}"


def _begin(
    connection: psycopg.Connection[Row],
    tables: Sequence[TableName],
    *,
    name: str,
    seconds: float,
    lock: bool,
) -> list[Facts]:
    milliseconds = max(1, int(seconds * 1000))
    pins = {
        **dict(PINS),
        **dict(STATEMENTS),
        "statement_timeout": str(milliseconds),
        "lock_timeout": str(min(milliseconds, LOCK_SECONDS * 1000)),
        "idle_in_transaction_session_timeout": str(milliseconds),
        # Compiling a statement takes longer than the few milliseconds that each of these runs for.
        "jit": "off",
        "application_name": sql.Literal(name).as_string(None),
    }
    with connection.pipeline():
        connection.execute(BEGIN)
        for each in pinned(connection, pins.items()):
            connection.execute(each)
        if lock:
            listed = sql.SQL(", ").join(
                sql.Identifier(table.schema, table.name) for table in tables
            )
            connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(listed))
        damage = connection.execute(statement("shared.archive", "damage_passed_over"))
        facts = inspected(connection, tables)
    passed_over = [name for row in damage for name in row["settings"]]
    if passed_over:
        raise Verdict(Code.EXPORT_FAILED, cause="damage-passed-over", settings=passed_over)
    return facts


def _end(connection: psycopg.Connection[Row]) -> None:
    """Let the snapshot go; a connection that cannot even do that is closed."""
    try:
        connection.execute("ROLLBACK")
    except psycopg.Error:
        connection.close()
