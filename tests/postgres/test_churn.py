"""The table of jobs under a million updates, with autovacuum as a server runs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from shared.db import embedded
from shared.db.migrate import migrate
from shared.jobs import store
from tests import worlds
from tests.conftest import TEST_PG_BIN

JOBS = 1000
ROUNDS = 500
MEBIBYTE = 1024 * 1024

# Measured with 1000 jobs of about 1.2 kB, a look for vacuums every second, on Postgres 18: table and indexes
# end at 10 MiB after a million updates with what the migrations set. With the server's defaults they end at
# 24 MiB, or are at 45 and 73 MiB after 400,000: it depends on where the vacuums fall.
LARGEST_BYTES = 16 * MEBIBYTE

FILL = f"""
INSERT INTO tallystick.job (operation, namespace_id, batch_size, page_size, max_bytes, input, opening,
                            storage_id)
SELECT 'archive', namespace.id, 10, 10, 1000000, jsonb_build_object('definition', repeat(md5(n::text), 12)),
       jsonb_build_object('shape', repeat(md5((n + 1)::text), 20)), storage_id
FROM generate_series(1, {JOBS}) AS n, tallystick.namespace, tallystick.volume
"""
# Every job at once, and otherwise the columns that the statements of a tick move.
CLAIM = """
WITH lease AS (SELECT clock_timestamp() + interval '120 s' AS ends)
UPDATE tallystick.job
SET state = 'RUNNING', owner = gen_random_uuid(), due_at = lease.ends, lease_until = lease.ends,
    error_code = NULL, error_params = NULL, errors = errors, revision = revision,
    generation = generation + 1, attempts = attempts + 1, takeovers = takeovers, page_size = page_size,
    updated_at = clock_timestamp()
FROM lease
WHERE state = 'PENDING'
"""
SETTLE = """
UPDATE tallystick.job
SET state = 'PENDING', closed_at = NULL, owner = NULL, lease_until = NULL, due_at = clock_timestamp(),
    takeovers = 0, failures = 0, error_code = NULL, error_params = NULL, page_size = page_size,
    checkpoint = jsonb_build_object('cursor', ARRAY[clock_timestamp()::text, batches::text]),
    batches = batches + 1, roots = roots + 10, bytes = bytes + 1000, reserved = 0,
    last_sha256 = repeat(md5(batches::text), 2), updated_at = clock_timestamp()
WHERE state = 'RUNNING'
"""


def moved(statement: str) -> set[str]:
    """Return the columns that the first UPDATE of jobs in a statement sets."""
    clause = re.search(
        r"UPDATE tallystick\.job\s+SET(.*?)\n\s*(?:WHERE|FROM) ", statement, re.DOTALL
    )
    assert clause is not None
    return set(re.findall(r"(?:^|,)\s*(\w+)\s+= ", re.sub(r"\([^()]*\)", "", clause[1])))


@pytest.mark.parametrize(("name", "bulk"), [("claim", CLAIM), ("settle", SETTLE)])
def test_the_bulk_moves_the_columns_that_a_tick_moves(name: str, bulk: str) -> None:
    assert moved(bulk) == moved(store._sql(name))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A server of its own, which looks for something to vacuum every second instead of every minute."""
    binaries = Path(TEST_PG_BIN) if TEST_PG_BIN else None
    dsn = embedded.start(tmp_path / "server", durable=False, binaries=binaries)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
        connection.execute("SELECT pg_reload_conf()")
    yield dsn
    embedded.stop(tmp_path / "server")


@pytest.mark.system
@pytest.mark.timeout(900)
def test_a_thousand_busy_jobs_stay_small_under_a_million_updates(server: str) -> None:
    migrate(server)
    with closing(worlds.control(server)) as control:
        worlds.a_storage_id(control)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(FILL.encode())
        updates = 0
        for _ in range(ROUNDS):
            updates += connection.execute(CLAIM).rowcount + connection.execute(SETTLE).rowcount
        size = connection.execute("SELECT pg_total_relation_size('tallystick.job')").fetchone()
    assert updates == 2 * JOBS * ROUNDS
    assert size is not None
    assert size[0] < LARGEST_BYTES
