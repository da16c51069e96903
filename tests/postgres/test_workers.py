"""The server's own workers bring rows in as well: an apply worker, a job that an extension runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from shared.archive import opening, window
from shared.archive.shape import Opening
from shared.db.connect import connect
from tests.crash.cluster import Cluster, running
from tests.operations.stage import GATE, wait_for
from tests.postgres.reading import definition_of, execute, opening_of, paged, up_to_now
from tests.worlds import one, without

pytestmark = pytest.mark.system

KIND = 'root = "public.note"\ntime = "at"'
NOTE = "CREATE TABLE note (id integer PRIMARY KEY, at timestamptz)"
# Rows are stamped when they arrive, and their transaction stands still until it is let go on.
STAMPED = f"""
    CREATE FUNCTION stamped() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN new.at := now(); PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN new; END'"""
STAMP = "CREATE TRIGGER stamp BEFORE INSERT ON note FOR EACH ROW EXECUTE FUNCTION stamped()"
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event = 'advisory' AND backend_type <> 'client backend'"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="tallystick-") as name, running(Path(name)) as started:
        execute(started.dsn, "ALTER SYSTEM SET wal_level = logical")
        started.restart()
        yield started


@contextmanager
def applying(cluster: Cluster) -> Iterator[str]:
    """Yield the URL of a database in which an apply worker stands in the middle of a transaction."""
    execute(cluster.dsn, "CREATE DATABASE there", "CREATE DATABASE here")
    there, here = (make_conninfo(cluster.dsn, dbname=name) for name in ("there", "here"))
    slot = "SELECT pg_create_logical_replication_slot('feed', 'pgoutput')"
    execute(there, NOTE, "CREATE PUBLICATION feed FOR TABLE note", slot)
    options = "create_slot = false, copy_data = false"
    feed = f"CREATE SUBSCRIPTION feed CONNECTION '{there}' PUBLICATION feed WITH ({options})"
    execute(here, NOTE, STAMPED, STAMP, "ALTER TABLE note ENABLE ALWAYS TRIGGER stamp", feed)
    with psycopg.connect(here, autocommit=True) as holder:
        holder.execute(f"SELECT pg_advisory_lock({GATE})".encode())
        execute(there, "INSERT INTO note VALUES (1, NULL)")
        wait_for(lambda: one(here, WAITING))
        yield here
    wait_for(lambda: one(here, "SELECT count(*) FROM note WHERE id = 1"))


def window_up_to_now(dsn: str) -> Opening:
    """Return a window that asks for everything there is, as a job's first look ends it."""
    with up_to_now(), connect(dsn) as connection:
        return opening.opened(
            connection,
            opening_of(dsn, KIND).shape,
            definition_of(KIND),
            cutoff_at=one(dsn, "SELECT now()::text"),
            namespace_value=None,
        )


def test_a_window_ends_before_the_transaction_of_a_worker_as_before_a_clients(
    cluster: Cluster,
) -> None:
    with applying(cluster) as here:
        found = window_up_to_now(here)
        with without(
            window,
            "window",
            "backend_type IS DISTINCT FROM 'autovacuum worker'",
            "backend_type = 'client backend'",
        ):
            too_wide = window_up_to_now(here)
        assert paged(here, too_wide, 10) == []
    # Both windows are over; what the next one begins with comes after them.
    assert paged(here, too_wide, 10) != []
    assert paged(here, found, 10) == []
    assert paged(here, replace(found, cutoff="2999-01-01 00:00:00+00"), 10) != []
