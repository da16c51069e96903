"""What it costs to list jobs and tails and to examine an installation, beside few closed jobs and many.

``TALLYSTICK_BENCH_JOBS`` says how many are many.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from shared.db.migrate import migrate
from tests.bench import running
from tests.bench.cost import Cost, best_in_turn
from tests.bench.ground import database
from tests.bench.tables import table
from tests.postgres.long_history import filled

FEW = 100
MANY = int(os.environ.get("TALLYSTICK_BENCH_JOBS", "1000000"))
ROUNDS = 7
COMMANDS = {
    "`jobs list`": ("jobs", "list"),
    "`jobs list --namespace default`": ("jobs", "list", "--namespace", "default"),
    "`archive tails`": ("archive", "tails"),
    "`recovery list`": ("recovery", "list"),
    "`doctor`": ("doctor",),
}


def measure(server: str, home: Path) -> Iterator[str]:
    """Run each command in turn on both databases, several times, and compare the best of each."""
    settings = {jobs: _installation(server, home, jobs) for jobs in (FEW, MANY)}
    runs = {
        f"{name} {jobs}": partial(_once, command, settings[jobs])
        for name, command in COMMANDS.items()
        for jobs in (FEW, MANY)
    }
    best = best_in_turn(runs, ROUNDS)
    yield f"Best of {ROUNDS} rounds in turn; at most 1.5 times is wanted."
    yield from table(
        ["", f">{FEW} closed jobs, s", f">{MANY:,} closed jobs, s", ">Times"],
        [
            [
                name,
                f"{best[f'{name} {FEW}'].seconds:.2f}",
                f"{best[f'{name} {MANY}'].seconds:.2f}",
                f"{best[f'{name} {MANY}'].seconds / best[f'{name} {FEW}'].seconds:.2f}",
            ]
            for name in COMMANDS
        ],
    )


def _installation(server: str, home: Path, jobs: int) -> dict[str, str]:
    dsn = database(server, f"bench_list_{jobs}")
    migrate(dsn)
    root = home / f"volume-{jobs}"
    root.mkdir(mode=0o700)
    return {
        "TALLYSTICK_DATABASE_URL": dsn,
        "TALLYSTICK_ARCHIVE_ROOT": str(root),
        "TALLYSTICK_ARCHIVE_STORAGE_ID": filled(dsn, jobs, root).storage_id,
    }


def _once(command: tuple[str, ...], settings: dict[str, str]) -> Cost:
    # `doctor` finds the open jobs that wait for somebody, and says so by its exit code.
    words = running.quoted(running.TALLYSTICK, *command)
    return running.run("sh", "-c", f"{words} || test $? = 1", env=settings).cost
