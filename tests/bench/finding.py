"""Looking up one root by its key in an archive of millions, by way of a ready index."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from shared.restore.archives import place
from shared.restore.find import find
from tests.bench import running
from tests.bench.cost import cheapest
from tests.bench.ground import Ground, ground, tickets
from tests.bench.tables import megabytes, table

ROOTS = 2_000_000
SIZES = (1_000, 10_000)
LOOKUPS = 200
COMMANDS = 5


def measure(server: str, home: Path) -> Iterator[str]:
    """Look up roots at random in archives of the same roots in smaller and larger batches."""
    here = ground(server, home, "finding")
    tickets(here, ROOTS)
    yield f"{ROOTS:,} tickets of about 70 bytes; {LOOKUPS} keys at random, every one of them there."
    rows = [_row(here, size) for size in SIZES]
    start = cheapest([running.tallystick("--version").cost for _ in range(COMMANDS)])
    yield from table(
        [
            *(
                "Roots a batch",
                ">Index built in",
                ">A lookup (median)",
                ">95 of 100 within",
                ">CPU",
            ),
            *(">As a command", ">its CPU", ">Peak MB"),
        ],
        rows,
    )
    yield f"A command that does nothing (`tallystick --version`) takes {start.seconds * 1000:.0f} ms."


def _row(here: Ground, size: int) -> list[str]:
    directory = here.home / f"tickets-{size}"
    running.tallystick(
        *("archive", "export", "tickets", "--until", "2030-01-01"),
        *("--directory", directory, "--batch-size", str(size)),
        source_url=here.dsn,
        kinds_file=here.kinds,
    )
    folder = here.home / "index"
    archive = place(directory)
    began = time.perf_counter()
    find([archive], "1", folder, _silent)
    built = time.perf_counter() - began
    draw = random.Random(1)
    seconds = []
    cpu_began = time.process_time()
    for _ in range(LOOKUPS):
        key = str(draw.randint(1, ROOTS))
        began = time.perf_counter()
        (found,) = find([archive], key, folder, _silent)
        seconds.append(time.perf_counter() - began)
        assert found.rows[0][1][0][0] == key
    cpu_seconds = (time.process_time() - cpu_began) / LOOKUPS
    command = cheapest(
        [
            running.tallystick("archive", "find", directory, key, "--index", folder, "--json").cost
            for _ in range(COMMANDS)
        ]
    )
    return [
        *(f"{size:,}", f"{built:.1f} s", f"{statistics.median(seconds) * 1000:.1f} ms"),
        f"{statistics.quantiles(seconds, n=20)[-1] * 1000:.1f} ms",
        f"{cpu_seconds * 1000:.1f} ms",
        *(f"{command.seconds * 1000:.0f} ms", f"{command.cpu_seconds * 1000:.0f} ms"),
        megabytes(command.peak_bytes),
    ]


def _silent(_done: int, _total: int) -> None:
    return
