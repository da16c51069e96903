"""Brings the schema up to date: numbered files, each in a transaction, with recorded digests."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files

import psycopg

from shared.db.connect import (
    Dsn,
    Row,
    cause_of,
    connect,
    refuse,
    refuse_connecting,
    refuse_pooling,
    was_lost,
)
from shared.db.ours import doubts
from shared.db.pins import CONTROL, pinned
from shared.errors import Code, Passing, Refused

# One number for all invocations that migrate the same database; any constant would do.
# A migration takes as long as it takes, whatever limit the role has for its own work.
PINS = (*CONTROL, ("statement_timeout", "0"), ("idle_in_transaction_session_timeout", "0"))

LOCK_KEY = 0x7A11_57C4
COLUMNS = (
    "version integer NOT NULL",
    "name text NOT NULL",
    "digest text NOT NULL",
    "applied_at timestamp with time zone NOT NULL",
)


@dataclass(frozen=True)
class Migration:
    """One numbered file of ``shared/db/migrations``."""

    version: int
    name: str
    text: str

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the text, recorded when it is applied."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class Schema:
    """Where a database stands: the versions it has and those it still needs."""

    applied: tuple[int, ...]
    pending: tuple[int, ...]

    @property
    def problem(self) -> Refused | None:
        """Return why this program cannot work with it (nothing there, something lacking), or None."""
        if not self.applied:
            return Refused(Code.SCHEMA_MISSING)
        if self.pending:
            return Refused(Code.SCHEMA_OLDER, pending=list(self.pending))
        return None


def migrations() -> tuple[Migration, ...]:
    """Return every migration this version of the program has, in order."""
    found = [
        Migration(int(match[1]), match[2], entry.read_text("utf-8"))
        for entry in (files("shared.db") / "migrations").iterdir()
        if (match := re.fullmatch(r"(\d{4})_([a-z0-9_]+)\.sql", entry.name))
    ]
    return tuple(sorted(found, key=lambda migration: migration.version))


def check(dsn: Dsn) -> Schema:
    """Say what the database has and lacks, changing nothing.

    Raises ``Refused`` for a schema newer than this program or a migration whose text was altered.
    """
    with _connected(dsn) as connection:
        present = connection.execute(
            "SELECT to_regclass('tallystick.migration') AS found"
        ).fetchone()
        known = _applied(connection) if present and present["found"] else {}
    return compare(known)


def migrate(dsn: Dsn) -> tuple[int, ...]:
    """Apply what is missing and return the versions applied; safe when two run at once.

    Each file is one transaction under a transaction-level lock, so a crash leaves whole versions
    behind and the second of two processes finds the work done. Raises ``Refused`` as ``check`` does, and
    for a schema that somebody else owns.
    """
    done = []
    with _connected(dsn) as connection:
        with connection.transaction():
            _lock(connection)
            # Not IF NOT EXISTS: that asks for the right to create one even where there is one.
            if not _has_schema(connection):
                connection.execute("CREATE SCHEMA tallystick")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS tallystick.migration (version integer PRIMARY KEY, name text"
                " NOT NULL, digest text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
            )
            _check_owner(connection)
        for migration in migrations():
            with connection.transaction():
                _lock(connection)
                if migration.version in compare(_applied(connection)).pending:
                    connection.execute(migration.text.encode())
                    connection.execute(
                        "INSERT INTO tallystick.migration (version, name, digest) VALUES (%s, %s, %s)",
                        (migration.version, migration.name, migration.digest),
                    )
                    done.append(migration.version)
    return tuple(done)


@contextmanager
def _connected(dsn: Dsn) -> Iterator[psycopg.Connection[Row]]:
    """Open a connection; what the server then refuses, or a connection that breaks, is told by its code."""
    try:
        connection = connect(dsn)
    except psycopg.Error as error:
        refuse_connecting(error)
        raise Passing(Code.DATABASE_UNAVAILABLE, cause=cause_of(error)) from None
    # Whatever the database defaults to: with a snapshot older than its lock, the second of two processes
    # would not see the work of the first.
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    connection.read_only = False
    with connection:
        try:
            yield connection
        except psycopg.Error as error:
            refuse_pooling(error)
            refuse(error)
            if was_lost(error):
                raise Passing(Code.DATABASE_UNAVAILABLE, cause=cause_of(error)) from error
            raise


def _has_schema(connection: psycopg.Connection[Row]) -> bool:
    found = connection.execute("SELECT to_regnamespace('tallystick') AS found").fetchone()
    return found is not None and found["found"] is not None


def _check_owner(connection: psycopg.Connection[Row]) -> None:
    """Refuse a schema that was there and is a stranger's, or has a trigger, before a row is written.

    Whoever may create schemas in the database could have made it: what they put there would run with the
    rights of whoever migrates, and they could put other tables in the place of ours at any time.
    """
    found = doubts(connection, "tallystick", "migration", COLUMNS)
    if found:
        doubt = found[0]
        params = {"fault": str(doubt.fault), "names": list(doubt.names)}
        raise Refused(Code.SCHEMA_UNTRUSTED, **params)


def _lock(connection: psycopg.Connection[Row]) -> None:
    connection.execute("; ".join(pinned(connection, PINS)).encode())
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_KEY,))


def _applied(connection: psycopg.Connection[Row]) -> dict[int, str]:
    rows = connection.execute("SELECT version, digest FROM tallystick.migration").fetchall()
    return {int(str(row["version"])): str(row["digest"]) for row in rows}


def compare(applied: dict[int, str]) -> Schema:
    """Hold the digests a database recorded, by version, against this program's migrations.

    Raises ``Refused`` as ``check`` does.
    """
    ours = {migration.version: migration for migration in migrations()}
    if newer := sorted(set(applied) - set(ours)):
        raise Refused(Code.SCHEMA_NEWER, database=newer[-1], program=max(ours))
    for version, digest in applied.items():
        if ours[version].digest != digest:
            raise Refused(Code.MIGRATION_ALTERED, version=version, name=ours[version].name)
    return Schema(applied=tuple(sorted(applied)), pending=tuple(sorted(set(ours) - set(applied))))
