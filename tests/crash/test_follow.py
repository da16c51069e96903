"""What is done to a process at a call is really done there: before it, after it, instead of it."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

import pytest

from shared.errors import Code
from tests.crash.conftest import Grounds
from tests.crash.follow import Act
from tests.crash.judge import Allowed
from tests.crash.scene import Scene

pytestmark = pytest.mark.system

# The first call gives the manifest its name, the second the first batch.
BATCH = 2


def batches(world: Scene) -> list[Path]:
    return list(world.stage.root.glob("*-*-*/*.sql.zst"))


@pytest.mark.parametrize(("how", "there"), [("kill-before", 0), ("kill-after", 1)])
def test_a_kill_comes_before_or_after_the_call(grounds: Grounds, how: str, there: int) -> None:
    here = grounds("archive")
    with here.world() as world:
        run = here.tick(world, Act("linkat", BATCH, how))
        assert (run.signal, run.report) == (signal.SIGKILL, None)
        assert run.hits == (("linkat", "job/000001.sql.zst"),)
        assert run.calls[-1] == run.hits[0]
        assert len(batches(world)) == there


@pytest.mark.parametrize(
    ("how", "number", "code", "there"),
    [
        ("fail", errno.ENOSPC, Code.STORAGE_LIMIT, 0),
        ("fail", errno.EIO, Code.STORAGE_FAILED, 0),
        ("fail-after", errno.EIO, None, 1),
        ("fail-after", errno.EEXIST, None, 1),
    ],
)
def test_an_error_stands_for_the_call_or_hides_that_it_did_its_work(
    grounds: Grounds, how: str, number: int, code: Code | None, there: int
) -> None:
    here = grounds("archive")
    with here.world() as world:
        run = here.tick(world, Act("linkat", BATCH, how, number))
        assert run.hits == (("linkat", "job/000001.sql.zst"),)
        assert run.code == code
        assert len(batches(world)) == there


def test_a_call_that_lies_did_nothing_and_the_judge_notices(grounds: Grounds) -> None:
    here = grounds("archive")
    with here.world() as world:
        run = here.tick(world, Act("linkat", BATCH, "lie"))
        assert run.code is None
        assert batches(world) == []
        assert world.faults(Allowed(states=("PENDING",))) != []
        assert world.stage.tick().outcome.params["cause"] == "last-missing"


def test_a_held_process_stands_still_until_it_may_go_on(grounds: Grounds) -> None:
    here = grounds("archive")
    with here.world() as world:
        run = here.tick(world, Act("linkat", BATCH, "hold"))
        assert run.held
        assert run.holds_lock
        assert batches(world) == []
        assert here.launcher.go_on().report is not None
        assert len(batches(world)) == 1


def test_a_tick_left_alone_is_followed_to_its_end(grounds: Grounds) -> None:
    here = grounds("archive")
    with here.world() as world:
        run = here.tick(world)
        assert run.report is not None
        assert run.report["ending"] == "progressed"
        assert not run.hits
        # Names are told without what differs from run to run, and no call of another file is among them.
        assert ("linkat", "job/manifest.json") in run.calls
        assert ("fsync", ".tmp/*") in run.calls
        assert not any("python" in where for _, where in run.calls)
