"""A connection that is cut at any message of a tick loses nothing, doubles nothing, and is told rightly."""

from __future__ import annotations

import signal

import pytest

from shared.jobs.model import Ending
from tests.crash import record
from tests.crash.conftest import Grounds
from tests.crash.cutting import led, points, through, told, units, untrue
from tests.crash.extent import EVERY
from tests.crash.trial import Ground, recover, sessions_end
from tests.crash.wire import AFTER, BEFORE, TORN, Cut, wire

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

# Every connection of every operation's tick.
PLACES = (
    ("archive", "control"),
    ("archive", "source"),
    ("archive, next batch", "control"),
    ("archive, next batch", "source"),
    ("scan", "control"),
    ("prune", "control"),
)
# The gate tries one cut in so many. There are five at a message, so every kind has its turn.
SOME = 7
# Longer than the tick needs up to there, shorter than anything else that would end it.
WATCHDOG_SECONDS = 8.0


def trial(here: Ground, link: str, cut: Cut) -> list[str]:
    """Cut once, recover, and return what is wrong."""
    with here.world() as world:
        before = units(world)
        with wire(world.stage.control, cut) as between:
            try:
                report = through(here, world, link, between)
            except Exception as error:  # noqa: BLE001 - it is the fault that is looked for
                return [f"{cut}: it raised {error!r}"]
        if between.struck is None:
            return [f"{cut}: there was no such message"]
        sessions_end(world.stage)
        faults = untrue(world, report, told(link), before)
        recover(world.stage)
        faults += here.faults(world)
        return [f"{cut} ({between.struck}): {fault}" for fault in faults]


def sweep(here: Ground, world: str, link: str, every: int) -> list[str]:
    """Cut at every nth of the cuts that a tick allows, and check that there is no message beyond them."""
    found = points(here, link)
    cuts = [cut for point in found for cut in point.cuts][::every]
    faults = [fault for cut in cuts for fault in trial(here, link, cut)]
    record.keep(record.Line("cut", f"{world}, {link}", "message", len(found), len(cuts), faults))
    return faults


@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("world", "link"), PLACES)
def test_cut_at_every_message_of_a_tick_nothing_is_lost_or_doubled_and_it_is_told_rightly(
    grounds: Grounds, world: str, link: str
) -> None:
    assert sweep(grounds(world), world, link, EVERY) == []


@pytest.mark.parametrize(("world", "link"), PLACES)
def test_cut_at_some_messages_of_a_tick_nothing_is_lost_or_doubled_and_it_is_told_rightly(
    grounds: Grounds, world: str, link: str
) -> None:
    assert sweep(grounds(world), world, link, SOME) == []


def test_a_connection_cut_in_the_middle_of_a_copy_is_tried_again(grounds: Grounds) -> None:
    """libpq then tells of it as of an error of the server, only without a SQLSTATE."""
    here = grounds("archive, next batch")
    copies = [point.nth for point in points(here, "source") if point.kind == "Q"]
    assert copies
    cuts = [Cut(nth, way) for nth in copies for way in (AFTER, TORN)]
    assert [fault for cut in cuts for fault in trial(here, "source", cut)] == []


@pytest.mark.parametrize(
    ("link", "place", "way"),
    [("control", "Q", BEFORE), ("control", "Q", AFTER), ("source", "Q", AFTER)],
)
def test_a_tick_that_is_never_answered_is_ended_and_its_unit_done_by_another(
    grounds: Grounds, link: str, place: str, way: str
) -> None:
    """Both ends keep their connections, and neither is told: only the watchdog ends such a tick.

    The places are the settle, its answer, and the last answer of the source.
    """
    here = grounds("archive, next batch")
    nth = max(point.nth for point in points(here, link) if point.kind == place)
    with here.world() as world:
        with wire(world.stage.control, Cut(nth, way, silent=True)) as between:
            node = led(world, link, between).node
            run = here.launcher.run(node, operation=here.mould.operation, timeout=WATCHDOG_SECONDS)
            assert between.struck == place
        assert (run.signal, run.report) == (signal.SIGALRM, None)
        recover(world.stage)
        assert here.faults(world) == []


def test_a_server_that_does_not_speak_when_called_costs_seconds_and_nothing_else(
    grounds: Grounds,
) -> None:
    here = grounds("archive, next batch")
    with here.world() as world, wire(world.stage.control, Cut(1, BEFORE, silent=True)) as between:
        report = through(here, world, "control", between)
        assert report.outcome.ending is Ending.PROGRESSED
        assert between.seen[:2] == ["start", "start"]


@pytest.mark.parametrize("world", ["scan", "prune"])
def test_no_other_operation_talks_to_a_source(grounds: Grounds, world: str) -> None:
    assert points(grounds(world), "source") == []
