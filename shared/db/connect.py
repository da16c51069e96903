"""One connection to one database for one invocation, and the short transactions that run on it."""

from __future__ import annotations

import random
import select
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import dict_row

from shared.db import reaching
from shared.db.pins import CONTROL, pinned
from shared.db.times import IsoLoader
from shared.errors import Code, Passing, Refused, Uncertain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from shared.clock import Deadline

Row = dict[str, Any]

# Long for a handshake, short against a deadline of 45: an unreachable server costs one tick.
CONNECT_SECONDS = 5
# A peer that vanished is noticed by TCP in this time; statement_timeout needs a server to keep it.
SILENCE_SECONDS = 10
# Control statements touch a handful of rows by index; none may queue longer than this.
STATEMENT_SECONDS = 10
LOCK_SECONDS = 5
RETRIES = 4
CAUSE_MAX_CHARS = 200
RETRY_SECONDS = 0.05
# Between what a server says as it ends a session and the end itself.
FAREWELL_SECONDS = 0.05

# A standby, which may be promoted in a moment.
READ_ONLY = frozenset({"25006", "0A000"})
# The server itself is in need, whatever was asked of it.
IN_NEED = {
    "53200": "out-of-memory",
    "53400": "server-limit",
    "53": "overloaded",
    "54001": "server-limit",
    "55000": "not-ready",
    "58": "server-storage",
    "XX001": "damaged",
    "XX002": "damaged",
    "XX": "server-fault",
}
UNFIT = frozenset({"damaged", "server-fault", "server-limit"})
# The transaction was rolled back for certain and may succeed when repeated.
ROLLED_BACK = frozenset({"25P03", "40001", "40P01", "55P03", "57014"})
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
# Where the connection string of the control database is set.
SETTING = "TALLYSTICK_DATABASE_URL"

PINS = (
    *CONTROL,
    ("statement_timeout", f"'{STATEMENT_SECONDS}s'"),
    ("lock_timeout", f"'{LOCK_SECONDS}s'"),
    ("idle_in_transaction_session_timeout", f"'{STATEMENT_SECONDS}s'"),
    ("synchronous_commit", "on"),
)


@dataclass(frozen=True)
class Credentialed:
    """A connection string whose credential somebody else keeps, and may change at any time.

    ``fetch`` returns the whole string. Given the one that a server just refused it returns another, or the
    same where there is none.
    """

    # Out of tracebacks: what it was made with may be a secret.
    fetch: Callable[[str | None], str] = field(repr=False)


Dsn = str | Credentialed


def connect(dsn: Dsn, seconds: int = CONNECT_SECONDS) -> psycopg.Connection[Row]:
    """Open a connection that leaves no state behind, so that transaction poolers may stand in front.

    ``seconds`` bounds the wait for each host. Nothing is prepared by name, no session setting is made, and
    a dead peer is noticed. A credential that is refused may have been changed a moment ago: it is fetched
    once more, and tried if it is another.
    Raises ``psycopg.Error`` as libpq reports it, ``Refused`` or ``Passing`` as fetching a credential does.
    """
    if isinstance(dsn, str):
        return _connected(dsn, seconds)
    first = dsn.fetch(None)
    try:
        return _connected(first, seconds)
    except psycopg.Error as error:
        second = dsn.fetch(first) if turned_away(error) else first
        if second == first:
            raise
    return _connected(second, seconds)


def _connected(dsn: str, seconds: int) -> psycopg.Connection[Row]:
    connection = psycopg.connect(
        dsn,
        autocommit=True,
        prepare_threshold=None,
        row_factory=dict_row,
        client_encoding="utf8",
        connect_timeout=seconds,
        tcp_user_timeout=SILENCE_SECONDS * 1000,
        keepalives_idle=SILENCE_SECONDS,
        keepalives_interval=SILENCE_SECONDS // 3,
        keepalives_count=3,
        gssencmode="disable",
    )
    connection.adapters.register_loader("timestamptz", IsoLoader)
    return connection


def still_there(connection: psycopg.Connection[Row]) -> bool:
    """Tell whether an idle connection has not been ended from the other side meanwhile; asks nobody.

    A server or pooler that ends sessions which rest for too long (``idle_session_timeout``) has said so by
    now: what it said waits to be read. A statement sent there would be lost without a trace.
    """
    try:
        # Nothing to read: nothing happened. Else the end of the session may still be on its way.
        wait = 0.0
        while not connection.closed and select.select([connection.fileno()], [], [], wait)[0]:
            connection.pgconn.consume_input()
            connection.pgconn.is_busy()
            wait = FAREWELL_SECONDS
    except psycopg.OperationalError:
        return False
    return not connection.closed


def was_lost(error: psycopg.Error) -> bool:
    """Tell whether the connection broke, so that nobody knows what became of the last statement.

    A result that libpq made itself, since the server's never came, has no SQLSTATE: psycopg finds no closer
    class for it than the one of all errors of databases.
    """
    state = error.sqlstate or ""
    operational = isinstance(error, psycopg.OperationalError)
    nameless = type(error) is psycopg.DatabaseError
    return (operational or nameless) and (not state or state.startswith(("08", "57P")))


def turned_away(error: psycopg.Error) -> bool:
    """Tell whether the server does not let this user in, so that trying again would not help."""
    if state := error.sqlstate:
        return state.startswith("28")
    return isinstance(error, psycopg.OperationalError) and bool(
        reaching.TURNED_AWAY.search(str(error))
    )


class Database:
    """The connection of this invocation to one database, opened when first needed.

    A broken connection is thrown away and the next statement opens another. A transaction that was
    rolled back for a passing reason is repeated a few times, with jitter, within the deadline.
    """

    def __init__(self, dsn: Dsn, deadline: Deadline, retries: int = RETRIES) -> None:
        """Remember where to connect and how often to repeat; nothing is opened yet."""
        self._dsn = dsn
        self._deadline = deadline
        self._retries = retries
        self._connection: psycopg.Connection[Row] | None = None

    def transact(
        self,
        statement: str,
        params: Mapping[str, object],
        *,
        repeatable: bool = False,
        first: Sequence[str] = (),
    ) -> list[Row]:
        """Run one statement as one transaction in one round trip and return its rows.

        ``first`` are statements of the same transaction that come before it, with the same parameters:
        settings that hold for it, locks that it waits for and then looks anew.
        ``repeatable`` says that running the statement twice is the same as once, so a lost
        connection is answered by running it again. Raises ``Passing`` when the database cannot be
        reached or stays contended, ``Uncertain`` when the answer to a statement that is not
        repeatable was lost, and ``psycopg.Error`` for everything that repeating cannot help.
        """
        for attempt in range(self._retries + 1):
            last = attempt == self._retries or self._deadline.passed()
            connection = self._open(last=last)
            if connection is None:
                continue
            try:
                return _one_round_trip(
                    connection, (*pinned(connection, PINS), *first), statement, params
                )
            except psycopg.Error as error:
                refuse_pooling(error)
                lost = was_lost(error)
                if lost:
                    self.close()
                else:
                    _roll_back(connection)
                if lost and not repeatable:
                    raise Uncertain(Code.OUTCOME_UNKNOWN) from error
                if not lost and error.sqlstate not in ROLLED_BACK:
                    refuse(error)
                    raise
                if last:
                    raise Passing(Code.DATABASE_UNAVAILABLE, cause=cause_of(error)) from error
            _pause(attempt)
        raise Passing(Code.DATABASE_UNAVAILABLE, cause="retries-used-up")

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Row]]:
        """Open a control transaction of several statements; commits at the end, rolls back on error."""
        connection = self._open(last=True)
        assert connection is not None  # noqa: S101 - _open(last=True) returns or raises
        try:
            connection.execute("; ".join((BEGIN, *pinned(connection, PINS))))
            yield connection
            connection.execute("COMMIT")
        except psycopg.Error as error:
            refuse_pooling(error)
            if was_lost(error):
                self.close()
                raise Uncertain(Code.OUTCOME_UNKNOWN) from error
            _roll_back(connection)
            if error.sqlstate in ROLLED_BACK:
                raise Passing(Code.DATABASE_UNAVAILABLE, cause=cause_of(error)) from error
            refuse(error)
            raise
        except BaseException:
            _roll_back(connection)
            raise

    def close(self) -> None:
        """Close the connection if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self, *, last: bool) -> psycopg.Connection[Row] | None:
        if self._connection is not None:
            if still_there(self._connection):
                return self._connection
            self.close()
        try:
            self._connection = connect(self._dsn)
        except psycopg.Error as error:
            if last or not _may_pass(error):
                refuse_connecting(error)
                raise Passing(Code.DATABASE_UNAVAILABLE, cause=cause_of(error)) from None
            _pause(1)
            return None
        return self._connection


def cause_of(error: psycopg.Error) -> str:
    """Return what the server said, or why libpq could not reach it; one bounded line, no secrets."""
    if text := error.diag.message_primary:
        return text.strip()[:CAUSE_MAX_CHARS]
    return reaching.said(error)


def refuse_connecting(error: psycopg.Error) -> None:
    """Raise ``Refused`` or ``Passing`` where no session began for a reason that has words of its own.

    What libpq quotes of a string that it cannot read may be the password, so its error goes no further.
    """
    if turned_away(error):
        raise Refused(Code.DATABASE_REFUSED, cause="refused", detail=cause_of(error)) from None
    if found := reaching.obstacle(error):
        params = {"cause": found.cause, "detail": found.detail, "setting": SETTING}
        if found.configured:
            raise Refused(Code.DATABASE_REFUSED, **params) from None
        raise Passing(Code.DATABASE_UNAVAILABLE, **params) from None


def refuse(error: psycopg.Error) -> None:
    """Raise ``Refused`` or ``Passing`` where the server will not do for us what others may ask of it."""
    state = error.sqlstate or ""
    if turned_away(error):
        raise Refused(Code.DATABASE_REFUSED, cause="refused", detail=cause_of(error)) from error
    if state == "42501":
        raise Refused(Code.DATABASE_REFUSED, cause="not-granted", detail=cause_of(error)) from error
    if state in READ_ONLY:
        raise Passing(Code.DATABASE_UNAVAILABLE, cause="read-only") from error
    if cause := IN_NEED.get(state) or IN_NEED.get(state[:2]):
        cause = "lock-table-full" if "out of shared memory" in str(error) else cause
        params = {"cause": cause, "detail": cause_of(error), "sqlstate": state}
        if cause in UNFIT:
            raise Refused(Code.DATABASE_REFUSED, **params) from error
        raise Passing(Code.DATABASE_UNAVAILABLE, **params) from error


def _one_round_trip(
    connection: psycopg.Connection[Row],
    first: Sequence[str],
    statement: str,
    params: Mapping[str, object],
) -> list[Row]:
    """Run a whole transaction as one message: the server begins when it has all of it.

    So there is no instant at which a process that is stopped has changed a row and not yet said COMMIT:
    the row would stay locked for as long as the process stands still, since no timeout of the server
    runs between two messages of a pipeline. Parameters become literals here, since only a message
    without parameters may hold several statements.
    """
    message = ";\n".join((BEGIN, *first, statement, "COMMIT"))
    with psycopg.ClientCursor(connection, row_factory=dict_row) as cursor:
        cursor.execute(message.encode(), params)
        for _ in (BEGIN, *first):
            cursor.nextset()
        return cursor.fetchall() if cursor.description else []


def refuse_pooling(error: psycopg.Error) -> None:
    """Say what a pooler in between has against it: then no server has seen the statement."""
    found = reaching.obstacle(error) if error.sqlstate in reaching.OF_POOLERS else None
    if found is not None and found.cause in {"pool-mode", "pool-exhausted"}:
        refuse_connecting(error)


def _may_pass(error: psycopg.Error) -> bool:
    found = reaching.obstacle(error)
    return not turned_away(error) and (found is None or not found.configured)


def _roll_back(connection: psycopg.Connection[Row]) -> None:
    try:
        connection.execute("ROLLBACK")
    except psycopg.Error:
        connection.close()


def _pause(attempt: int) -> None:
    time.sleep(RETRY_SECONDS * 2**attempt * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
