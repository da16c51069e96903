"""What every kind of work must survive, once for each registered operation.

A child process is stopped where a crash would hurt, by a lock that it waits for, and killed. Nothing of
the program is replaced.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from shared.archive.kinds import builtin
from shared.errors import Code, TallystickError
from shared.jobs.model import Ending, Job, State
from shared.jobs.rules import Action
from shared.operations.registry import OPERATIONS
from shared.volume import identity
from tests.operations.stage import (
    Stage,
    act,
    assert_sound,
    batch_files,
    blocked,
    child,
    copied,
    due_now,
    ended,
    event_types,
    events,
    execute,
    expire,
    gate,
    jobs,
    killed,
    leftovers,
    locked,
    plan,
    plans_due,
    rows_in,
    stage,
    units,
    wait_for,
)
from tests.worlds import known, rows

KINDS = """
[kinds.notes]
root = "public.note"
time = "at"
related = ["public.line"]
"""
DDL = (
    "CREATE TABLE note (id integer PRIMARY KEY, at date)",
    "CREATE TABLE line (note_id integer REFERENCES note, said text)",
    "INSERT INTO note SELECT i, '2020-01-01'::date + i / 3 FROM generate_series(1, 6) AS i",
    "INSERT INTO line SELECT id, 'l' || n FROM note, generate_series(1, 2) AS n",
)
UNITS = 3
RECEIPTS = """
INSERT INTO tallystick.receipt (namespace_id, path, key, body_sha256, status, created_at)
SELECT namespace.id, '/jobs', key, repeat('a', 64), 200, clock_timestamp() - age
FROM tallystick.namespace,
     (SELECT 'old ' || n, make_interval(days => 100 + n) FROM generate_series(1, 6) AS n
      UNION ALL VALUES ('young', interval '1 day')) AS receipt (key, age)
"""


@dataclass(frozen=True)
class Play:
    """One operation with a job of three units or more that is due.

    ``held`` is the table whose lock stops a unit in its middle; ``proven`` checks a job that succeeded
    against the world outside the database.
    """

    here: Stage
    operation: str
    held: str
    proven: Callable[[Stage, Job], None]

    @property
    def job(self) -> Job:
        (job,) = [job for job in jobs(self.here) if job.operation == self.operation]
        return job

    def in_mid_unit(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        return locked(self.here.control, self.held)


def archive(database: str, root: Path) -> Play:
    here = stage(database, root, KINDS, *DDL)
    plan(here, "notes", batch_size=2)

    def proven(here: Stage, job: Job) -> None:
        found = rows_in(assert_sound(here, job))
        assert found == {
            f'"public"."{table}"': copied(database, f"SELECT * FROM {table}")
            for table in ("note", "line")
        }
        assert len(list((here.root / job.directory).iterdir())) == job.batches + 1

    return Play(here, "archive", "note", proven)


def scan(database: str, root: Path) -> Play:
    play = archive(database, root)
    play.here.until_idle()
    before = snapshot_of(root)
    plan(play.here, None, batch_size=1)

    def proven(here: Stage, job: Job) -> None:
        assert snapshot_of(here.root) == before
        assert job.roots == UNITS + 1
        found = [unit["evidence"]["findings"] for unit in units(here, job)]
        assert {each["code"] for finding in found for each in finding} <= {"LEDGER_CORRECTED"}
        total = rows(here.control, "SELECT used_bytes FROM tallystick.volume")[0]["used_bytes"]
        assert total == sum(before.values())

    return Play(play.here, "scan", "tallystick.unit", proven)


def prune(database: str, root: Path) -> Play:
    here = stage(database, root, "").changed(kinds=known(builtin()))
    execute(database, RECEIPTS)
    plan(here, "idempotency", batch_size=2, days=30)
    here.until_idle()
    plan(here, "idempotency", days=30, enabled=False)
    plan(here, None, operation="prune", batch_size=1)
    before = snapshot_of(root)

    def proven(here: Stage, job: Job) -> None:
        assert snapshot_of(here.root) == before
        assert rows(here.control, "SELECT key FROM tallystick.receipt ORDER BY key") == [
            {"key": "young"}
        ]
        found = [unit["evidence"] for unit in units(here, job)]
        assert [each["rows"] for each in found] == [{"tallystick.receipt": 2}] * UNITS
        assert all(each["kept"] == {} for each in found)
        gone = rows(here.control, "SELECT kind, roots FROM tallystick.pruned")
        assert gone == [{"kind": "idempotency", "roots": 2 * UNITS}]

    return Play(here, "prune", "tallystick.receipt", proven)


WORLDS: dict[str, Callable[[str, Path], Play]] = {
    "archive": archive,
    "scan": scan,
    "prune": prune,
}


def snapshot_of(root: Path) -> dict[str, int]:
    """Return the sizes of all files of a volume by their paths."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.stat().st_size for path in files}


@pytest.fixture(params=WORLDS)
def play(request: pytest.FixtureRequest, database: str, volume_root: Path) -> Play:
    return WORLDS[request.param](database, volume_root)


@contextmanager
def running(
    play: Play, *, at: AbstractContextManager[psycopg.Connection[Any]]
) -> Iterator[tuple[subprocess.Popen[str], psycopg.Connection[Any]]]:
    """Start a child that claims the job and stops at a lock; it is gone at the end, one way or other.

    Yields the child and the session that holds it up.
    """
    with at as session:
        process = child(play.here)
        try:
            wait_for(lambda: process.poll() is not None or blocked(play.here.control))
            assert process.poll() is None, process.communicate()
            assert play.job.state is State.RUNNING
            yield process, session
        finally:
            process.send_signal(signal.SIGCONT)
            if process.poll() is None:
                killed(process)


def end_sessions(play: Play) -> None:
    """End whatever a killed process left open on the server, so that nothing of it can still commit."""
    for pid in blocked(play.here.control):
        rows(play.here.control, "SELECT pg_terminate_backend(%s, 5000)", pid)


def go_on(play: Play) -> Job:
    """Tick until nothing is due, and check that the job came to its proven end."""
    reports = play.here.until_idle()
    assert reports[-1].outcome.ending is Ending.IDLE, reports[-1]
    job = play.job
    assert job.state is State.SUCCEEDED
    assert [unit["seq"] for unit in units(play.here, job)] == list(range(1, job.batches + 1))
    play.proven(play.here, job)
    assert leftovers(play.here) == []
    return job


def test_every_registered_operation_has_its_world_here() -> None:
    assert set(WORLDS) == set(OPERATIONS)


def test_a_job_is_completed_unit_by_unit(play: Play) -> None:
    first = play.here.tick()
    assert (first.outcome.ending, first.seq) == (Ending.PROGRESSED, 1)
    assert (play.job.state, play.job.batches) == (State.PENDING, 1)
    job = go_on(play)
    assert job.batches >= UNITS
    assert (job.attempts, job.failures, job.error_code) == (job.batches, 0, None)
    assert (job.owner, job.lease_until, job.reserved) == (None, None, 0)
    assert "job-reclaimed-after-restart" not in event_types(play.here, job)


def test_a_crash_in_the_middle_of_a_unit_repeats_that_unit_only(play: Play) -> None:
    play.here.tick()
    with running(play, at=play.in_mid_unit()) as (process, _):
        killed(process)
        end_sessions(play)
    assert play.here.tick().outcome.ending is Ending.IDLE
    assert (play.job.state, play.job.batches) == (State.RUNNING, 1)
    expire(play.here)
    job = go_on(play)
    assert job.attempts == job.batches + 1


def test_a_crash_after_the_side_effect_finds_it_done(play: Play) -> None:
    play.here.tick()
    with running(play, at=gate(play.here)) as (process, _):
        killed(process)
        end_sessions(play)
        after_the_crash = snapshot_of(play.here.root)
    assert play.job.batches == 1
    expire(play.here)
    report = play.here.tick()
    assert (report.outcome.ending, report.seq, report.reclaimed) == (Ending.PROGRESSED, 2, True)
    assert {**after_the_crash, **snapshot_of(play.here.root)} == after_the_crash
    go_on(play)


def test_a_settle_that_outlives_its_process_is_not_done_twice(play: Play) -> None:
    play.here.tick()
    with running(play, at=gate(play.here)) as (process, _):
        killed(process)
    wait_for(lambda: play.job.state is State.PENDING)
    job = go_on(play)
    assert job.attempts == job.batches


def test_taking_over_an_expired_lease_is_recorded_before_its_outcome(play: Play) -> None:
    play.here.tick()
    with running(play, at=play.in_mid_unit()) as (process, _):
        killed(process)
        end_sessions(play)
    expire(play.here)
    generation = play.job.generation
    assert play.here.tick().reclaimed
    told = events(play.here, play.job)
    (place,) = [
        at for at, event in enumerate(told) if event["type"] == "job-reclaimed-after-restart"
    ]
    taken, outcome = told[place], told[place + 1 :]
    assert (taken["reclaimed"], taken["attempt"]) == (True, 3)
    assert outcome
    assert all(event["recorded_at"] > taken["recorded_at"] for event in outcome)
    assert play.job.generation == generation + 1
    go_on(play)


def test_a_second_worker_is_kept_out_and_costs_nothing(play: Play) -> None:
    play.here.tick()
    with running(play, at=play.in_mid_unit()) as (process, session):
        before = play.job
        second = play.here.tick()
        assert (second.outcome.ending, second.outcome.code) == (Ending.WAITING, Code.STORAGE_BUSY)
        assert second.job is None
        assert "since" in second.outcome.params
        assert play.job == before
        os.kill(process.pid, signal.SIGSTOP)
        assert play.here.tick().outcome.code is Code.STORAGE_BUSY
        os.kill(process.pid, signal.SIGCONT)
        session.rollback()
        assert ended(process)[0][0] == Ending.PROGRESSED
    assert (play.job.batches, play.job.attempts) == (2, 2)
    go_on(play)


def test_two_processes_at_once_do_every_unit_once(play: Play) -> None:
    both = [child(play.here, once=False) for _ in range(2)]
    outcomes = [outcome for process in both for outcome in ended(process)]
    endings = [ending for ending, code, _ in outcomes if code != Code.STORAGE_BUSY]
    assert endings.count(Ending.FINISHED) == 1
    assert set(endings) <= {Ending.PROGRESSED, Ending.FINISHED, Ending.IDLE}
    job = go_on(play)
    assert job.attempts == job.batches == endings.count(Ending.PROGRESSED) + 1


@pytest.mark.parametrize("action", [Action.PAUSE, Action.ABANDON])
def test_a_worker_whose_job_was_taken_from_it_records_nothing(play: Play, action: Action) -> None:
    play.here.tick()
    before = units(play.here, play.job)
    with running(play, at=play.in_mid_unit()) as (process, session):
        held_until = play.job.lease_until
        act(play.here, play.job, action)
        session.rollback()
        assert ended(process)[0][0] == Ending.STALE
    assert units(play.here, play.job) == before
    assert play.here.tick().outcome.ending is Ending.IDLE
    if action is Action.ABANDON:
        assert (play.job.state, play.job.batches) == (State.ABANDONED, 1)
        plans_due(play.here)
        play.here.tick()
        states = [job.state for job in jobs(play.here) if job.operation == play.operation]
        assert len(states) == 2
        return
    assert play.job.state is State.PAUSED
    resumed = act(play.here, play.job, Action.RESUME)
    assert held_until is not None
    assert resumed.due_at >= held_until
    assert play.here.tick().outcome.ending is Ending.IDLE
    due_now(play.here)
    go_on(play)


def test_a_paused_job_rests_until_it_is_resumed(play: Play) -> None:
    play.here.tick()
    act(play.here, play.job, Action.PAUSE)
    assert play.here.tick().outcome.ending is Ending.IDLE
    assert (play.job.state, play.job.error_code) == (State.PAUSED, None)
    act(play.here, play.job, Action.RESUME)
    go_on(play)


def test_an_abandoned_job_leaves_its_files_and_gives_up_its_place(play: Play) -> None:
    play.here.tick()
    before = snapshot_of(play.here.root)
    first = act(play.here, play.job, Action.ABANDON)
    assert play.here.tick().outcome.ending is Ending.IDLE
    assert snapshot_of(play.here.root) == before
    plans_due(play.here)
    play.here.until_idle()
    of_operation = [job for job in jobs(play.here) if job.operation == play.operation]
    assert [job.state for job in of_operation] == [State.ABANDONED, State.SUCCEEDED]
    assert units(play.here, first) == units(play.here, of_operation[0])
    assert len(units(play.here, first)) == 1


SECRET = "hunter2-and-a-half"


def test_no_secret_reaches_a_job_an_event_a_log_or_a_report(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    """The password is in every connection string, right, wrong, unreachable and misspelt ones."""
    caplog.set_level("DEBUG")
    name = play.here.control.partition("?")[2]
    right = f"{play.here.control}&password={SECRET}"
    sources = {
        "unreachable": f"postgresql://reader:{SECRET}@127.0.0.1:1/app",
        "missing": f"postgresql://reader:{SECRET}@/nowhere?{name}",
        "misspelt": f"postgres:/reader:{SECRET}@localhost/app",
        "malformed": f"postgresql://reader:{SECRET}%zz@localhost/app",
        "right": right,
    }
    for source in sources.values():
        given = {"control": right, "application": source}
        here = play.here.changed(control_dsn=right, sources=given)
        said = repr(here.tick())
        assert SECRET not in said
        due_now(here)
        for job in jobs(here):
            if job.state is State.FAILED:
                act(here, job, Action.RETRY)
    assert SECRET not in caplog.text
    for table in (
        "job",
        "unit",
        "recovery_event",
        "security_event",
        "audit_entry",
        "plan",
        "volume",
    ):
        found = rows(
            play.here.control, f"SELECT row_to_json(t)::text AS text FROM tallystick.{table} t"
        )
        assert SECRET not in repr(found)


@pytest.mark.parametrize(
    "spoilt",
    [f"postgres:/reader:{SECRET}@localhost/app", f"postgresql://u:{SECRET}%zz@localhost/app"],
)
def test_no_secret_of_the_control_database_reaches_a_report(
    play: Play, caplog: pytest.LogCaptureFixture, spoilt: str
) -> None:
    here = play.here.changed(control_dsn=spoilt)
    try:
        said = repr(here.tick())
    except (TallystickError, psycopg.Error) as error:
        said = f"{error!r} {error.__cause__ and ''}"
    assert SECRET not in said
    assert SECRET not in caplog.text


def test_what_is_kept_of_an_error_is_bounded(play: Play) -> None:
    long = "x" * 100_000
    here = replace(play.here, node=replace(play.here.node, sources=broken_sources(play, long)))
    here.tick()
    for row in rows(here.control, "SELECT error_params, errors FROM tallystick.job"):
        assert len(repr(row)) < 4000
    for row in rows(here.control, "SELECT reason_params FROM tallystick.recovery_event"):
        assert len(repr(row)) < 4000


def broken_sources(play: Play, long: str) -> dict[str, str]:
    return {
        "control": play.here.control,
        "application": f"postgresql://{long}@/x?host=/nowhere/{long[:20]}",
    }


def test_nothing_of_a_unit_is_left_on_the_volume_but_what_was_confirmed(play: Play) -> None:
    play.here.tick()
    confirmed = snapshot_of(play.here.root)
    with running(play, at=play.in_mid_unit()) as (process, _):
        killed(process)
        end_sessions(play)
    plain = {
        path: size
        for path, size in snapshot_of(play.here.root).items()
        if not path.startswith(f"{identity.TEMP}/")
    }
    assert plain == confirmed
    expire(play.here)
    go_on(play)
    assert batch_files(play.here, jobs(play.here)[0])
