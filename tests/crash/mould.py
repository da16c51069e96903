"""Worlds made once and copied for every trial: a database by its template, a volume file by file."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

from shared.archive.kinds import builtin
from tests.crash.judge import Before, Kind, witness
from tests.crash.scene import Scene, scene
from tests.operations import stage
from tests.operations.stage import Stage
from tests.worlds import control, known, rows

RECEIPTS = """
INSERT INTO tallystick.receipt (namespace_id, path, key, body_sha256, status, created_at)
SELECT namespace.id, '/jobs', key, repeat('a', 64), 200, clock_timestamp() - age
FROM tallystick.namespace,
     (SELECT 'old ' || n, make_interval(days => 100 + n) FROM generate_series(1, 6) AS n
      UNION ALL VALUES ('young', interval '1 day')) AS receipt (key, age)
"""
RECEIPT = Kind(
    names=("idempotency",),
    table="tallystick.receipt",
    columns="namespace_id, path, key, body_sha256, status, answer, created_at",
    key="key",
    old="created_at < now() - interval '30 days'",
    order="created_at, namespace_id, path, key",
)
numbers = itertools.count(1)


@dataclass(frozen=True)
class Mould:
    """A world in which a tick of ``operation`` has something to do, and what must be there at the end.

    ``found`` is what the units of the operation say they found and did in an undisturbed run.
    """

    operation: str
    database: str
    volume: Path
    before: Before
    stage: Stage
    found: list[Any]


def _archive(database: str, root: Path) -> Scene:
    """Nothing archived yet: the next tick schedules, claims, and publishes the manifest and batch 1."""
    return scene(database, root)


def _next_batch(database: str, root: Path) -> Scene:
    made = scene(database, root)
    made.stage.tick()
    return made


def _scan(database: str, root: Path) -> Scene:
    made = scene(database, root)
    made.stage.until_idle()
    stage.plan(made.stage, None, batch_size=1)
    return made


def _prune(database: str, root: Path) -> Scene:
    here = stage.stage(database, root, "").changed(kinds=known(builtin()))
    stage.execute(database, RECEIPTS)
    before = witness(database, RECEIPT)
    stage.plan(here, "idempotency", batch_size=2, days=30)
    here.until_idle()
    stage.plan(here, "idempotency", days=30, enabled=False)
    stage.plan(here, None, operation="prune", batch_size=1)
    return Scene(here, before)


# By name: the operation, and what makes the world.
WORLDS: dict[str, tuple[str, Callable[[str, Path], Scene]]] = {
    "archive": ("archive", _archive),
    "archive, next batch": ("archive", _next_batch),
    "scan": ("scan", _scan),
    "prune": ("prune", _prune),
}

# Where every point is tried in every way; the others share most of its calls, and are tried in fewer ways.
THOROUGH = "archive"


@contextmanager
def mould(name: str, server: str, template: str, place: Path) -> Iterator[Mould]:
    """Make a world to copy, and run one copy to its end to see what an undisturbed run comes to."""
    operation, make = WORLDS[name]
    with copy_of(server, template) as dsn:
        root = place / "volume"
        root.mkdir(mode=0o700)
        made = make(dsn, root)
        raw = Mould(operation, urlsplit(dsn).path[1:], root, made.before, made.stage, [])
        with cast(raw, server) as reference:
            reference.stage.until_idle()
            # What is removed by a prune is gone at the end: the source to compare with is that one.
            digests = witness(reference.stage.source, made.before.kind).digests
            found = found_by_units(reference.stage, operation)
        yield replace(raw, before=replace(made.before, digests=digests), found=found)


@contextmanager
def cast(made: Mould, server: str) -> Iterator[Scene]:
    """Copy a world; its volume is a copy, so the database is told the inodes of this one."""
    with (
        copy_of(server, made.database) as dsn,
        tempfile.TemporaryDirectory(prefix="tallystick-crash-") as place,
    ):
        root = Path(place) / "volume"
        shutil.copytree(made.volume, root)
        with closing(control(dsn)) as database:
            database.transact(
                "UPDATE tallystick.volume SET root_inode = %(root)s, marker_inode = %(marker)s",
                {
                    "root": str(root.stat().st_ino),
                    "marker": str((root / ".storage-id").stat().st_ino),
                },
            )
        old = made.stage
        sources = dict.fromkeys(old.node.sources, dsn)
        node = replace(old.node, control_dsn=dsn, sources=sources, root=root)
        yield Scene(Stage(dsn, dsn, root, node), made.before)


def found_by_units(here: Stage, operation: str) -> list[Any]:
    """Return what the units of an operation say, but for what a second try may say otherwise.

    How an archive is cut into batches may change after a takeover; the judge compares its rows. How many
    rows a unit of a prune removed itself depends on how far the try before it got.
    """
    if operation == "archive":
        return []
    units = rows(
        here.control,
        "SELECT unit.seq, unit.evidence - 'removed' AS evidence"
        " FROM tallystick.unit JOIN tallystick.job ON job.id = job_id"
        " WHERE operation = %s ORDER BY seq",
        operation,
    )
    return [*units, *rows(here.control, "SELECT kind, roots FROM tallystick.pruned")]


@contextmanager
def copy_of(server: str, template: str) -> Iterator[str]:
    """Copy a database for as long as the block lasts, and return its URL."""
    name = f"tallystick_crash_{os.getpid()}_{next(numbers)}"
    _execute(server, f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
    try:
        yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    finally:
        _execute(server, f'DROP DATABASE "{name}" WITH (FORCE)')


def _execute(server: str, statement: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement.encode())
