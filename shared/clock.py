"""The deadline and the stopwatch of one invocation, on the monotonic clock.

Database time is the only wall clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

# A unit reads its source during the first part of the deadline and keeps the rest for what must follow:
# reading back, publishing, settling. 0.7 of 45 s leaves 13.5 s, several times what those take for 128 MiB.
READING_SHARE = 0.7


@dataclass(frozen=True)
class Deadline:
    """An instant of ``time.monotonic`` by which this invocation's work must have ended."""

    started: float
    ends: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline that ends ``seconds`` from now."""
        now = time.monotonic()
        return cls(started=now, ends=now + seconds)

    def left(self) -> float:
        """Return the seconds left, never below zero."""
        return max(0.0, self.ends - time.monotonic())

    def spent(self) -> float:
        """Return the seconds since this deadline was set."""
        return time.monotonic() - self.started

    def passed(self) -> bool:
        """Tell whether no time is left."""
        return time.monotonic() >= self.ends

    def for_reading(self) -> Deadline:
        """Return the earlier deadline by which reading a source must have ended."""
        return Deadline(self.started, self.started + (self.ends - self.started) * READING_SHARE)


class Stopwatch:
    """Seconds by phase: a phase lasts until the next one begins, whatever ends it."""

    def __init__(self) -> None:
        """Begin with no phase."""
        self._phases: dict[str, float] = {}
        self._phase: str | None = None
        self._since = time.monotonic()

    def begin(self, phase: str) -> None:
        """End the phase that is on, if any, and begin another, or one of before once more."""
        self._end()
        self._phase = phase

    def phases(self) -> dict[str, float]:
        """Return the seconds of each phase that began, up to now, in the order of their beginnings."""
        self._end()
        return {phase: round(seconds, 3) for phase, seconds in self._phases.items()}

    def _end(self) -> None:
        now = time.monotonic()
        if self._phase is not None:
            self._phases[self._phase] = self._phases.get(self._phase, 0.0) + now - self._since
        self._since = now
