"""What a sweep tried and found, one JSON line for each kind of call, and a table of it.

With TALLYSTICK_TEST_RESULTS set to a directory the lines are kept there; ``python -m tests.crash.record DIR``
prints them as a table.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

# Read before any test runs: a test sees none of the developer's own settings.
RESULTS = os.environ.get("TALLYSTICK_TEST_RESULTS")


@dataclass(frozen=True)
class Line:
    """What was done (``sweep``) in which world at one kind of call.

    ``points`` are the distinct things done: each at one call, in one way. ``trials`` says how many were
    carried through, ``failures`` what the judge said, each with its point.
    """

    sweep: str
    world: str
    call: str
    points: int
    trials: int
    failures: Sequence[str]


def keep(line: Line) -> None:
    """Keep a line, if a directory was named."""
    if RESULTS is None:
        return
    directory = Path(RESULTS)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"crash-{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(asdict(line)) + "\n")


def table(directory: Path) -> list[str]:
    """Return the lines of a directory summed up by sweep and world."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for file in sorted(directory.glob("crash-*.jsonl")):
        for text in file.read_text().splitlines():
            line = Line(**json.loads(text))
            for at, count in enumerate((line.points, line.trials, len(line.failures))):
                sums[line.sweep, line.world][at] += count
    heading = f"{'sweep':<8} {'world':<22} {'points':>7} {'trials':>7} {'faults':>7}"
    return [
        heading,
        *(
            f"{sweep:<8} {world:<22} {counts[0]:>7} {counts[1]:>7} {counts[2]:>7}"
            for (sweep, world), counts in sorted(sums.items())
        ),
    ]


if __name__ == "__main__":
    sys.stdout.write("\n".join(table(Path(sys.argv[1]))) + "\n")
