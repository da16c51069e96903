"""Archiving a table by ticks, beside the pipes that stock tools make of the same rows."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import make_conninfo

from shared.archive.kinds import parse
from shared.chain.verify import verify_chain
from shared.db.connect import connect
from shared.db.migrate import migrate
from shared.loop import wants_more
from shared.tick import Wanted, tick
from shared.volume.files import chunks_of
from tests import worlds

SIZES = (10_000, 100_000)
ROUNDS = 3
GENERATED_ROWS = 300_000
KINDS = '[kinds.flights]\nroot = "public.flight"\ntime = "time_hour"\n'
TEXT = {"carrier", "tailnum", "origin", "dest"}


@dataclass(frozen=True)
class Ground:
    """The table's database, and a directory to write to."""

    dsn: str
    home: Path
    rows: int


def measure(server: str, home: Path) -> Iterator[str]:
    """Compare ticks with a pipe per batch and one pipe for all, in turn, for two sizes of batch."""
    ground = _ground(server, home)
    yield f"{ground.rows} rows"
    for size in SIZES:
        seconds: dict[str, list[float]] = {"ticks": [], "a pipe a batch": [], "one pipe": []}
        for _ in range(ROUNDS):
            seconds["ticks"].append(_by_ticks(server, ground, size))
            seconds["a pipe a batch"].append(_by_pipes(ground, size))
            seconds["one pipe"].append(_by_pipes(ground, ground.rows))
        best = {name: min(found) for name, found in seconds.items()}
        for name, found in best.items():
            yield f"{size} a batch, {name}: {found:.2f} s, {ground.rows / found:,.0f} rows/s"
        yield f"{size} a batch: {best['a pipe a batch'] / best['ticks']:.2f} of the pipe's pace"
    yield from _verifying(ground)


def _ground(server: str, home: Path) -> Ground:
    with connect(server) as connection:
        connection.execute("CREATE DATABASE bench_flights")
    dsn = make_conninfo(server, dbname="bench_flights")
    with connect(dsn) as connection:
        data = os.environ.get("TALLYSTICK_TEST_DATA")
        _load(dsn, Path(data)) if data else connection.execute(_generated())
        connection.execute("CREATE INDEX ON flight (time_hour, id)")
        connection.execute("VACUUM ANALYZE flight")
        found = connection.execute("SELECT count(*) AS rows FROM flight").fetchone()
    return Ground(dsn, home, int(found["rows"]) if found else 0)


def _generated() -> str:
    return (
        "CREATE TABLE flight (id bigint PRIMARY KEY, time_hour timestamptz, carrier text, delay integer,"
        " air_time integer, tailnum text, note text); INSERT INTO flight SELECT n, timestamptz '2013-01-01'"
        " + n / 40 * interval '1 hour', 'UA', n % 90, NULL, 'N' || n % 4000, repeat(md5(n::text), 2)"
        f" FROM generate_series(1, {GENERATED_ROWS}) AS n"
    )


def _load(dsn: str, data: Path) -> None:
    text = subprocess.run(
        ["zstd", "-dcq", data / "flights.csv.zst"], capture_output=True, text=True, check=True
    ).stdout
    names = next(csv.reader(io.StringIO(text)))
    types = {name: "text" if name in TEXT else "integer" for name in names}
    types["time_hour"] = "timestamptz"
    columns = ", ".join(f'"{name}" {kind}' for name, kind in types.items())
    with connect(dsn) as connection:
        connection.execute(
            f"CREATE TABLE flight (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {columns})"
        )
        listed = ", ".join(f'"{name}"' for name in names)
        options = "(FORMAT csv, HEADER, NULL 'NA')"
        with connection.cursor().copy(f"COPY flight ({listed}) FROM STDIN {options}") as copy:
            copy.write(text)


def _by_ticks(server: str, ground: Ground, size: int) -> float:
    name = f"bench_jobs_{time.monotonic_ns()}"
    with connect(server) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    dsn = make_conninfo(server, dbname=name)
    migrate(dsn)
    root = ground.home / "volume"
    shutil.rmtree(root, ignore_errors=True)
    with closing(worlds.control(dsn)) as control:
        storage_id = worlds.a_volume(control, root)
        worlds.a_plan(control, "flights", storage_id, batch_size=size, max_bytes=2**40)
    sources = {"control": dsn, "application": ground.dsn}
    kinds = parse(KINDS, "bench", "application")
    node = worlds.node(dsn, root, storage_id, kinds, sources=sources)
    began = time.perf_counter()
    while wants_more(tick(node, Wanted())):
        continue
    return time.perf_counter() - began


def _by_pipes(ground: Ground, size: int) -> float:
    """Do the same with psql, zstd, sha256sum and sync: one pipe a batch, each batch in key order."""
    target = ground.home / "pipe.zst"
    began = time.perf_counter()
    last = "'-infinity', 0"
    for _ in range(0, ground.rows, size):
        rows = f"SELECT * FROM flight WHERE (time_hour, id) > ({last}) ORDER BY time_hour, id LIMIT {size}"
        script = (
            f'psql -qX "{ground.dsn}" -c "\\copy ({rows}) TO STDOUT"'
            f" | zstd -q -3 -f -o {target} && sha256sum {target} >/dev/null && sync {target}"
        )
        subprocess.run(["sh", "-c", script], check=True)
        with connect(ground.dsn) as connection:
            found = connection.execute(
                f"SELECT time_hour::text, id FROM ({rows}) AS page ORDER BY time_hour DESC, id DESC LIMIT 1"
            ).fetchone()
        last = f"'{found['time_hour']}', {found['id']}" if found else last
    return time.perf_counter() - began


def _verifying(ground: Ground) -> Iterator[str]:
    """Verify the archive left by the last ticks, beside unpacking and hashing the same files."""
    directory = max((ground.home / "volume").glob("*-*"))
    files = sorted(directory.glob("*.sql.zst"))
    ours, pipe = [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        with closing(_Files(files)) as opened:
            report = verify_chain((directory / "manifest.json").read_bytes(), opened.batches())
        ours.append(time.perf_counter() - began)
        assert report.reason is None
        began = time.perf_counter()
        listed = " ".join(str(file) for file in files)
        subprocess.run(["sh", "-c", f"zstd -dcq {listed} | sha256sum >/dev/null"], check=True)
        pipe.append(time.perf_counter() - began)
    yield f"verify: {min(ours):.2f} s, zstd -dc | sha256sum: {min(pipe):.2f} s"
    yield f"verify: {min(pipe) / min(ours):.2f} of the pipe's pace (at least 0.7 is wanted)"


class _Files:
    """Batch files opened one after the other, and closed together."""

    def __init__(self, paths: list[Path]) -> None:
        self._descriptors = [os.open(path, os.O_RDONLY) for path in paths]

    def batches(self) -> Iterator[tuple[int, Iterator[bytes]]]:
        for number, descriptor in enumerate(self._descriptors, start=1):
            yield number, chunks_of(descriptor)

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
