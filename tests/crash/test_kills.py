"""A process killed at any system call that touches the volume or the database loses and doubles nothing."""

from __future__ import annotations

import itertools
import signal

import pytest

from shared.operations.registry import OPERATIONS
from tests.crash import record
from tests.crash.conftest import Grounds
from tests.crash.extent import EVERY
from tests.crash.follow import Act
from tests.crash.mould import THOROUGH, WORLDS
from tests.crash.trial import Ground, recover

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

# What changes the volume or talks to the database: killed before and after it.
CHANGING = (
    "openat",
    "mkdirat",
    "write",
    "fsync",
    "close",
    "linkat",
    "unlinkat",
    "fcntl",
    "utimensat",
    "connect",
    "sendto",
    "recvfrom",
)
TALK = ("sendto", "recvfrom")
# Few calls, and each is a boundary of its own: these run in every gate.
QUICK = ("mkdirat", "fsync", "linkat", "unlinkat")


def killed(here: Ground, act: Act) -> tuple[bool, list[str]]:
    """Kill at one point and recover; returns whether there was such a point, and what the judge says."""
    with here.world() as world:
        run = here.tick(world, act)
        if not run.hits:
            assert run.report is not None, run
            assert run.report["ending"] in {"progressed", "finished"}, run.report
            return False, []
        recover(world.stage)
        where = f"{act.how} {act.kind} {act.nth} ({run.hits[0][1]})"
        faults = [f"{where}: {fault}" for fault in here.faults(world)]
        if run.signal != signal.SIGKILL:
            faults.append(f"{where}: it lived on")
        return True, faults


def sweep(here: Ground, world: str, kind: str) -> list[str]:
    """Kill before and after the calls of a kind, until a run finishes untouched."""
    faults: list[str] = []
    # To speak is to be heard or not: killed after it is killed before the next call.
    before_only = kind in TALK and world != THOROUGH
    ways = ("kill-before",) if before_only else ("kill-before", "kill-after")
    trials = 0
    for nth in itertools.count(1, EVERY):
        for how in ways:
            found, more = killed(here, Act(kind, nth, how))
            if not found:
                record.keep(record.Line("kill", world, kind, trials, trials, faults))
                return faults
            trials += 1
            faults += more
    raise AssertionError(kind)


def test_every_operation_has_a_world() -> None:
    assert {operation for operation, _ in WORLDS.values()} == set(OPERATIONS)


@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", CHANGING)
@pytest.mark.parametrize("world", WORLDS)
def test_killed_at_every_call_of_a_tick_nothing_is_lost_or_doubled(
    grounds: Grounds, world: str, kind: str
) -> None:
    assert sweep(grounds(world), world, kind) == []


@pytest.mark.parametrize("kind", QUICK)
def test_killed_where_an_archive_changes_the_volume_nothing_is_lost_or_doubled(
    grounds: Grounds, kind: str
) -> None:
    assert sweep(grounds("archive"), "archive", kind) == []


@pytest.mark.parametrize("world", WORLDS)
def test_killed_after_the_last_word_to_the_database_nothing_is_done_twice(
    grounds: Grounds, world: str
) -> None:
    """The settle is on its way or done: the statement that carries it ends before the volume is left."""
    here = grounds(world)
    with here.world() as made:
        calls = here.tick(made).calls
    before_leaving = calls[: calls.index(("close", ".lock"))]
    sent = sum(kind == "sendto" for kind, _ in before_leaving)
    received = sum(kind == "recvfrom" for kind, _ in before_leaving)
    for act in (
        Act("sendto", sent, "kill-before"),
        Act("sendto", sent, "kill-after"),
        Act("recvfrom", received, "kill-after"),
    ):
        assert killed(here, act) == (True, [])
