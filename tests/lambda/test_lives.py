"""What a process of the platform lives through: frozen, thawed, killed, doubled, used a thousand times."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.golden.scenario import Shell
from tests.runtime.environment import Answer, Platform
from tests.worlds import one, rows

SCHEDULED = {"scheduled_time": "2026-11-30T12:00:00Z"}
UNITS = "SELECT array_agg(seq ORDER BY seq) FROM tallystick.unit"
OTHERS = (
    "FROM pg_stat_activity WHERE datname = current_database()"
    " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)
SESSIONS = f"SELECT count(*) {OTHERS}"
END_SESSIONS = f"SELECT pg_terminate_backend(pid) {OTHERS}"
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'app.orders'::regclass"
WARM_TICKS = 1000
GROWTH_MAX_BYTES = 4 * 1024 * 1024


def open_files(pid: int) -> list[str]:
    return sorted(str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir())


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def in_mid_batch(platform: Platform, database: str) -> Iterator[Future[Answer]]:
    """Have an invocation stand still in the middle of its batch, until its process is told to go on."""
    with ThreadPoolExecutor() as pool:
        with psycopg.connect(database) as holder:
            holder.execute("LOCK TABLE app.orders IN ACCESS EXCLUSIVE MODE")
            invoked = pool.submit(platform.invoke, SCHEDULED)
            while not one(database, WAITING):
                assert not invoked.done(), invoked.result()
                time.sleep(0.01)
            platform.environments[-1].send(signal.SIGSTOP)
        yield invoked


def lease_over(database: str) -> None:
    ended = "statement_timestamp() - interval '1 ms'"
    rows(database, f"UPDATE tallystick.job SET due_at = {ended}, lease_until = {ended}")


def make_due(database: str) -> None:
    rows(database, "UPDATE tallystick.job SET due_at = clock_timestamp() WHERE state = 'PENDING'")


def test_nothing_is_held_while_frozen(archive: Platform, database: str, volume_root: Path) -> None:
    archive.invoke(SCHEDULED)
    pid = archive.environments[0].process.pid
    assert one(database, SESSIONS) == 0
    assert [name for name in open_files(pid) if name.startswith(str(volume_root))] == []


def test_a_database_that_closed_everything_meanwhile_is_not_missed(
    archive: Platform, database: str
) -> None:
    archive.invoke(SCHEDULED)
    rows(database, END_SESSIONS)
    told = archive.invoke(SCHEDULED).payload
    assert (told["outcome"], told["seq"]) == ("progressed", 2)
    assert len(archive.environments) == 1


def test_a_mount_that_is_missing_once_costs_one_tick(
    archive: Platform, volume_root: Path, database: str
) -> None:
    archive.invoke(SCHEDULED)
    away = volume_root.rename(volume_root.with_name("away"))
    missing = archive.invoke(SCHEDULED)
    assert (missing.error, missing.payload["code"]) == (None, "STORAGE_UNAVAILABLE")
    away.rename(volume_root)
    assert archive.invoke(SCHEDULED).payload["seq"] == 2
    assert one(database, UNITS) == [1, 2]


def test_an_event_delivered_twice_does_no_unit_twice(archive: Platform, database: str) -> None:
    for _ in range(3):
        archive.invoke(SCHEDULED)
        archive.invoke(SCHEDULED)
    assert one(database, UNITS) == [1, 2, 3]


def test_overlapping_events_do_one_unit_and_the_second_says_who_is_at_it(
    archive: Platform, database: str
) -> None:
    with in_mid_batch(archive, database) as first:
        second = archive.invoke(SCHEDULED)
        assert (second.error, second.payload["outcome"]) == (None, "waiting")
        assert second.payload["code"] == "STORAGE_BUSY"
        archive.environments[0].send(signal.SIGCONT)
    assert first.result().payload["seq"] == 1
    assert one(database, UNITS) == [1]
    assert len(archive.environments) == 2


def test_killed_in_mid_batch_costs_its_lease_and_nothing_else(
    archive: Platform, database: str
) -> None:
    with in_mid_batch(archive, database) as killed:
        archive.environments[0].send(signal.SIGKILL)
    assert killed.result().error == "Runtime.ExitError"
    assert archive.invoke(SCHEDULED).payload["outcome"] == "idle"
    lease_over(database)
    told = archive.invoke(SCHEDULED)
    assert (told.payload["outcome"], told.payload["reclaimed"]) == ("progressed", True)
    assert told.ticks[0]["generation"] == 2
    assert one(database, UNITS) == [1]


def test_thawed_in_mid_batch_after_its_lease_it_records_nothing_and_the_chain_stays_whole(
    shell: Shell, archive: Platform, database: str
) -> None:
    with in_mid_batch(archive, database) as thawed:
        rows(database, END_SESSIONS)
        lease_over(database)
        archive.environments[0].send(signal.SIGCONT)
    told = thawed.result()
    assert told.error is None
    assert told.payload["outcome"] in {"stale", "uncertain", "waiting"}
    assert one(database, UNITS) is None
    make_due(database)
    outcomes = [archive.invoke(SCHEDULED).payload["outcome"] for _ in range(4)]
    assert outcomes == ["progressed", "progressed", "finished", "idle"]
    assert len(archive.environments) == 1
    assert shell("archive", "verify", "--all").code == 0


@pytest.mark.system
@pytest.mark.timeout(300)
def test_a_thousand_warm_ticks_leave_nothing_behind(archive: Platform, database: str) -> None:
    for _ in range(WARM_TICKS // 5):
        archive.invoke(SCHEDULED)
    pid = archive.environments[0].process.pid
    memory, files = resident_bytes(pid), open_files(pid)
    for _ in range(WARM_TICKS * 4 // 5):
        assert archive.invoke(SCHEDULED).payload["outcome"] == "idle"
    assert len(archive.environments) == 1
    assert resident_bytes(pid) - memory < GROWTH_MAX_BYTES
    assert len(open_files(pid)) == len(files)
    assert one(database, SESSIONS) == 0
