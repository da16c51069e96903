"""How long commands take that have next to nothing to do, beside a Python that has nothing to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.bench import running
from tests.bench.cost import Cost, best_in_turn
from tests.bench.ground import ground, tickets
from tests.bench.tables import table

ROOTS = 5_000
ROUNDS = 15


def measure(server: str, home: Path) -> Iterator[str]:
    """Start each command in turn, several times, and compare the best of each."""
    here = ground(server, home, "starting")
    tickets(here, ROOTS)
    archive = home / "small"
    running.tallystick(
        *("archive", "export", "tickets", "--until", "2030-01-01", "--directory", archive),
        source_url=here.dsn,
        kinds_file=here.kinds,
    )
    commands: dict[str, list[str | Path]] = {
        "`python -c pass`": [sys.executable, "-c", "pass"],
        "`tallystick --version`": [running.TALLYSTICK, "--version"],
        "`tallystick --help`": [running.TALLYSTICK, "--help"],
        f"`tallystick archive verify`, {ROOTS:,} roots": [
            running.TALLYSTICK,
            "archive",
            "verify",
            archive,
        ],
    }
    runs = {name: partial(_once, command) for name, command in commands.items()}
    best = best_in_turn(runs, ROUNDS)
    nothing = next(iter(best.values()))
    yield f"Best of {ROUNDS} rounds in turn."
    yield from table(
        ["", ">Seconds", ">CPU s", ">Peak MB", ">Times `python -c pass`"],
        [
            [
                name,
                f"{cost.seconds:.2f}",
                f"{cost.cpu_seconds:.2f}",
                f"{cost.peak_bytes / 1e6:.0f}",
                f"{cost.seconds / nothing.seconds:.1f}",
            ]
            for name, cost in best.items()
        ],
    )


def _once(command: list[str | Path]) -> Cost:
    return running.run(*command).cost
