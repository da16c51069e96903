"""What a claim costs beside a hundred closed jobs, and beside a million."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from psycopg.conninfo import make_conninfo

from shared.db.connect import Database, connect
from shared.db.migrate import migrate
from shared.jobs import store
from shared.jobs.model import Claim
from tests import worlds

FEW, MANY = 100, 1_000_000
ROUNDS = 300

CLOSED = """
    INSERT INTO tallystick.job (operation, namespace_id, storage_id, batch_size, page_size, max_bytes, input,
                                state, closed_at, due_at)
    SELECT 'archive', namespace.id, %(storage_id)s, 1, 1, 1048576, '{}', 'SUCCEEDED', now(),
           now() - n * interval '1 second'
    FROM tallystick.namespace, generate_series(1, %(jobs)s) AS n
"""
GIVE_BACK = """
    UPDATE tallystick.job SET state = 'PENDING', owner = NULL, lease_until = NULL, due_at = clock_timestamp()
    WHERE state = 'RUNNING'
"""


def measure(server: str, _home: Path) -> Iterator[str]:
    """Claim one job again and again, in turn beside few closed jobs and beside many."""
    with closing(_database(server, FEW)) as few, closing(_database(server, MANY)) as many:
        seconds: dict[int, list[float]] = {FEW: [], MANY: []}
        searches = {FEW: _search(few), MANY: _search(many)}
        for _ in range(ROUNDS):
            for jobs, control in ((FEW, few), (MANY, many)):
                seconds[jobs].append(_claim(control, searches[jobs]))
        medians = {jobs: statistics.median(found) for jobs, found in seconds.items()}
    for jobs, median in medians.items():
        yield f"{jobs} closed jobs: {median * 1000:.2f} ms (median of {ROUNDS})"
    yield f"ratio {medians[MANY] / medians[FEW]:.2f} (at most 1.3 is wanted)"


def _database(server: str, jobs: int) -> Database:
    name = f"bench_claim_{jobs}"
    with connect(server) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    dsn = make_conninfo(server, dbname=name)
    migrate(dsn)
    with closing(worlds.control(dsn, seconds=600)) as control:
        storage_id = worlds.a_storage_id(control)
        worlds.a_job(control, storage_id=storage_id)
    with connect(dsn) as connection:
        connection.execute(CLOSED, {"storage_id": storage_id, "jobs": jobs})
        connection.execute("VACUUM ANALYZE tallystick.job")
    return worlds.control(dsn, seconds=3600)


def _search(control: Database) -> store.Search:
    found = control.transact("SELECT storage_id FROM tallystick.volume", {})
    return store.Search(("archive",), found[0]["storage_id"], lease_seconds=120)


def _claim(control: Database, search: store.Search) -> float:
    began = time.perf_counter()
    claimed = store.claim(control, search)
    spent = time.perf_counter() - began
    assert isinstance(claimed, Claim)
    control.transact(GIVE_BACK, {})
    return spent
