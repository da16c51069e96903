"""Ticks as people run them: ``tallystick tick --until-idle``, a process of its own for all of them."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from shared.db.migrate import migrate
from tests import worlds
from tests.bench import running
from tests.bench.cost import Cost
from tests.bench.ground import Ground, database


@dataclass(frozen=True)
class Ticked:
    """What archiving a kind by ticks cost, the seconds of each tick, and where the archive is."""

    cost: Cost
    ticks: tuple[float, ...]
    roots: int
    directory: Path

    @property
    def median(self) -> float:
        """Return the seconds of a tick in the middle."""
        return statistics.median(self.ticks)


def by_ticks(here: Ground, kind: str, size: int) -> Ticked:
    """Archive a kind on a new volume, with a new control database, by ticks until nothing is due."""
    dsn = database(here.server, f"bench_jobs_{time.monotonic_ns()}")
    migrate(dsn)
    root = here.home / "volume"
    shutil.rmtree(root, ignore_errors=True)
    with closing(worlds.control(dsn)) as control:
        storage_id = worlds.a_volume(control, root)
        worlds.a_plan(control, kind, storage_id, batch_size=size, max_bytes=2**40)
    ran = running.tallystick(
        *("tick", "--until-idle", "--json"),
        database_url=dsn,
        source_url=here.dsn,
        kinds_file=here.kinds,
        archive_root=root,
        archive_storage_id=storage_id,
    )
    ticks = json.loads(ran.output)["ticks"]
    worked = [tick for tick in ticks if tick["job"]]
    assert worked[-1]["job"]["state"] == "SUCCEEDED", worked[-1]
    return Ticked(
        cost=ran.cost,
        ticks=tuple(tick["seconds"] for tick in worked),
        roots=worked[-1]["job"]["roots"],
        directory=next(root.glob("*-*")),
    )
