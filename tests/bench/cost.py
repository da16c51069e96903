"""What a command costs, ours and a peer's alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


def best_in_turn(runs: Mapping[str, Callable[[], Cost]], rounds: int) -> dict[str, Cost]:
    """Return the best of each over several rounds; in turn, so that what else goes on meets all alike."""
    costs: dict[str, list[Cost]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            costs[name].append(run())
    return {name: cheapest(each) for name, each in costs.items()}
