"""A connection that is cut at any message of a tick loses nothing, doubles nothing, and is told rightly."""

from __future__ import annotations

import signal
from dataclasses import dataclass

import pytest

from shared.errors import Code
from shared.jobs.model import Ending, State
from shared.tick import Report, Wanted, tick
from tests.crash import record
from tests.crash.conftest import Grounds
from tests.crash.scene import Scene
from tests.crash.trial import Ground, recover, sessions_end
from tests.crash.wire import AFTER, ANSWERED, BEFORE, TORN, Cut, Wire, wire
from tests.operations import stage
from tests.operations.stage import Stage
from tests.worlds import one

pytestmark = pytest.mark.system

# Every connection of every operation's tick.
PLACES = (
    ("archive", "control"),
    ("archive", "source"),
    ("archive, next batch", "control"),
    ("archive, next batch", "source"),
    ("scan", "control"),
    ("prune", "control"),
)
# The gate tries every such cut; next to the number of cuts at a message, so that all kinds come up.
SOME = 7
# Longer than the tick needs up to there, shorter than anything else that would end it.
WATCHDOG_SECONDS = 8.0
WELL = {Ending.PROGRESSED, Ending.FINISHED}
# What a tick may say of a connection that was cut.
TOLD = {
    "control": {Code.DATABASE_UNAVAILABLE, Code.OUTCOME_UNKNOWN},
    "source": {Code.EXPORT_FAILED},
}


def led(world: Scene, link: str, between: Wire) -> Stage:
    """Return the stage with one of its node's two connections led through a wire."""
    if link == "control":
        return world.stage.changed(control_dsn=between.dsn)
    return world.stage.changed(sources=dict.fromkeys(world.stage.node.sources, between.dsn))


def through(here: Ground, world: Scene, link: str, between: Wire) -> Report:
    """Tick once with one of the two connections led through a wire."""
    return tick(led(world, link, between).node, Wanted(operation=here.mould.operation))


@dataclass(frozen=True)
class Point:
    """A message of an undisturbed tick, by its number and the protocol's letter."""

    nth: int
    kind: str

    @property
    def cuts(self) -> list[Cut]:
        """Return the ways to be cut here that differ: one that nobody answers is not cut after."""
        if self.kind not in ANSWERED:
            return [Cut(self.nth, BEFORE)]
        ways = [Cut(self.nth, way) for way in (BEFORE, AFTER, TORN)]
        return [*ways, *(Cut(self.nth, way, away=True) for way in (BEFORE, AFTER))]


def points(here: Ground, link: str) -> list[Point]:
    """Return the messages of a tick that is not cut."""
    with here.world() as world, wire(world.stage.control) as between:
        report = through(here, world, link, between)
        assert report.outcome.ending in WELL, report
        return [Point(nth, kind) for nth, kind in enumerate(between.seen, 1)]


def told(*links: str) -> set[Code]:
    """Return the codes a tick may end with when these connections were cut."""
    return {code for link in links for code in TOLD[link]}


def units(world: Scene) -> int:
    """Return how many units are recorded."""
    return int(one(world.stage.control, "SELECT count(*) FROM tallystick.unit"))


def untrue(world: Scene, report: Report, codes: set[Code], before: int) -> list[str]:
    """Return what the report of a tick says that the database does not, after ``before`` units."""
    outcome, here = report.outcome, world.stage
    settled = units(world) - before
    said = f"it said {outcome.ending} {outcome.code} {outcome.params}"
    faults = []
    if outcome.ending in WELL:
        job = report.job and one(
            here.control, "SELECT batches FROM tallystick.job WHERE id = %s", report.job.id
        )
        if settled != 1 or job != report.seq:
            faults.append(f"{said}, and {settled} units were recorded")
        return faults
    if outcome.code not in codes:
        faults.append(said)
    if outcome.ending is Ending.UNCERTAIN:
        return faults
    if outcome.ending is not Ending.WAITING:
        return [said]
    if settled:
        faults.append(f"{said}, and {settled} units were recorded")
    states = {job.state for job in stage.jobs(here)}
    if State.RUNNING in states:
        faults.append(f"{said}, and left a job RUNNING")
    return faults


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
    assert sweep(grounds(world), world, link, every=1) == []


@pytest.mark.parametrize(("world", "link"), PLACES)
def test_cut_at_some_messages_of_a_tick_nothing_is_lost_or_doubled_and_it_is_told_rightly(
    grounds: Grounds, world: str, link: str
) -> None:
    assert sweep(grounds(world), world, link, every=SOME) == []


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
