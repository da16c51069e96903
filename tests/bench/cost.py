"""What a command costs, ours and a peer's alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Seconds by the clock, user and system seconds of all processes, peak bytes of the largest."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def cheapest(costs: Sequence[Cost]) -> Cost:
    """Return the best of several rounds, figure by figure; of the peaks the highest."""
    return Cost(
        min(cost.seconds for cost in costs),
        min(cost.cpu_seconds for cost in costs),
        max(cost.peak_bytes for cost in costs),
    )
