"""The deadline of one invocation runs on the monotonic clock."""

from __future__ import annotations

import time

import pytest

from shared.clock import READING_SHARE, Deadline, Stopwatch


class Clock:
    """A monotonic clock that stands still until told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_time_left_runs_down_to_zero_and_not_below(clock: Clock) -> None:
    deadline = Deadline.after(45)
    assert (deadline.left(), deadline.spent(), deadline.passed()) == (45, 0, False)
    clock.now += 44
    assert (deadline.left(), deadline.spent(), deadline.passed()) == (1, 44, False)
    clock.now += 1
    assert (deadline.left(), deadline.spent(), deadline.passed()) == (0, 45, True)
    clock.now += 100
    assert (deadline.left(), deadline.spent(), deadline.passed()) == (0, 145, True)


def test_reading_ends_early_enough_to_publish_and_settle(clock: Clock) -> None:
    deadline = Deadline.after(45)
    clock.now += 10
    reading = deadline.for_reading()
    assert reading.ends == pytest.approx(1000 + 45 * READING_SHARE)
    assert deadline.ends - reading.ends > 10
    assert reading.for_reading().ends < reading.ends


def test_a_wall_clock_that_jumps_moves_no_deadline(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline = Deadline.after(45)
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert deadline.left() == 45


def test_a_phase_lasts_until_the_next_begins_and_may_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = iter([0.0, 1.0, 3.0, 6.0, 10.0])
    monkeypatch.setattr("shared.clock.time.monotonic", lambda: next(now))
    watch = Stopwatch()
    watch.begin("claim")
    watch.begin("do")
    watch.begin("claim")
    assert watch.phases() == {"claim": 6.0, "do": 3.0}
