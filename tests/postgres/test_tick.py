"""The order of a tick: the volume first, then the claim, one unit, one settle, one outcome."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from shared import loop, tick
from shared.db.connect import Database, connect
from shared.errors import Busy, Code
from shared.jobs import rules, store
from shared.jobs.model import Ending, Outcome, State
from shared.operations.registry import OPERATIONS
from shared.plans.schedule import last_ticks, schedule
from shared.tick import LEAST_SECONDS, Report, Wanted
from shared.volume import identity, ledger, lock
from tests import worlds
from tests.postgres.reading import up_to_now
from tests.worlds import a_claim, a_job, a_plan, a_volume, node, one, until_idle

LOCKER = """
import sys
from pathlib import Path
from shared.volume import identity, lock
with identity.opened(Path(sys.argv[1]), sys.argv[2]) as volume, lock.held(volume):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def scanned(control: Database, volume_root: Path) -> str:
    """Storage id of a volume with a plan of scans that is due."""
    storage_id = a_volume(control, volume_root)
    a_plan(control, None, storage_id)
    return storage_id


def forget(control: Database) -> None:
    """Make the notes of the last ticks old enough to be made anew."""
    control.transact("UPDATE tallystick.last_tick SET ticked_at = ticked_at - interval '1 min'", {})


def test_a_fresh_note_of_a_tick_or_a_visit_is_not_written_again(
    database: str, control: Database, volume_root: Path
) -> None:
    here = node(database, volume_root, a_volume(control, volume_root))
    tick.tick(here, Wanted())
    before = one(database, "SELECT ticked_at FROM tallystick.last_tick WHERE operation = 'scan'")
    seen = one(database, "SELECT probed_at FROM tallystick.volume")
    tick.tick(here, Wanted())
    assert (
        one(database, "SELECT ticked_at FROM tallystick.last_tick WHERE operation = 'scan'")
        == before
    )
    assert one(database, "SELECT probed_at FROM tallystick.volume") == seen
    control.transact("UPDATE tallystick.volume SET probed_at = probed_at - interval '1 min'", {})
    tick.tick(here, Wanted())
    assert one(database, "SELECT probed_at FROM tallystick.volume") > seen


def test_two_first_visits_at_once_both_see_the_volume(
    database: str, volume_root: Path, tmp_path: Path
) -> None:
    storage_id = identity.initialise(volume_root)
    with (
        connect(database) as other,
        closing(worlds.control(database)) as waiting,
        identity.opened(volume_root, storage_id) as volume,
        ThreadPoolExecutor() as pool,
    ):
        with other.transaction():
            other.execute(
                "INSERT INTO tallystick.volume (storage_id, root_inode, marker_inode) VALUES (%s, %s, %s)",
                (storage_id, str(volume.root_inode), str(volume.marker_inode)),
            )
            visited = pool.submit(ledger.visit, waiting, volume)
            blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while not one(database, blocked):
                assert not visited.done()
        assert visited.result(timeout=30).used_bytes == 0


def test_a_tick_is_noted_for_what_it_came_for_even_where_it_can_do_nothing(
    database: str, control: Database, volume_root: Path
) -> None:
    tick.tick(node(database, None, None), Wanted("scan"))
    first = last_ticks(control)
    assert set(first) == {"scan"}
    forget(control)
    tick.tick(node(database, volume_root, a_volume(control, volume_root)), Wanted())
    later = last_ticks(control)
    assert set(later) == set(OPERATIONS)
    assert later["scan"].ticked_at > first["scan"].ticked_at
    assert 0 <= later["scan"].age_seconds < 60


def test_a_tick_does_not_wait_for_another_that_notes_the_same(
    database: str, control: Database
) -> None:
    schedule(control, [], [], ["scan"])
    forget(control)
    before = last_ticks(control)
    with connect(database) as other, other.transaction():
        other.execute("SELECT FROM tallystick.last_tick FOR UPDATE")
        schedule(control, [], [], ["archive", "scan"])
    after = last_ticks(control)
    assert after["scan"] == replace(before["scan"], age_seconds=after["scan"].age_seconds)
    assert "archive" in after


@pytest.fixture(autouse=True)
def _without_margin() -> Iterator[None]:
    """What these tests archive was made a moment ago."""
    with up_to_now():
        yield


def test_a_tick_does_one_unit_and_reports_it(
    database: str, control: Database, volume_root: Path
) -> None:
    storage_id = a_volume(control, volume_root)
    a_plan(control, "audit", storage_id, batch_size=1)
    first = tick.tick(node(database, volume_root, storage_id), Wanted())
    assert (first.outcome.ending, first.scheduled, first.seq) == (Ending.PROGRESSED, 1, 1)
    assert first.job is not None
    assert (first.job.batches, first.job.roots) == (1, 1)
    assert one(database, "SELECT count(*) FROM tallystick.unit") == 1
    reports = until_idle(node(database, volume_root, storage_id))
    assert [report.outcome.ending for report in reports][-2:] == [Ending.FINISHED, Ending.IDLE]
    assert all(report.scheduled == 0 for report in reports)


def test_with_too_little_time_nothing_is_claimed(
    database: str, control: Database, volume_root: Path, scanned: str
) -> None:
    wanted = Wanted(seconds_left=LEAST_SECONDS - 1)
    report = tick.tick(node(database, volume_root, scanned), wanted)
    assert report.outcome.code is Code.TOO_LITTLE_TIME
    assert one(database, "SELECT count(*) FROM tallystick.job") == 0


def test_a_volume_in_use_costs_no_claim_and_no_attempt(
    database: str, control: Database, volume_root: Path, scanned: str
) -> None:
    command = [sys.executable, "-c", LOCKER, str(volume_root), scanned]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        job = a_job(control, operation="scan", storage_id=scanned)
        report = tick.tick(node(database, volume_root, scanned), Wanted())
        other.communicate("go\n", timeout=30)
    assert (report.outcome.ending, report.outcome.code) == (Ending.WAITING, Code.STORAGE_BUSY)
    assert report.outcome.params["since"]
    assert report.job is None
    left = store.get(control, job)
    assert (left.state, left.attempts, left.generation) == (State.PENDING, 0, 0)
    assert tick.tick(node(database, volume_root, scanned), Wanted()).job is not None


def test_a_claim_before_the_lock_keeps_its_job_for_a_whole_lease_from_who_has_the_volume(
    control: Database, volume_root: Path, scanned: str
) -> None:
    command = [sys.executable, "-c", LOCKER, str(volume_root), scanned]
    pipe = subprocess.PIPE
    job = a_job(control, operation="scan", storage_id=scanned)
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        claim = a_claim(control, scanned, job_id=job)
        with (
            identity.opened(volume_root, scanned) as volume,
            pytest.raises(Busy),
            lock.held(volume, wait_seconds=0.1),
        ):
            pass
        other.communicate("go\n", timeout=30)
    assert claim.job.attempts == 1
    assert store.claim(control, worlds.search(scanned, job_id=job)) is None


def test_without_a_volume_nothing_that_needs_one_is_claimed(
    database: str, control: Database, scanned: str
) -> None:
    job = a_job(control, operation="scan", storage_id=scanned)
    report = tick.tick(node(database, None, None), Wanted())
    assert (report.outcome.ending, report.outcome.code) == (
        Ending.IDLE,
        Code.VOLUME_NOT_CONFIGURED,
    )
    assert store.get(control, job).attempts == 0


def test_a_job_of_another_volume_is_left_to_its_nodes(
    database: str, control: Database, volume_root: Path, scanned: str, tmp_path: Path
) -> None:
    other = a_volume(control, tmp_path / "other")
    job = a_job(control, operation="scan", storage_id=other)
    until_idle(node(database, volume_root, scanned))
    assert store.get(control, job).attempts == 0
    until_idle(node(database, tmp_path / "other", other))
    assert store.get(control, job).state is State.SUCCEEDED


def test_overdue_work_on_a_lost_volume_is_paused_and_goes_on_when_it_is_back(
    database: str, control: Database, volume_root: Path, scanned: str
) -> None:
    overdue = a_job(
        control, operation="scan", storage_id=scanned, due_in=-rules.OVERDUE_SECONDS - 1
    )
    recent = a_job(control, operation="scan", storage_id=scanned, due_in=-60)
    (volume_root / identity.MARKER).rename(volume_root / "elsewhere")
    report = tick.tick(node(database, volume_root, scanned), Wanted())
    assert (report.outcome.ending, report.outcome.code) == (
        Ending.WAITING,
        Code.STORAGE_UNAVAILABLE,
    )
    paused = store.get(control, overdue)
    assert (paused.state, paused.error_code) == (State.PAUSED, "STORAGE_UNAVAILABLE")
    assert store.get(control, recent).state is State.PENDING
    (volume_root / "elsewhere").rename(volume_root / identity.MARKER)
    until_idle(node(database, volume_root, scanned))
    assert store.get(control, overdue).state is State.SUCCEEDED


def test_a_disabled_namespace_ends_its_job_with_permission_denied(
    database: str, control: Database, volume_root: Path, scanned: str
) -> None:
    job = a_job(control, operation="scan", storage_id=scanned)
    control.transact("UPDATE tallystick.namespace SET enabled = false", {})
    report = tick.tick(node(database, volume_root, scanned), Wanted(job_id=job))
    assert (report.outcome.ending, report.outcome.code) == (
        Ending.FAILED,
        Code.PERMISSION_DENIED,
    )


def test_a_crash_loop_is_reported_as_failed(
    database: str, control: Database, volume_root: Path, scanned: str
) -> None:
    job = a_job(
        control, operation="scan", storage_id=scanned, takeovers=rules.TAKEOVERS_MAX, due_in=-60
    )
    a_claim(control, scanned, job_id=job)
    past = "statement_timestamp() - interval '1 s'"
    control.transact(f"UPDATE tallystick.job SET due_at = {past}, lease_until = {past}", {})
    report = tick.tick(node(database, volume_root, scanned), Wanted(job_id=job))
    assert (report.outcome.ending, report.outcome.code) == (Ending.FAILED, Code.CRASH_LOOP)


def test_a_database_that_is_away_ends_the_tick_without_a_fault(
    volume_root: Path, control: Database, scanned: str
) -> None:
    gone = node("postgresql://127.0.0.1:1/x", volume_root, scanned, deadline_seconds=1.0)
    report = tick.tick(gone, Wanted())
    assert report.outcome.code is Code.DATABASE_UNAVAILABLE
    assert report.job is None


def test_a_process_that_hangs_beyond_its_timeout_is_ended(
    database: str, control: Database, volume_root: Path, scanned: str
) -> None:
    program = (
        "import time, shared.loop as loop\n"
        "loop.tick = lambda node, wanted: time.sleep(60)\n"
        "loop.watched(None, None, 0.3)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], timeout=30, check=False)
    assert ended.returncode == -signal.SIGALRM


@pytest.mark.system  # needs util-linux and a kernel that lets it make namespaces
def test_the_first_process_of_a_container_is_ended_as_well_when_it_hangs() -> None:
    program = (
        "import os, time, shared.loop as loop\n"
        "assert os.getpid() == 1\n"
        "loop.tick = lambda node, wanted: time.sleep(60)\n"
        "loop.watched(None, None, 0.3)\n"
    )
    alone = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
    ended = subprocess.run(
        [*alone, sys.executable, "-c", program],
        timeout=30,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr


def test_a_signal_is_heard_between_ticks_and_never_inside_one(
    database: str,
    control: Database,
    volume_root: Path,
    scanned: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(3):
        a_job(control, operation="scan", storage_id=scanned)

    def interrupted(node: tick.Node, wanted: Wanted) -> Report:
        os.kill(os.getpid(), signal.SIGTERM)
        return tick.tick(node, wanted)

    monkeypatch.setattr(loop, "tick", interrupted)
    told: list[Report] = []
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        last = loop.until_idle(node(database, volume_root, scanned), Wanted(), 60.0, told.append)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert [report.outcome.ending for report in told] == [Ending.FINISHED]
    assert last is told[0]
    running = "SELECT count(*) FROM tallystick.job WHERE state = 'RUNNING'"
    assert one(database, running) == 0


def test_another_tick_follows_at_once_while_jobs_are_claimed() -> None:
    assert not loop.wants_more(Report(Outcome(Ending.IDLE)))
    assert not loop.wants_more(Report(Outcome(Ending.WAITING, Code.STORAGE_BUSY)))
