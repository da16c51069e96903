"""What the process of ticks holds in memory at its peak: over the size of rows, and over their number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.bench.ground import Ground, documents, ground, tickets
from tests.bench.tables import megabytes, table
from tests.bench.ticking import by_ticks

FEW, MANY = 10_000, 1_000_000
LARGE_ROWS = 200
LARGE_BYTES = 1_000_000


def measure(server: str, home: Path) -> Iterator[str]:
    """Archive rows of a megabyte, few small rows and many, and tell the peak of each process."""
    here = ground(server, home, "memory")
    documents(here, LARGE_ROWS, LARGE_BYTES)
    rows = [_row(here, "documents", f"{LARGE_ROWS} rows of {LARGE_BYTES / 1e6:.0f} MB", 100)]
    for number in (FEW, MANY):
        tickets(here, number)
        rows += [
            _row(here, "tickets", f"{number:,} small rows", size) for size in (10_000, 100_000)
        ]
    yield from table(["Table", ">Roots a tick", ">Ticks", ">Peak MB", ">A tick"], rows)
    yield "At most 150 MB is wanted, and no more for many rows than for few."


def _row(here: Ground, kind: str, what: str, size: int) -> list[str]:
    done = by_ticks(here, kind, size)
    return [
        *(what, f"{size:,}", str(len(done.ticks))),
        *(megabytes(done.cost.peak_bytes), f"{done.median * 1000:.0f} ms"),
    ]
