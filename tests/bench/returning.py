"""Verifying and restoring an archive, beside unpacking its files with stock tools."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from shared.db.connect import connect
from shared.restore.archives import place
from shared.restore.restoration import Request, restore
from shared.volume.directory import verified
from tests.bench import running
from tests.bench.cost import Cost, cheapest
from tests.bench.ground import Ground, count, database, flights, ground, text
from tests.bench.running import quoted, shell
from tests.bench.tables import megabytes, table

ROUNDS = 3
BATCH = 100_000
# So many flights that starting a process does not matter.
TIMES = 6


def measure(server: str, home: Path) -> Iterator[str]:
    """Verify and restore the same archive with our commands and with pipes, in turn."""
    here = ground(server, home, "returning")
    what = flights(here)
    rows = _multiplied(here)
    directory = home / "returning"
    running.tallystick(
        *("archive", "export", "flights", "--until", "2030-01-01"),
        *("--directory", directory, "--batch-size", str(BATCH)),
        source_url=here.dsn,
        kinds_file=here.kinds,
    )
    files = sorted(directory.glob("*.sql.zst"))
    yield (
        f"{rows:,} {what} in {len(files)} batches, {megabytes(sum(map(_size, files)))} MB as stored."
        f" Best of {ROUNDS} rounds in turn."
    )
    yield from _verifying(directory, files)
    yield from _restoring(here, directory, files, rows)


def _multiplied(here: Ground) -> int:
    """Let every flight be there several times, and return how many are."""
    columns = text(
        here.dsn,
        "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute"
        " WHERE attrelid = 'flight'::regclass AND attnum > 1",
    )
    with connect(here.dsn) as connection:
        again = f"SELECT {columns} FROM flight, generate_series(2, {TIMES})"
        connection.execute(f"INSERT INTO flight ({columns}) {again}".encode())
        connection.execute("VACUUM ANALYZE flight")
    return count(here.dsn, "SELECT count(*) FROM flight")


def _verifying(directory: Path, files: list[Path]) -> Iterator[str]:
    inside, ours, pipes = [], [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        assert verified(directory).reason is None
        inside.append(time.perf_counter() - began)
        ours.append(running.tallystick("archive", "verify", directory).cost)
        pipes.append(shell(f"zstd -dcq {quoted(*files)} | sha256sum").cost)
    yield from _compared(
        "`tallystick archive verify`", "`zstd -dc`, sha256sum", ours, pipes, inside
    )


def _restoring(here: Ground, directory: Path, files: list[Path], rows: int) -> Iterator[str]:
    target = database(here.server, "bench_target")
    made = quoted("pg_dump", "--section=pre-data", "-t", "flight", "-d", here.dsn)
    shell(f"{made} | {quoted('psql', '-qX', '-o', '/dev/null', target)}")
    with connect(target) as connection:
        connection.execute("ALTER TABLE flight ADD PRIMARY KEY (id)")
    psql = quoted("psql", "-qX", "-v", "ON_ERROR_STOP=1", "-1", target)
    inside, ours, pipes = [], [], []
    for _ in range(ROUNDS):
        _empty(target)
        began = time.perf_counter()
        restore([place(directory)], target, Request())
        inside.append(time.perf_counter() - began)
        _empty(target)
        ours.append(running.tallystick("archive", "restore", directory, "--to", target).cost)
        assert count(target, "SELECT count(*) FROM flight") == rows
        _empty(target)
        pipes.append(shell(f"zstd -dcq {quoted(*files)} | {psql}").cost)
        assert count(target, "SELECT count(*) FROM flight") == rows
    yield from _compared(
        "`tallystick archive restore`", "`zstd -dc`, `psql -1`", ours, pipes, inside
    )


def _empty(target: str) -> None:
    with connect(target) as connection:
        connection.execute("TRUNCATE flight")
        connection.execute("DROP SCHEMA IF EXISTS tallystick_restore CASCADE")
        # So that no round writes out what the one before it left.
        connection.execute("CHECKPOINT")


def _compared(
    our_name: str,
    pipe_name: str,
    ours: Sequence[Cost],
    pipes: Sequence[Cost],
    inside: Sequence[float],
) -> Iterator[str]:
    best, pipe = cheapest(ours), cheapest(pipes)
    yield from table(
        ["", ">Seconds", ">CPU s", ">Peak MB", ">Pace to the pipe", ">without our start"],
        [
            [
                *_figures(our_name, best),
                f"{pipe.seconds / best.seconds:.2f}",
                f"{pipe.seconds / min(inside):.2f}",
            ],
            [*_figures(pipe_name, pipe), "1", "1"],
        ],
    )


def _figures(name: str, cost: Cost) -> list[str]:
    return [
        *(name, f"{cost.seconds:.2f}", f"{cost.cpu_seconds:.2f}"),
        megabytes(cost.peak_bytes),
    ]


def _size(file: Path) -> int:
    return file.stat().st_size
