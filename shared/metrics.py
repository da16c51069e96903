"""What a tick is measured by: a report as values with names, units and dimensions, and their sums.

Every name stands in ``MEASURES``, once; ``docs/reference/metrics.md`` says the same to people.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from shared.jobs.model import Ending

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from shared.tick import Report

# What a tick that got nowhere is counted by; idle is no failure, whatever its code.
FAILURES = frozenset({Ending.WAITING, Ending.PAUSED, Ending.FAILED, Ending.STALE, Ending.UNCERTAIN})
SETTLED = frozenset({Ending.PROGRESSED, Ending.FINISHED})


class Unit(StrEnum):
    """What a value counts, in the words of CloudWatch."""

    COUNT = "Count"
    SECONDS = "Seconds"
    BYTES = "Bytes"


@dataclass(frozen=True)
class Measure:
    """One thing that is measured.

    A gauge is what the latest tick found; everything else is what one tick adds, and may be summed.
    """

    name: str
    unit: Unit
    dimensions: tuple[str, ...]
    meaning: str
    gauge: bool = False

    @property
    def text_name(self) -> str:
        """Return the name in the text format of Prometheus, but for the ``_total`` of sums."""
        return "tallystick" + re.sub("([A-Z])", r"_\1", self.name).lower()


@dataclass(frozen=True)
class Metric:
    """One value of one tick; ``dimensions`` are pairs of name and value, in the order of the measure."""

    measure: Measure
    value: float
    dimensions: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Return the name of what was measured."""
        return self.measure.name

    @property
    def unit(self) -> Unit:
        """Return the unit of the value."""
        return self.measure.unit


WORK = ("operation", "kind")
TICKS = Measure("Ticks", Unit.COUNT, ("outcome",), "Ticks, by how they ended.")
TICK_SECONDS = Measure("TickSeconds", Unit.SECONDS, (), "Time that ticks took.")
PHASE_SECONDS = Measure(
    "PhaseSeconds", Unit.SECONDS, ("phase",), "Time that the phases of ticks took."
)
FAILED_TICKS = Measure(
    "FailedTicks",
    Unit.COUNT,
    ("outcome", "code"),
    "Ticks that got nowhere, by the code of what was in the way.",
)
SCHEDULED_JOBS = Measure("ScheduledJobs", Unit.COUNT, (), "Jobs that plans made.")
TAKEOVERS = Measure(
    "Takeovers", Unit.COUNT, (), "Units begun by a process that died or hung, and taken over."
)
SETTLED_UNITS = Measure("SettledUnits", Unit.COUNT, WORK, "Units that were done and recorded.")
SETTLED_ROOTS = Measure(
    "SettledRoots", Unit.COUNT, WORK, "Roots of those units; of a scan, the files it looked at."
)
SETTLED_ROWS = Measure("SettledRows", Unit.COUNT, WORK, "Rows of those units, roots among them.")
SETTLED_BYTES = Measure(
    "SettledBytes", Unit.BYTES, WORK, "Bytes of those units as stored; of a scan, bytes verified."
)
OLDEST_DUE_SECONDS = Measure(
    "OldestDueSeconds",
    Unit.SECONDS,
    (),
    "How long the oldest due job had waited when the tick began; 0 when none was due.",
    gauge=True,
)
VOLUME_USED_BYTES = Measure(
    "VolumeUsedBytes",
    Unit.BYTES,
    (),
    "What the volume held when the tick began, with what was set aside.",
    gauge=True,
)
VOLUME_MAX_BYTES = Measure(
    "VolumeMaxBytes", Unit.BYTES, (), "The byte budget of the volume.", gauge=True
)
MEASURES = (
    *(TICKS, TICK_SECONDS, PHASE_SECONDS, FAILED_TICKS, SCHEDULED_JOBS, TAKEOVERS),
    *(SETTLED_UNITS, SETTLED_ROOTS, SETTLED_ROWS, SETTLED_BYTES),
    *(OLDEST_DUE_SECONDS, VOLUME_USED_BYTES, VOLUME_MAX_BYTES),
)


def measured(report: Report) -> tuple[Metric, ...]:
    """Return all that one report is measured by; what was not found out is left out."""
    return tuple(_measured(report))


def _measured(report: Report) -> Iterator[Metric]:
    outcome = report.outcome
    yield Metric(TICKS, 1, (("outcome", str(outcome.ending)),))
    yield Metric(TICK_SECONDS, report.seconds)
    for phase, seconds in report.phases.items():
        yield Metric(PHASE_SECONDS, seconds, (("phase", phase),))
    if outcome.ending in FAILURES and outcome.code is not None:
        pairs = (("outcome", str(outcome.ending)), ("code", str(outcome.code)))
        yield Metric(FAILED_TICKS, 1, pairs)
    yield Metric(SCHEDULED_JOBS, report.scheduled)
    yield Metric(TAKEOVERS, int(report.reclaimed))
    if outcome.ending in SETTLED and report.job is not None:
        # A scan has no kind; a dimension has to have a value.
        work = (("operation", report.job.operation), ("kind", report.job.kind or "-"))
        yield Metric(SETTLED_UNITS, 1, work)
        yield Metric(SETTLED_ROOTS, outcome.params["roots"], work)
        yield Metric(SETTLED_ROWS, outcome.params["rows"], work)
        yield Metric(SETTLED_BYTES, outcome.params["bytes"], work)
    for measure, value in (
        (OLDEST_DUE_SECONDS, report.oldest_due_seconds),
        (VOLUME_USED_BYTES, report.volume_used_bytes),
        (VOLUME_MAX_BYTES, report.volume_max_bytes),
    ):
        if value is not None:
            yield Metric(measure, value)


Totals = dict[tuple[str, tuple[str, ...]], float]


def added(totals: Mapping[tuple[str, tuple[str, ...]], float], metrics: Iterable[Metric]) -> Totals:
    """Return the totals after one more tick: sums go on, gauges are those of this tick alone.

    The keys are the name of the measure and the values of its dimensions.
    """
    gauges = {measure.name for measure in MEASURES if measure.gauge}
    after = {key: value for key, value in totals.items() if key[0] not in gauges}
    for metric in metrics:
        key = (metric.name, tuple(value for _, value in metric.dimensions))
        after[key] = after.get(key, 0.0) + metric.value
    return after


def grouped(metrics: Iterable[Metric]) -> dict[tuple[tuple[str, str], ...], list[Metric]]:
    """Return metrics by their dimensions, since those of one EMF object share theirs."""
    groups: dict[tuple[tuple[str, str], ...], list[Metric]] = {}
    for metric in metrics:
        groups.setdefault(metric.dimensions, []).append(metric)
    return groups
