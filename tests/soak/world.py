"""Where a round takes place: one database, four plans, two volumes, one of them on a disk that fills up."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from shared.errors import Refused
from shared.jobs.model import Job
from shared.jobs.rules import ALLOWED, Action
from tests.crash.judge import Allowed, Before, judge, witness
from tests.crash.scene import BATCH, DDL, NOTES
from tests.crash.trial import sessions_end
from tests.operations import stage
from tests.operations.stage import Stage
from tests.worlds import a_volume, control, one

DISK_BYTES = 24 * 1024 * 1024
# Each is archived whole by four plans, in batches of the scene's size.
MORE_NOTES = """
INSERT INTO note (at, body)
SELECT timestamptz '2021-01-01 00:00+00' + (n / 3) * interval '1 hour', 'note ' || n
FROM generate_series(1, 300) AS n
"""
# By the index of their volume. The first of each also scans it.
NAMESPACES = (("berlin", "default"), ("lyon", "porto"))
# The same rows for every namespace, so that one look at the source is enough.
KINDS_OF = {name: f"notes_{name}" for names in NAMESPACES for name in names}
KIND = """
[kinds.{kind}]
root = "public.note"
time = "at"
related = ["public.line"]
belongs_to = "{namespace}"
"""
ALL_NOTES = replace(NOTES, names=tuple(KINDS_OF.values()))
RECOVERY_ROUNDS = 20


@dataclass(frozen=True)
class Disk:
    """A small file system of its own, mounted from a file."""

    mount: Path

    def fill(self) -> None:
        """Take all the room that is left."""
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(b"\0" * 65536)
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(b"\0")

    def free(self) -> None:
        """Give the room back."""
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        return self.mount / "filler"


@contextmanager
def small_disk(place: Path) -> Iterator[Disk]:
    """Make and mount a small ext4; needs root, and e2fsprogs."""
    image, mount = place / "disk.img", place / "disk"
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    mount.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mount)], check=True)
    try:
        yield Disk(mount)
    finally:
        subprocess.run(["umount", str(mount)], check=True)
        image.unlink()


@dataclass(frozen=True)
class World:
    """A stage for each volume, all on one database, and what the source was before."""

    stages: tuple[Stage, ...]
    before: Before

    @property
    def first(self) -> Stage:
        """Return the stage whose database all share."""
        return self.stages[0]

    def jobs(self) -> list[Job]:
        """Return all jobs there are, by their age."""
        return stage.jobs(self.first)

    def time_passes(self) -> None:
        """Let every lease and every backoff have run out."""
        stage.expire(self.first)
        stage.due_now(self.first)

    def operate(self, job: Job, action: Action) -> bool:
        """Act as an operator who may be too late; returns whether it was done."""
        try:
            stage.act(self.first, job, action)
        except Refused:
            return False
        return True

    def recover(self) -> None:
        """Do what time and operators do until every job is closed."""
        sessions_end(self.first)
        for _ in range(RECOVERY_ROUNDS):
            self.time_passes()
            for here in self.stages:
                here.until_idle()
            jobs = [job for job in self.jobs() if not job.state.closed]
            if not jobs and self.jobs():
                return
            for job in jobs:
                for action in (Action.RETRY, Action.RESUME):
                    if job.state in ALLOWED[action]:
                        self.operate(job, action)

    def scan_again(self) -> None:
        """Go over the volumes once more: what an abandoned job had not settled is in no account before.

        By plans of other namespaces: the judge wants one job of each.
        """
        for here, (_, other) in zip(self.stages, NAMESPACES, strict=True):
            stage.plan(here, None, namespace=other, batch_size=BATCH)
            here.until_idle()

    def faults(self, *, abandoned: bool) -> list[str]:
        """Ask the judge, who is told how many claims operators ended and whether they abandoned jobs."""
        ended = one(
            self.first.control,
            "SELECT count(*) FROM tallystick.audit_entry"
            " WHERE action IN ('pause', 'abandon') AND before ->> 'state' = 'RUNNING'",
        )
        states = ("SUCCEEDED", *(("ABANDONED",) if abandoned else ()))
        allowed = Allowed(states, unrecorded=abandoned, claims_ended_otherwise=ended)
        roots = [here.root for here in self.stages]
        return judge(self.before, self.first.control, roots, self.first.source, allowed)


def world(database: str, roots: Sequence[Path]) -> World:
    """Fill the source, make the volumes, and plan for every namespace."""
    kinds = "".join(KIND.format(kind=kind, namespace=name) for name, kind in KINDS_OF.items())
    first = stage.stage(database, roots[0], kinds, *DDL, MORE_NOTES)
    stages = [first, *(_beside(first, root) for root in roots[1:])]
    for here, namespaces in zip(stages, NAMESPACES, strict=True):
        for namespace in namespaces:
            if namespace != "default":
                stage.make_namespace(here, namespace)
            stage.plan(here, KINDS_OF[namespace], namespace=namespace, batch_size=BATCH)
        stage.plan(here, None, namespace=namespaces[0], batch_size=BATCH)
    return World(tuple(stages), witness(first.source, ALL_NOTES))


def _beside(first: Stage, root: Path) -> Stage:
    """Return another node's stage: the same database and kinds, a volume of its own."""
    with closing(control(first.control)) as db:
        storage_id = a_volume(db, root)
    return replace(first.changed(root=root, storage_id=storage_id), root=root)
