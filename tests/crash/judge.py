"""The judge: says what is wrong with a world after everything that could go wrong went wrong.

It shares no code with what it judges. It has its own reader of batch files and its own queries; of the
program it knows the format (docs/format.md) and the names of tables and columns.

    before = witness(source_dsn, KIND)              # while the source is as it was
    ...                                             # ticks, kills, faults, recovery until idle
    faults = judge(before, control_dsn, [volume_root], source_dsn)
    assert not faults

A fault is a sentence. The empty list means: every candidate row is in exactly one batch of its job, byte for
byte; every chain holds from manifest to tail; counters, digests and ledger say what the files say; nothing
is left in ``.tmp`` or set aside; every takeover has its event; every plan has its one job, done; and the
source is as it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from tests.crash.batch_file import BatchFile, Unreadable, parsed

Json = dict[str, Any]
PINS = (
    "SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET timezone = 'UTC';"
    "SET extra_float_digits = 3; SET bytea_output = 'hex'; SET client_encoding = 'UTF8'"
)
# Events that say how a claim ended which brought no unit.
ENDING = {"job-reclaimed-after-restart", "page-halved", "unit-failed", "job-paused", "job-failed"}
OPEN = ("PENDING", "RUNNING", "PAUSED", "FAILED")


@dataclass(frozen=True)
class Related:
    """A table whose rows belong to roots: ``parent`` is its column that holds the root's key."""

    table: str
    columns: str
    parent: str


@dataclass(frozen=True)
class Kind:
    """What the kinds of a test archive, in SQL of the test's own: ``names`` all take the same rows.

    ``columns`` are those that travel (no generated ones), ``old`` the condition of a candidate,
    ``order`` how candidates follow each other.
    """

    names: tuple[str, ...]
    table: str
    columns: str
    key: str
    old: str
    order: str
    related: tuple[Related, ...] = ()


@dataclass(frozen=True)
class Tree:
    """One root and the rows that belong to it, as COPY writes them."""

    root: bytes
    related: Mapping[str, tuple[bytes, ...]]


@dataclass(frozen=True)
class Before:
    """The source as it was: its candidates in order, and a digest of each whole table."""

    kind: Kind
    trees: tuple[Tree, ...]
    digests: Mapping[str, str]


@dataclass(frozen=True)
class Allowed:
    """What a test knows to be otherwise than after an undisturbed run.

    ``states`` are those in which a job of a plan may be; ``unrecorded`` says that files past the recorded
    end may lie about; ``claims_ended_otherwise`` counts claims that an operator ended, over all jobs.
    """

    states: tuple[str, ...] = ("SUCCEEDED",)
    unrecorded: bool = False
    claims_ended_otherwise: int = 0
    jobs_of_a_plan: int = 1


@dataclass(frozen=True)
class World:
    """Everything the judge looks at, read once."""

    jobs: tuple[Json, ...]
    units: tuple[Json, ...]
    events: tuple[Json, ...]
    plans: tuple[Json, ...]
    ledger: Mapping[tuple[str, str], int]
    used_bytes: int
    directories: Mapping[str, Mapping[str, bytes]]
    leftovers: tuple[str, ...]


def witness(source: str, kind: Kind) -> Before:
    """Look at the source before anything happens to it."""
    with psycopg.connect(source) as connection:
        connection.execute(PINS)
        related: dict[bytes, dict[str, list[bytes]]] = {}
        for table in kind.related:
            query = f"SELECT {table.parent}, {table.columns} FROM {table.table}"
            for key, line in _lines(connection, query):
                related.setdefault(key, {}).setdefault(table.table, []).append(line)
        query = f"SELECT {kind.key}, {kind.columns} FROM {kind.table} WHERE {kind.old} ORDER BY {kind.order}"
        trees = tuple(
            Tree(line, {table: tuple(lines) for table, lines in related.get(key, {}).items()})
            for key, line in _lines(connection, query)
        )
        return Before(kind, trees, _digests(connection, kind))


def judge(
    before: Before,
    control: str,
    volumes: Sequence[Path],
    source: str,
    allowed: Allowed | None = None,
) -> list[str]:
    """Return every fault of the world; none for a sound one."""
    permitted = allowed or Allowed()
    world = looked_at(control, volumes)
    with psycopg.connect(source) as connection:
        connection.execute(PINS)
        after = _digests(connection, before.kind)
    faults = [
        f"the source's {name} is not as it was"
        for name in after
        if after[name] != before.digests[name]
    ]
    faults += _of_plans(world, permitted)
    faults += _of_claims(world, permitted)
    for job in world.jobs:
        faults += [f"job {job['id']}: {fault}" for fault in _of_job(world, job, before, permitted)]
    faults += _of_volume(world)
    return faults


def looked_at(control: str, volumes: Sequence[Path]) -> World:
    """Read database and volumes, whatever state they are in."""
    with psycopg.connect(control, row_factory=dict_row) as connection:

        def rows(query: str) -> tuple[Json, ...]:
            return tuple(connection.execute(query.encode()).fetchall())

        return World(
            jobs=rows("SELECT * FROM tallystick.job ORDER BY created_at, id"),
            units=rows("SELECT * FROM tallystick.unit ORDER BY job_id, seq"),
            events=rows("SELECT * FROM tallystick.recovery_event ORDER BY occurred_at"),
            plans=rows("SELECT * FROM tallystick.plan"),
            ledger={
                (row["storage_id"], row["directory"]): row["bytes"]
                for row in rows("SELECT * FROM tallystick.ledger")
            },
            used_bytes=sum(row["used_bytes"] for row in rows("SELECT * FROM tallystick.volume")),
            directories={
                entry.name: {file.name: file.read_bytes() for file in sorted(entry.iterdir())}
                for volume in volumes
                for entry in sorted(volume.iterdir())
                if entry.is_dir() and not entry.name.startswith(".")
            },
            leftovers=tuple(
                f"{entry.name}/{file.name}"
                for volume in volumes
                for entry in (volume / ".tmp", volume / ".evidence")
                if entry.is_dir()
                for file in entry.iterdir()
            ),
        )


def _of_plans(world: World, allowed: Allowed) -> Iterator[str]:
    for plan in world.plans:
        jobs = [job for job in world.jobs if job["plan_id"] == plan["id"]]
        name = plan["kind"] or plan["operation"]
        if len(jobs) != allowed.jobs_of_a_plan:
            yield f"the plan of {name} has {len(jobs)} jobs and not {allowed.jobs_of_a_plan}"
        if sum(job["state"] in OPEN for job in jobs) > 1:
            yield f"the plan of {name} has more than one open job"


def _of_job(world: World, job: Json, before: Before, allowed: Allowed) -> Iterator[str]:
    if job["state"] not in allowed.states:
        yield f"it is {job['state']} ({job['error_code']})"
    if job["state"] != "RUNNING" and job["reserved"] and job["state"] != "ABANDONED":
        yield f"{job['reserved']} bytes are still set aside"
    units = [unit for unit in world.units if unit["job_id"] == job["id"]]
    if [unit["seq"] for unit in units] != list(range(1, job["batches"] + 1)):
        yield f"{job['batches']} units are counted, and recorded are {[unit['seq'] for unit in units]}"
    for name in ("roots", "bytes"):
        if sum(unit[name] for unit in units) != job[name]:
            yield f"its {name} are {job[name]}, and those of its units are others"
    if job["operation"] == "archive":
        yield from _of_archive(world, job, units, before, allowed)


def _of_claims(world: World, allowed: Allowed) -> Iterator[str]:
    """Every claim ended: with a unit, an error, a takeover that has its event, or by an operator."""
    by_operators = {job["id"]: job["attempts"] - _ended_claims(world, job) for job in world.jobs}
    total, least = sum(by_operators.values()), min(by_operators.values(), default=0)
    if least >= 0 and total == allowed.claims_ended_otherwise:
        return
    for job in world.jobs:
        if difference := by_operators[job["id"]]:
            ended = job["attempts"] - difference
            yield f"job {job['id']}: of its {job['attempts']} claims {ended} are accounted for"
    yield f"{allowed.claims_ended_otherwise} claims were ended by operators"


def _ended_claims(world: World, job: Json) -> int:
    # By events, for a job keeps only its latest errors. One that ends in a crash loop ended its last claim.
    otherwise = sum(
        event["job_id"] == job["id"] and event["source"] == "tick" and event["type"] in ENDING
        for event in world.events
    )
    units = sum(unit["job_id"] == job["id"] for unit in world.units)
    ended: int = units + otherwise + (job["state"] == "RUNNING")
    return ended


def _of_archive(
    world: World, job: Json, units: list[Json], before: Before, allowed: Allowed
) -> Iterator[str]:
    directory = f"{job['namespace_id']}-{job['id']}"
    files = world.directories.get(directory, {})
    if not files:
        if job["batches"] or job["state"] == "SUCCEEDED":
            yield "its directory is not there"
        return
    try:
        chain = list(_chain(job, files))
    except Unreadable as unreadable:
        yield str(unreadable)
        return
    recorded, beyond = chain[: job["batches"]], chain[job["batches"] :]
    if len(recorded) < job["batches"]:
        yield f"{job['batches']} batches are recorded, and there are {len(recorded)}"
        return
    if beyond and not allowed.unrecorded:
        yield f"{beyond[0].name} is not recorded"
    yield from _against_units(job, units, recorded, files)
    yield from _against_source(job, recorded, before)
    whole = sum(len(content) for content in files.values())
    unrecorded = sum(len(files[batch.name]) for batch in beyond)
    known = world.ledger.get((job["storage_id"], directory))
    if known not in (whole, whole - unrecorded):
        yield f"the ledger has {known} bytes for it, and its files have {whole}"


def _chain(job: Json, files: Mapping[str, bytes]) -> Iterator[BatchFile]:
    """Follow the chain of a directory from its manifest; raises ``Unreadable`` where it does not hold."""
    manifest = files.get("manifest.json")
    if manifest is None:
        raise Unreadable("manifest.json is missing")
    try:
        said = json.loads(manifest)
    except ValueError:
        raise Unreadable("manifest.json is no JSON") from None
    if said["job"] != str(job["id"]):
        raise Unreadable("manifest.json is of another job")
    names = sorted(set(files) - {"manifest.json"})
    prev, after = hashlib.sha256(manifest).hexdigest(), None
    final = False
    for seq, name in enumerate(names, 1):
        if name != f"{seq:06}.sql.zst":
            raise Unreadable(f"{name} should be file {seq}")
        batch = parsed(name, files[name])
        expected = {"job": str(job["id"]), "seq": seq, "prev": prev, "after": after}
        for member, value in expected.items():
            if (seq > 1 or member != "after") and batch.header[member] != value:
                raise Unreadable(f"{name} has {member} {batch.header[member]!r} and not {value!r}")
        if final:
            raise Unreadable(f"{name} comes after a final batch")
        prev, after, final = batch.sha256, batch.end["last"] or after, batch.end["final"]
        yield batch


def _against_units(
    job: Json, units: list[Json], recorded: list[BatchFile], files: Mapping[str, bytes]
) -> Iterator[str]:
    for unit, batch in zip(units, recorded, strict=False):
        if unit["sha256"] != batch.sha256:
            yield f"{batch.name} has another digest than its unit"
        if unit["roots"] != batch.end["roots"]:
            yield f"{batch.name} has {batch.end['roots']} roots and its unit {unit['roots']}"
        if unit["bytes"] != len(files[batch.name]):
            yield f"{batch.name} has {len(files[batch.name])} bytes and its unit {unit['bytes']}"
    if recorded and job["last_sha256"] != recorded[-1].sha256:
        yield "its tail is not the digest of its last file"
    final = bool(recorded) and recorded[-1].end["final"]
    if final != (job["state"] == "SUCCEEDED"):
        yield f"it is {job['state']}, and its last recorded batch is {'' if final else 'not '}final"


def _against_source(job: Json, recorded: list[BatchFile], before: Before) -> Iterator[str]:
    """Compare what is in the files with what was in the source, row by row."""
    kind = before.kind
    if job["kind"] not in kind.names:
        return
    start = job["input"]["archived_before"]
    roots = [line for batch in recorded for line in batch.rows.get(kind.table, ())]
    expected = before.trees[start : start + len(roots)]
    if [tree.root for tree in expected] != roots:
        yield f"its {len(roots)} roots are not the source's, in order, from {start}"
        return
    if job["state"] == "SUCCEEDED" and start + len(roots) != len(before.trees):
        yield f"it ends after {start + len(roots)} of {len(before.trees)} candidates"
    at = 0
    for batch in recorded:
        trees = expected[at : at + len(batch.rows.get(kind.table, ()))]
        at += len(trees)
        for table in kind.related:
            theirs = sorted(line for tree in trees for line in tree.related.get(table.table, ()))
            if sorted(batch.rows.get(table.table, ())) != theirs:
                yield f"{batch.name} has other rows of {table.table} than its roots have"


def _of_volume(world: World) -> Iterator[str]:
    known = {f"{job['namespace_id']}-{job['id']}" for job in world.jobs}
    for directory in sorted(set(world.directories) - known):
        yield f"the directory {directory} belongs to no job"
    if world.used_bytes != sum(world.ledger.values()):
        yield f"the volume has {world.used_bytes} bytes, and its directories {sum(world.ledger.values())}"
    for leftover in world.leftovers:
        yield f"{leftover} is left over"


def _lines(connection: psycopg.Connection[Any], query: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the first column and the rest of every row, as COPY writes them."""
    with connection.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT".encode()) as copy:
        text = b"".join(bytes(chunk) for chunk in copy)
    for line in text.split(b"\n")[:-1]:
        key, _, rest = line.partition(b"\t")
        yield key, rest


def _digests(connection: psycopg.Connection[Any], kind: Kind) -> dict[str, str]:
    digests = {}
    for table in (kind.table, *(related.table for related in kind.related)):
        query = f'SELECT x::text FROM {table} AS x ORDER BY x::text COLLATE "C"'
        lines = [key + b"\t" + rest for key, rest in _lines(connection, query)]
        digests[table] = hashlib.sha256(b"\n".join(lines)).hexdigest()
    return digests
