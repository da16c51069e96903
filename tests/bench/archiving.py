"""Archiving a table by ticks, beside what stock tools and another loader make of the same rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from tests.bench import peers
from tests.bench.cost import Cost, cheapest
from tests.bench.ground import Ground, count, flights, ground
from tests.bench.tables import megabytes, table
from tests.bench.ticking import Ticked, by_ticks

SIZES = (10_000, 100_000)
ROUNDS = 3
# Half a minute each, and far from the rest: one round will do.
ONCE = {"dlt, sqlalchemy"}

PIPES = {"a pipe": peers.PIPE_A_BATCH, "a lean pipe": peers.LEAN_PIPE_A_BATCH}

Step = Callable[[], Cost]


def measure(server: str, home: Path) -> Iterator[str]:
    """Compare ticks with a pipe per batch for two sizes of batch, one pipe for all, pg_dump, and dlt."""
    here = ground(server, home, "flights")
    what = flights(here)
    rows = count(here.dsn, "SELECT count(*) FROM flight")
    raw_bytes = peers.raw_bytes(here)
    yield (
        f"{rows:,} {what}, {megabytes(raw_bytes)} MB as COPY prints them. Best of {ROUNDS} rounds in turn"
        f" ({', '.join(ONCE)}: one)."
    )
    ticked: dict[int, list[Ticked]] = {size: [] for size in SIZES}
    loader = peers.loader()

    def ticks(size: int) -> Step:
        def step() -> Cost:
            ticked[size].append(by_ticks(here, "flights", size))
            return ticked[size][-1].cost

        return step

    steps: dict[str, Step] = {}
    for size in SIZES:
        steps[f"ticks of {size:,}"] = ticks(size)
        for name, script in PIPES.items():
            steps[f"{name} for each {size:,}"] = partial(
                peers.pipe_a_batch, script, here, rows, size
            )
    steps["one pipe for all"] = partial(peers.one_pipe, here)
    steps["`pg_dump -Fc -Z0`, zstd -3"] = partial(peers.dump, here)
    for backend in peers.BACKENDS:
        steps[f"dlt, {backend}"] = partial(peers.load, loader, here, backend)
    best = _best(here, steps)
    yield from table(
        ["", ">Seconds", ">Rows/s", ">MB/s", ">CPU s", ">Peak MB"],
        [_row(name, cost, rows, raw_bytes) for name, cost in best.items()],
    )
    yield from _ratios(best, ticked)


def _best(here: Ground, steps: Mapping[str, Step]) -> dict[str, Cost]:
    costs: dict[str, list[Cost]] = {name: [] for name in steps}
    for number in range(ROUNDS):
        for name, step in steps.items():
            if number and name in ONCE:
                continue
            shutil.rmtree(here.home / "peer", ignore_errors=True)
            (here.home / "peer").mkdir()
            costs[name].append(step())
    return {name: cheapest(found) for name, found in costs.items()}


def _row(name: str, cost: Cost, rows: int, raw_bytes: int) -> list[str]:
    return [
        name,
        f"{cost.seconds:.2f}",
        f"{rows / cost.seconds:,.0f}",
        f"{raw_bytes / cost.seconds / 1e6:.1f}",
        f"{cost.cpu_seconds:.2f}",
        megabytes(cost.peak_bytes),
    ]


def _ratios(best: Mapping[str, Cost], ticked: Mapping[int, list[Ticked]]) -> Iterator[str]:
    """Tell what a tick takes, and the pace of the ticks alone to that of each peer."""
    listed = []
    for size, rounds in ticked.items():
        ours = best[f"ticks of {size:,}"]
        ticks = len(rounds[0].ticks)
        alone = min(sum(each.ticks) for each in rounds)
        others = [
            *(best[f"{name} for each {size:,}"] for name in PIPES),
            *(best[f"dlt, {backend}"] for backend in peers.BACKENDS),
        ]
        listed.append(
            [
                *(f"{size:,}", str(ticks), f"{alone:.2f}"),
                f"{min(each.median for each in rounds) * 1000:.0f} ms",
                f"{ours.cpu_seconds / ticks * 1000:.0f} ms",
                *(f"{other.seconds / alone:.2f}" for other in others),
            ]
        )
    yield from table(
        [
            *("Roots a tick", ">Ticks", ">Seconds in ticks", ">A tick", ">CPU a tick"),
            *(f">Pace to {name} a batch" for name in PIPES),
            *(f">to dlt, {backend}" for backend in peers.BACKENDS),
        ],
        listed,
    )
