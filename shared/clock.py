"""The deadline of one invocation, on the monotonic clock; database time is the only wall clock."""

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
