"""What a tick is measured by, from its report alone."""

from __future__ import annotations

from typing import Any

import pytest

from shared import metrics
from shared.errors import Code
from shared.jobs.model import Ending, Job, Outcome, State
from shared.metrics import MEASURES, Metric, added, grouped, measured
from shared.tick import PHASES, Report


def a_job(**changes: Any) -> Job:  # noqa: ANN401 - the members of Job
    values: dict[str, Any] = dict.fromkeys(Job.__dataclass_fields__)
    values |= {"operation": "archive", "kind": "invoices", "state": State.PENDING}
    return Job(**(values | changes))


def settled(job: Job | None = None, **changes: Any) -> Report:  # noqa: ANN401 - the members of Report
    """Return the report of a unit of ten roots that was settled."""
    params = {"roots": 10, "rows": 35, "bytes": 4096, "evidence": {}}
    values: dict[str, Any] = {
        "scheduled": 1,
        "job": job or a_job(),
        "seq": 3,
        "oldest_due_seconds": 12.5,
        "volume_used_bytes": 10_000,
        "volume_max_bytes": 20_000,
        "seconds": 2.0,
        "phases": dict.fromkeys(PHASES, 0.25),
    }
    return Report(Outcome(Ending.PROGRESSED, params=params), **(values | changes))


def failed(ending: Ending, code: Code | None) -> Report:
    return Report(Outcome(ending, code), job=a_job(), seconds=1.0, phases={"prepare": 1.0})


def values(report: Report) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(each.name, each.dimensions): each.value for each in measured(report)}


def test_a_settled_unit_is_counted_with_its_roots_rows_and_bytes() -> None:
    found = values(settled())
    work = (("operation", "archive"), ("kind", "invoices"))
    assert found["Ticks", (("outcome", "progressed"),)] == 1
    assert found["SettledUnits", work] == 1
    assert found["SettledRoots", work] == 10
    assert found["SettledRows", work] == 35
    assert found["SettledBytes", work] == 4096
    assert found["PhaseSeconds", (("phase", "verify"),)] == 0.25
    assert found["OldestDueSeconds", ()] == 12.5
    assert (found["VolumeUsedBytes", ()], found["VolumeMaxBytes", ()]) == (10_000, 20_000)
    assert (found["Takeovers", ()], found["ScheduledJobs", ()]) == (0, 1)
    assert not [name for name, _ in found if name == "FailedTicks"]


@pytest.mark.parametrize(
    "ending",
    [Ending.WAITING, Ending.PAUSED, Ending.FAILED, Ending.STALE, Ending.UNCERTAIN],
)
def test_a_tick_that_got_nowhere_is_counted_by_its_code(ending: Ending) -> None:
    found = values(failed(ending, Code.EXPORT_FAILED))
    assert found["FailedTicks", (("outcome", str(ending)), ("code", "EXPORT_FAILED"))] == 1
    assert not [name for name, _ in found if name.startswith("Settled")]


def test_an_idle_tick_is_no_failure_whatever_its_code() -> None:
    found = values(Report(Outcome(Ending.IDLE, Code.VOLUME_NOT_CONFIGURED)))
    assert not [name for name, _ in found if name == "FailedTicks"]


def test_a_takeover_is_counted() -> None:
    assert values(settled(reclaimed=True))["Takeovers", ()] == 1


def test_what_was_not_found_out_is_left_out_and_nothing_is_zero() -> None:
    found = values(failed(Ending.WAITING, Code.DATABASE_UNAVAILABLE))
    names = {name for name, _ in found}
    assert not names & {"OldestDueSeconds", "VolumeUsedBytes", "VolumeMaxBytes"}
    assert ("OldestDueSeconds", ()) in values(settled(oldest_due_seconds=0.0))


def test_every_measure_is_taken_by_some_report_and_with_its_own_dimensions() -> None:
    taken = [*measured(settled()), *measured(failed(Ending.FAILED, Code.STORAGE_LIMIT))]
    assert {metric.measure for metric in taken} == set(MEASURES)
    for metric in taken:
        assert tuple(name for name, _ in metric.dimensions) == metric.measure.dimensions
        assert all(value for _, value in metric.dimensions)


def test_a_scan_has_no_kind_and_still_every_dimension() -> None:
    found = values(settled(a_job(operation="scan", kind=None)))
    assert found["SettledUnits", (("operation", "scan"), ("kind", "-"))] == 1


def test_sums_go_on_and_gauges_are_those_of_the_latest_tick_alone() -> None:
    totals = added({}, measured(settled()))
    totals = added(totals, measured(settled(oldest_due_seconds=1.0, volume_used_bytes=None)))
    assert totals["SettledRoots", ("archive", "invoices")] == 20
    assert totals["TickSeconds", ()] == 4.0
    assert totals["OldestDueSeconds", ()] == 1.0
    assert ("VolumeUsedBytes", ()) not in totals


def test_adding_changes_nothing_in_what_was_there() -> None:
    before = added({}, measured(settled()))
    kept = dict(before)
    added(before, measured(settled()))
    assert before == kept


def test_metrics_of_one_group_share_their_dimensions_and_none_is_lost() -> None:
    found = measured(settled())
    groups = grouped(found)
    assert sorted(metric.name for group in groups.values() for metric in group) == sorted(
        metric.name for metric in found
    )
    for dimensions, group in groups.items():
        assert {metric.dimensions for metric in group} == {dimensions}
        names = [metric.name for metric in group]
        assert len(names) == len(set(names))


def test_names_say_their_unit_and_are_those_of_the_text_format() -> None:
    for measure in MEASURES:
        if measure.unit is not metrics.Unit.COUNT:
            assert measure.name.endswith(str(measure.unit))
    assert metrics.SETTLED_BYTES.text_name == "tallystick_settled_bytes"
    assert len({measure.name for measure in MEASURES}) == len(MEASURES)
    assert Metric(metrics.TICKS, 1).unit == "Count"
