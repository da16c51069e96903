"""A process that lost its claim goes on beside its successor, who is in the middle of the same unit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.jobs.model import Ending
from tests.crash import record
from tests.crash.conftest import Grounds
from tests.crash.extent import share
from tests.crash.follow import Act
from tests.crash.inject import Launcher, Run, launcher, stands
from tests.crash.scene import Scene
from tests.crash.test_zombies import NO_LOCK, SHARES, boundaries_of
from tests.crash.trial import Ground, recover
from tests.operations import stage

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

# Its file is written and its bytes are set aside; all that is missing is the name.
BEFORE_ITS_NAME = Act("linkat", 2, "hold")


@pytest.fixture(scope="session")
def successor() -> Iterator[Launcher]:
    with launcher() as made:
        yield made


def succeeded(here: Ground, world: Scene, successor: Launcher, *acts: Act) -> Run:
    """Stop a tick that has no lock before it names its file, and let a successor take the job over."""
    assert here.tick(world, NO_LOCK, BEFORE_ITS_NAME).held
    stage.expire(world.stage)
    return successor.run(world.stage.node, *acts)


def overtaken(here: Ground, successor: Launcher, act: Act) -> tuple[bool, list[str]]:
    """Let the first go on while its successor stands still; returns whether it did, and what is wrong."""
    with here.world() as world:
        second = succeeded(here, world, successor, act)
        if not stands(second, act):
            here.launcher.go_on()
            return False, []
        first = here.launcher.go_on()
        ended = successor.go_on()
        recover(world.stage)
        faults = here.faults(world)
        if first.report is None or first.report["ending"] not in {Ending.STALE, Ending.UNCERTAIN}:
            faults.append(f"the first came to {first.report}")
        if ended.report is None or "raised" in ended.report:
            faults.append(f"its successor came to {ended.report}")
        where = f"beside one stopped before {act.kind} {act.nth} ({second.calls[-1][1]})"
        return True, [f"{where}: {fault}" for fault in faults]


def test_beside_its_successor_a_process_names_no_file(
    grounds: Grounds, successor: Launcher
) -> None:
    """The successor removed what it had written, before it claimed."""
    here = grounds("archive")
    assert overtaken(here, successor, Act("linkat", 2, "hold")) == (True, [])


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("at", range(SHARES))
def test_wherever_the_successor_stands_nothing_is_lost_or_doubled(
    grounds: Grounds, successor: Launcher, at: int
) -> None:
    here = grounds("archive")
    with here.world() as world:
        calls = succeeded(here, world, successor).calls
    faults: list[str] = []
    trials = 0
    for act in boundaries_of(calls)[share(at, SHARES)]:
        tried, more = overtaken(here, successor, act)
        trials += tried
        faults += more
    record.keep(record.Line("zombie", "archive", "overtaken", trials, trials, faults))
    assert trials
    assert faults == []
