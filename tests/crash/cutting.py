"""What a tick says when one of its connections goes away, held against what the database has."""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import Code
from shared.jobs.model import Ending, State
from shared.tick import Report, Wanted, tick
from tests.crash.scene import Scene
from tests.crash.trial import Ground
from tests.crash.wire import AFTER, ANSWERED, BEFORE, TORN, Cut, Wire, wire
from tests.operations import stage
from tests.operations.stage import Stage
from tests.worlds import one

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
