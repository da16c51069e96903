"""A process that stands still and goes on later changes nothing that was recorded meanwhile.

It is stopped before every call that touches the volume or the database. Where it shall lose its lock, the
call that takes the lock lies to it, as a server that lost the lock would.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from shared.errors import Code
from shared.jobs.model import Ending, Job, State
from shared.jobs.rules import Action
from tests.crash import record
from tests.crash.conftest import Grounds
from tests.crash.extent import EVERY, share
from tests.crash.follow import Act
from tests.crash.inject import Run, stands
from tests.crash.judge import Allowed
from tests.crash.mould import THOROUGH, WORLDS
from tests.crash.scene import Scene
from tests.crash.trial import Ground, recover
from tests.operations import stage
from tests.worlds import rows

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

NO_LOCK = Act("fcntl", 1, "lie")
# A call that only looks is no boundary: between it and the one before, nothing has changed for anybody.
LOOKING = {"newfstatat", "read", "getdents64"}
TINY = 1
# Longer than a tick needs to come to where it is stopped, on a machine that has other work.
WATCHDOG_SECONDS = 8.0
RECORDED = {
    "jobs": "SELECT * FROM tallystick.job ORDER BY id",
    "units": "SELECT * FROM tallystick.unit ORDER BY job_id, seq",
    "ledger": "SELECT storage_id, directory, bytes FROM tallystick.ledger ORDER BY directory",
    "used": "SELECT used_bytes FROM tallystick.volume",
    "events": "SELECT id, type, done FROM tallystick.recovery_event ORDER BY id",
    "pruned": "SELECT kind, roots FROM tallystick.pruned",
}
# Who has changed rows and is not known to the server as one to end.
WRITING = """
SELECT pid, query FROM pg_stat_activity
WHERE datname = current_database() AND backend_xid IS NOT NULL AND state <> 'idle in transaction'
"""


def boundaries(here: Ground) -> list[Act]:
    """Return where a tick of this world can be stopped, in its own order."""
    with here.world() as world:
        return boundaries_of(here.tick(world).calls)


def boundaries_of(calls: Iterable[tuple[str, str]]) -> list[Act]:
    """Return where a process can be stopped that makes these calls."""
    counts: Counter[str] = Counter()
    found = []
    for kind, _ in calls:
        counts[kind] += 1
        if kind not in LOOKING:
            found.append(Act(kind, counts[kind], "hold"))
    return found


def recorded(world: Scene) -> dict[str, Any]:
    return {name: rows(world.stage.control, query) for name, query in RECORDED.items()}


def published(world: Scene) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in world.stage.root.glob("*-*-*/*")}


def nobody_writes(world: Scene) -> bool:
    return not rows(world.stage.control, WRITING)


def the_job(world: Scene) -> Job | None:
    """Return the job that somebody holds."""
    return next((job for job in stage.jobs(world.stage) if job.state is State.RUNNING), None)


def finished(world: Scene, job: Job | None) -> Allowed | None:
    """Its lease runs out and another process does all there is to do."""
    stage.expire(world.stage)
    world.stage.until_idle()
    return None


def retried(world: Scene, job: Job | None) -> Allowed | None:
    """Another process takes it over and fails, and an operator retries it.

    Where its file is there already the other one adopts it, which no budget forbids.
    """
    assert job is not None
    stage.expire(world.stage)
    world.stage.changed(volume_max_bytes=TINY).tick()
    (now,) = [each for each in stage.jobs(world.stage) if each.id == job.id]
    if now.state is State.FAILED:
        assert now.error_code == Code.STORAGE_LIMIT
        stage.act(world.stage, now, Action.RETRY)
    return None


def paused(world: Scene, job: Job | None) -> Allowed | None:
    assert job is not None
    stage.act(world.stage, job, Action.PAUSE)
    return Allowed(claims_ended_otherwise=1)


def abandoned(world: Scene, job: Job | None) -> Allowed | None:
    assert job is not None
    stage.act(world.stage, job, Action.ABANDON)
    return Allowed(("SUCCEEDED", "ABANDONED"), unrecorded=True, claims_ended_otherwise=1)


MEANWHILE: dict[str, Callable[[Scene, Job | None], Allowed | None]] = {
    "finished": finished,
    "retried": retried,
    "paused": paused,
    "abandoned": abandoned,
}


def after(world: Scene, what: str) -> None:
    """Let what was paused or retried come to its end; a scan counts what an abandoned job got later."""
    for job in stage.jobs(world.stage):
        if job.state is State.PAUSED and what == "paused":
            stage.act(world.stage, job, Action.RESUME)
        if job.state is State.ABANDONED and job.operation == "archive":
            stage.plan(world.stage, None)
            world.stage.until_idle()
    if what != "abandoned":
        recover(world.stage)


def told(run: Run, job: Job | None) -> list[str]:
    """Return what is wrong with the end of a process that had lost its claim."""
    if run.report is None or "raised" in run.report:
        return [f"it ended with {run.report or run.signal}"]
    ending = run.report["ending"]
    if job is not None and ending not in {Ending.STALE, Ending.UNCERTAIN}:
        return [f"it said {ending} {run.code} of a job it had lost"]
    return []


def haunted(here: Ground, act: Act, what: str) -> tuple[bool, list[str]]:
    """Stop a tick without its lock, let something happen meanwhile, and let it go on.

    Returns whether this was a trial: the call must come, and an operator's action needs a job that somebody
    holds.
    """
    with here.world() as world:
        run = here.tick(world, NO_LOCK, act)
        if not stands(run, act):
            return False, []
        job = the_job(world)
        if job is None and what != "finished":
            here.launcher.go_on()
            return False, []
        where = f"{what}, stopped before {act.kind} {act.nth} ({run.calls[-1][1]})"
        allowed = MEANWHILE[what](world, job)
        before, files = recorded(world), published(world)
        faults = told(here.launcher.go_on(), job)
        now, files_now = recorded(world), published(world)
        faults += [f"it changed {name}" for name in before if before[name] != now[name]]
        faults += [f"it changed {name}" for name in files if files[name] != files_now.get(name)]
        after(world, what)
        found = here.faults(world, allowed)
        return True, [f"{where}: {fault}" for fault in faults + found]


def kept_waiting(here: Ground, act: Act) -> tuple[bool, list[str]]:
    """Stop a tick that has its lock, and tick beside it; returns whether it had the lock."""
    with here.world() as world:
        run = here.tick(world, act)
        if not stands(run, act):
            return False, []
        faults = []
        if run.holds_lock:
            before = recorded(world)
            outcome = world.stage.tick().outcome
            if (outcome.ending, outcome.code) != (Ending.WAITING, Code.STORAGE_BUSY):
                faults.append(f"another tick came to {outcome}")
            if recorded(world) != before:
                faults.append("another tick changed what is recorded")
        here.launcher.go_on()
        recover(world.stage)
        where = f"beside one stopped before {act.kind} {act.nth} ({run.calls[-1][1]})"
        return run.holds_lock, [f"{where}: {fault}" for fault in faults + here.faults(world)]


def sweep(
    world: str, what: str, trial: Callable[[Act], tuple[bool, list[str]]], at: list[Act]
) -> list[str]:
    faults: list[str] = []
    trials = 0
    for act in at:
        tried, more = trial(act)
        trials += tried
        faults += more
    record.keep(record.Line("zombie", world, what, trials, trials, faults))
    # Of a part of a share every call may come before there is anything to lose.
    assert trials or EVERY > 1
    return faults


SHARES = 4
# Each of these waits a second for the lock.
FEWER = 3
# Only an archive has a budget to fail by.
HAUNTINGS = [
    (world, what)
    for world in WORLDS
    for what in MEANWHILE
    if world == THOROUGH or what in {"finished", "paused"}
]


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("at", range(SHARES))
@pytest.mark.parametrize(("world", "what"), HAUNTINGS)
def test_a_process_that_lost_its_claim_changes_nothing(
    grounds: Grounds, world: str, what: str, at: int
) -> None:
    here = grounds(world)
    stops = boundaries(here)[share(at, SHARES)]
    assert sweep(world, what, lambda act: haunted(here, act, what), stops) == []


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("at", range(SHARES))
@pytest.mark.parametrize("world", WORLDS)
def test_while_a_process_stands_still_others_wait_and_lose_nothing(
    grounds: Grounds, world: str, at: int
) -> None:
    here = grounds(world)
    shares = SHARES if world == THOROUGH else FEWER * SHARES
    stops = boundaries(here)[share(at, shares)]
    assert sweep(world, "busy", lambda act: kept_waiting(here, act), stops) == []


# Where an archive changes the volume or what is recorded.
QUICK = (
    Act("linkat", 1, "hold"),
    Act("linkat", 2, "hold"),
    Act("unlinkat", 2, "hold"),
    Act("write", 1, "hold"),
)


@pytest.mark.parametrize("what", MEANWHILE)
def test_an_archive_that_lost_its_claim_changes_nothing(grounds: Grounds, what: str) -> None:
    here = grounds("archive")
    assert sweep("archive", what, lambda act: haunted(here, act, what), list(QUICK)) == []


def test_while_an_archive_stands_still_others_wait_and_lose_nothing(grounds: Grounds) -> None:
    here = grounds("archive")
    assert sweep("archive", "busy", lambda act: kept_waiting(here, act), list(QUICK)) == []


@pytest.mark.parametrize("world", WORLDS)
def test_a_process_that_stops_in_mid_sentence_keeps_no_row_from_others(
    grounds: Grounds, world: str
) -> None:
    """No timeout of the server runs between two messages of a pipeline, so there must be no such place.

    Between two statements of a transaction one does run: the server ends those itself.
    """
    here = grounds(world)
    for act in boundaries(here):
        if act.kind != "sendto":
            continue
        with here.world() as made:
            if not stands(here.tick(made, act), act):
                continue
            stage.wait_for(partial(nobody_writes, made))
            here.launcher.go_on()


def test_a_process_that_stood_still_too_long_is_ended_by_its_watchdog(grounds: Grounds) -> None:
    here = grounds("archive")
    with here.world() as world:
        run = here.tick(world, NO_LOCK, Act("linkat", 2, "hold"), timeout=WATCHDOG_SECONDS)
        assert run.held
        rows(world.stage.control, f"SELECT pg_sleep({WATCHDOG_SECONDS} + 0.5)")
        finished(world, the_job(world))
        before, files = recorded(world), published(world)
        ended = here.launcher.go_on()
        assert ended.signal == signal.SIGALRM
        assert (recorded(world), published(world)) == (before, files)
        assert here.faults(world) == []
