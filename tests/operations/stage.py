"""A stage for whole ticks: a source with its kinds, a volume, plans, and readers of what was written."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from shared.archive import kinds as kinds_file
from shared.chain import verify
from shared.chain.batch import PINS
from shared.chain.frame import decompressed
from shared.chain.verdict import Verdict
from shared.errors import Code
from shared.jobs import steer
from shared.jobs.model import Ending, Job, Outcome
from shared.jobs.rules import Action
from shared.plans import namespaces
from shared.tick import Node, Report, Wanted, tick
from shared.volume import identity, ledger
from tests import worlds
from tests.worlds import SIGNED, control, rows

# After these a tick may at once be followed by another.
MORE = {Ending.PROGRESSED, Ending.FINISHED}


@dataclass(frozen=True)
class Stage:
    """A node with its volume; ``control`` and ``source`` are URLs, the same one unless a test says so."""

    control: str
    source: str
    root: Path
    node: Node

    @property
    def storage_id(self) -> str:
        assert self.node.storage_id is not None
        return self.node.storage_id

    def changed(self, **changes: Any) -> Stage:  # noqa: ANN401 - the members of Node
        """Return the stage with another node on it."""
        return replace(self, node=replace(self.node, **changes))

    def tick(self) -> Report:
        return tick(self.node, Wanted())

    def until_idle(self, limit: int = 400) -> list[Report]:
        """Tick while ticks get somewhere, and return all reports, the last one included."""
        return self.until(lambda outcome: outcome.ending not in MORE, limit)

    def until(self, met: Callable[[Outcome], bool], limit: int = 400) -> list[Report]:
        """Tick until an outcome is what is asked for, and return all reports, that one included."""
        reports = []
        for _ in range(limit):
            reports.append(self.tick())
            if met(reports[-1].outcome):
                return reports
        raise AssertionError(reports[-1])


def stage(database: str, root: Path, kinds: str, *ddl: str, source: str | None = None) -> Stage:
    """Fill the source, make the volume, and return a node that knows both and the kinds."""
    execute(source or database, *ddl)
    with closing(control(database)) as db:
        storage_id = worlds.a_volume(db, root)
    node = worlds.node(
        database,
        root,
        storage_id,
        kinds_file.parse(kinds, "kinds.toml", "application"),
        sources={"control": database, "application": source or database},
    )
    return Stage(database, source or database, root, node)


def plan(
    here: Stage,
    kind: str | None,
    *,
    namespace: str = "default",
    days: int = 365,
    **changes: Any,  # noqa: ANN401 - the members of PlanChange
) -> None:
    """Put a policy and a plan in force; without a kind, it is a scan's or a prune's."""
    with closing(control(here.control)) as db:
        if kind:
            worlds.a_policy(db, kind, namespace, after_days=days)
        worlds.a_plan(db, kind, here.storage_id, namespace, **changes)


def make_namespace(here: Stage, name: str) -> UUID:
    with closing(control(here.control)) as db:
        made: UUID = namespaces.create(db, name, SIGNED)["id"]
    return made


def act(here: Stage, job: Job, action: Action, max_bytes: int | None = None) -> Job:
    with closing(control(here.control)) as db:
        return steer.act(db, job.id, action, SIGNED, max_bytes=max_bytes)


def adopt(here: Stage) -> ledger.Adopted:
    """Say as an operator that the volume shall be used as it is."""
    with (
        closing(control(here.control)) as db,
        identity.opened(here.root, here.storage_id) as volume,
    ):
        return ledger.adopt(db, volume, SIGNED)


def refuses_the_volume(here: Stage, cause: str) -> None:
    """Tick once, and check that the volume was refused and nothing was claimed."""
    before = jobs(here)
    outcome = here.tick().outcome
    assert (outcome.ending, outcome.code) == (Ending.WAITING, Code.STORAGE_UNAVAILABLE), outcome
    assert outcome.params["cause"] == cause
    assert jobs(here) == before


def execute(dsn: str, *statements: str) -> None:
    """Run statements, each in a transaction of its own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def jobs(here: Stage) -> list[Job]:
    found = rows(here.control, "SELECT * FROM tallystick.job ORDER BY created_at, id")
    return [Job.from_row(row) for row in found]


def only_job(here: Stage) -> Job:
    (job,) = jobs(here)
    return job


def events(here: Stage, job: Job | None = None) -> list[dict[str, Any]]:
    """Return events in the order they were recorded, of one job or of all."""
    text = "SELECT * FROM tallystick.recovery_event ORDER BY recorded_at, occurred_at"
    return [row for row in rows(here.control, text) if job is None or row["job_id"] == job.id]


def event_types(here: Stage, job: Job | None = None) -> list[str]:
    return [event["type"] for event in events(here, job)]


def units(here: Stage, job: Job) -> list[dict[str, Any]]:
    return rows(
        here.control, "SELECT * FROM tallystick.unit WHERE job_id = %s ORDER BY seq", job.id
    )


def expire(here: Stage) -> None:
    """Let the lease of every running job have ended, as if its holder had died long ago."""
    with closing(control(here.control)) as db:
        for job in jobs(here):
            if job.owner is not None:
                worlds.expire_lease(db, job.id)


def due_now(here: Stage) -> None:
    """Let every backoff be over."""
    now = "UPDATE tallystick.job SET due_at = clock_timestamp() WHERE state = 'PENDING'"
    execute(here.control, now)


def plans_due(here: Stage) -> None:
    execute(here.control, "UPDATE tallystick.plan SET next_run_at = clock_timestamp()")


# One block of a batch: the name of its table, quoted.
COPY = re.compile(rb"COPY (.+?)(?: \(.*\))? FROM stdin;")


def directory(here: Stage, job: Job) -> Path:
    return here.root / job.directory


def batch_files(here: Stage, job: Job) -> list[Path]:
    return sorted(directory(here, job).glob("*.sql.zst"))


def text_of(file: Path) -> bytes:
    return b"".join(decompressed([file.read_bytes()]))


def end_of(file: Path) -> dict[str, Any]:
    """Return what the last line of a batch says."""
    line = text_of(file).splitlines()[-1]
    value: dict[str, Any] = json.loads(line.removeprefix(b"-- end "))
    return value


def rows_in(files: Sequence[Path]) -> dict[str, Counter[bytes]]:
    """Return how often each line of COPY text lies in the files, by the quoted name of its table."""
    found: dict[str, Counter[bytes]] = {}
    for file in files:
        table = None
        for line in text_of(file).split(b"\n"):
            if table is not None:
                if line == b"\\.":
                    table = None
                else:
                    found[table][line] += 1
            elif opening := COPY.fullmatch(line):
                table = opening[1].decode()
                found.setdefault(table, Counter())
    return found


def copied(dsn: str, select: str) -> Counter[bytes]:
    """Return how often each line of COPY text is in the source, under the settings archives have.

    But for the search path: a test may write names short.
    """
    pins = [pin for pin in PINS if pin[0] != "search_path"]
    with psycopg.connect(dsn, autocommit=True) as connection:
        for name, value in pins:
            connection.execute(f"SET {name} = {value}".encode())
        with connection.cursor().copy(f"COPY ({select}) TO STDOUT".encode()) as copy:
            text = b"".join(bytes(piece) for piece in copy)
    return Counter(text.split(b"\n")[:-1])


def report(here: Stage, job: Job, expected: str | None) -> verify.ChainReport:
    files = batch_files(here, job)
    return verify.verify_chain(
        (directory(here, job) / "manifest.json").read_bytes(),
        [(int(file.name[:6]), [file.read_bytes()]) for file in files],
        expected_sha256=expected,
    )


def assert_sound(here: Stage, job: Job) -> list[Path]:
    """Check a finished chain with the standard library alone, then with the verifier; return its files."""
    tail = hashlib.sha256((directory(here, job) / "manifest.json").read_bytes()).hexdigest()
    files = batch_files(here, job)
    assert [file.name for file in files] == [
        f"{seq:06d}.sql.zst" for seq in range(1, job.batches + 1)
    ]
    for file in files:
        header = json.loads(text_of(file).split(b"\n", 1)[0].removeprefix(b"-- tallystick "))
        assert header["prev"] == tail
        tail = hashlib.sha256(file.read_bytes()).hexdigest()
    assert tail == job.last_sha256
    assert report(here, job, tail).verdict == Verdict.SOUND
    assert report(here, job, "0" * 64).verdict == Verdict.BROKEN
    assert job.bytes == sum(file.stat().st_size for file in files)
    assert [unit["sha256"] for unit in units(here, job)] == [
        hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    ]
    return files


def leftovers(here: Stage) -> list[str]:
    return sorted(path.name for path in (here.root / identity.TEMP).iterdir())


def fails_with(here: Stage, code: Code, cause: str | None = None) -> Report:
    """Tick once, and check that the job is FAILED for this reason."""
    outcome = here.tick()
    assert (outcome.outcome.ending, outcome.outcome.code) == (Ending.FAILED, code), outcome
    if cause is not None:
        assert outcome.outcome.params["cause"] == cause
    return outcome


CHILD = """
import json, sys
from pathlib import Path
from shared.plans.schedule import KnownKind
from shared.tick import Node, Wanted, tick
from shared.loop import wants_more
given = json.loads(sys.argv[1])
node = given["node"]
node["kinds"] = tuple(KnownKind(**kind) for kind in node["kinds"])
node["root"] = Path(node["root"])
while True:
    report = tick(Node(**node), Wanted())
    print(json.dumps([report.outcome.ending, report.outcome.code, report.outcome.params]), flush=True)
    if given["once"] or not wants_more(report) and report.outcome.code != "STORAGE_BUSY":
        break
"""


def child(
    here: Stage, *, once: bool = True, before: Sequence[str] = (), first: str = ""
) -> subprocess.Popen[str]:
    """Start a process of its own that ticks once, or until nothing is due; one JSON line per tick.

    ``before`` is a command that runs it, ``first`` what the program does before all else.
    """
    node = here.node
    given = {
        "once": once,
        "node": {
            **{name: getattr(node, name) for name in node.__dataclass_fields__},
            "kinds": [vars(kind) for kind in node.kinds],
            "root": str(node.root),
            "sources": dict(node.sources),
        },
    }
    return subprocess.Popen(
        [*before, sys.executable, "-c", first + CHILD, json.dumps(given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def ended(process: subprocess.Popen[str], seconds: float = 60.0) -> list[list[Any]]:
    """Wait for a child and return what its ticks came to."""
    out, error = process.communicate(timeout=seconds)
    assert process.returncode == 0, error
    return [json.loads(line) for line in out.splitlines()]


def killed(process: subprocess.Popen[str]) -> None:
    """End a child as a crash would: without a word."""
    process.send_signal(signal.SIGKILL)
    process.communicate()


def wait_for(met: Callable[[], object], seconds: float = 20.0) -> None:
    ends = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.02)


def blocked(dsn: str) -> list[int]:
    """Return the processes of the server that wait for a lock in this database."""
    text = (
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return [row["pid"] for row in rows(dsn, text)]


@contextmanager
def locked(dsn: str, table: str) -> Iterator[psycopg.Connection[Any]]:
    """Hold a table against everybody, readers too, until the end of the block."""
    with psycopg.connect(dsn) as connection:
        connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        yield connection
        connection.rollback()


# Settling waits in the middle of its statement for whoever holds this advisory lock.
GATE = 4711
GATED = f"""
CREATE OR REPLACE FUNCTION public.at_the_gate() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN new; END';
CREATE OR REPLACE TRIGGER gate BEFORE INSERT ON tallystick.unit
FOR EACH ROW EXECUTE FUNCTION public.at_the_gate()
"""


@contextmanager
def gate(here: Stage) -> Iterator[psycopg.Connection[Any]]:
    """Stop every settle between its first write and its commit until the end of the block."""
    execute(here.control, GATED)
    with psycopg.connect(here.control, autocommit=True) as connection:
        connection.execute(f"SELECT pg_advisory_lock({GATE})".encode())
        yield connection
