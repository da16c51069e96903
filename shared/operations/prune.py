"""Prune: rows of our own history are removed, one batch file after the other, as far as it proves them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import IO, TYPE_CHECKING
from uuid import UUID

from shared.archive.describe import manifest_of
from shared.archive.shape import parse_opening
from shared.chain.batch import file_name
from shared.db.statement import statement
from shared.errors import Code, Passing, Stale, Verdict
from shared.jobs import store
from shared.jobs.model import Claim, Event, Progress
from shared.operations import removal
from shared.operations.proof import Archived, File, copied, digest_of, pieces
from shared.operations.removal import DIFFERS, LEFT, SETTINGS, STAYS, Today
from shared.operations.work import Operation, Work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.chain.manifest import Manifest
    from shared.jobs.model import Job, Json
    from shared.restore.rows import Value

# Files worth another look later; each holds a row that one plan still needs, so there are few.
AGAIN_MAX = 100
BEGINNING = File("-infinity", str(UUID(int=0)), 0)


@dataclass(frozen=True)
class Place:
    """Where a job stands: after which file, which are to be looked at again now, and which next time."""

    after: File
    again: tuple[File, ...]
    left: tuple[File, ...]

    @classmethod
    def of(cls, job: Job) -> Place:
        """Return where a job stands; a new one begins where the last closed one of its plan ended."""
        if job.checkpoint is not None:
            return cls.from_json(job.checkpoint)
        if job.input["from"] is None:
            return cls(BEGINNING, (), ())
        ended = cls.from_json(job.input["from"])
        return cls(ended.after, tuple(dict.fromkeys(ended.left + ended.again)), ())

    @classmethod
    def from_json(cls, value: Json) -> Place:
        """Read what ``to_json`` gave."""
        again, left = (tuple(File(**each) for each in value[name]) for name in ("again", "left"))
        return cls(File(**value["after"]), again, left)

    def to_json(self) -> Json:
        """Return the place as a checkpoint."""
        return {
            "after": asdict(self.after),
            "again": [asdict(each) for each in self.again],
            "left": [asdict(each) for each in self.left],
        }


@dataclass(frozen=True)
class Errand:
    """The next file, None when there is none; ``given_up`` says that an operator gave it up as damaged."""

    claim: Claim
    place: Place
    archived: Archived | None
    given_up: bool
    more: bool


@dataclass(frozen=True)
class Found:
    """What a fresh look found of a file's rows: how many it has, and those still there by reason."""

    removed: dict[str, int]
    rows: dict[str, int]
    kept: dict[str, dict[str, int]]
    bytes: int


def next_file(work: Work, claim: Claim) -> Errand:
    """Find the next file, and check that it is what the database confirmed; nothing is removed before."""
    job = claim.job
    if claim.barred is not None:
        raise Verdict(claim.barred, kind=job.kind)
    place = Place.of(job)
    files = [*place.again, *_ahead(work, job, place.after)]
    if not files:
        return Errand(claim, place, None, given_up=False, more=False)
    file, more = files[0], len(files) > 1
    archive = store.get(work.control, UUID(file.job))
    archived = _described(file, archive)
    if file.is_at(job.input["given_up"]):
        return Errand(claim, place, archived, given_up=True, more=more)
    digest = digest_of(work.storage.volume, archived, archive)
    archived = replace(archived, file=replace(file, sha256=digest))
    return Errand(claim, place, archived, given_up=False, more=more)


def remove(work: Work, errand: Errand) -> dict[str, int]:
    """Remove the rows the file proves, children before roots, and return how many of each table went.

    Each statement commits by itself: one that is done again finds its rows gone.
    """
    removed: dict[str, int] = {}
    archived = errand.archived
    if archived is None or errand.given_up:
        return removed
    fence = errand.claim.fence.params()
    owner = {"namespace_id": archived.namespace_id, "kind": archived.kind}
    with copied(work.storage.volume, archived) as copy:
        for index in reversed(range(len(archived.manifest.tables))):
            table = archived.manifest.tables[index]
            today = Today.of(work.control, table)
            removed[table.label] = 0
            for rows in _rows(work, errand, copy, index):
                if today is None:
                    continue
                text = removal.removal(today, counted=index == 0)
                params = fence | owner | today.params(rows)
                (answer,) = work.control.transact(text, params, repeatable=True, first=SETTINGS)
                if not answer["held"]:
                    raise Stale(Code.CLAIM_LOST, job=str(errand.claim.job.id))
                removed[table.label] += answer["removed"]
    return removed


def look(work: Work, errand: Errand, removed: dict[str, int]) -> Found:
    """Look for every row of the file once more; raises ``Passing`` if one is left without a reason."""
    rows: dict[str, int] = {}
    kept: dict[str, dict[str, int]] = {}
    archived = errand.archived
    if archived is None or errand.given_up:
        return Found(removed, rows, kept, 0)
    with copied(work.storage.volume, archived) as copy:
        for index, table in enumerate(archived.manifest.tables):
            today = Today.of(work.control, table)
            found: Counter[str] = Counter()
            rows[table.label] = 0
            for piece in _rows(work, errand, copy, index):
                rows[table.label] += len(piece)
                if today is not None:
                    params = today.params(piece)
                    answers = work.control.transact(
                        removal.remainder(today), params, repeatable=True, first=SETTINGS
                    )
                    found.update({answer["reason"]: answer["rows"] for answer in answers})
            if found[LEFT]:
                raise Passing(Code.PRUNE_INCOMPLETE, cause="left", rows=found[LEFT])
            if found:
                kept[table.label] = dict(found)
        size = copy.seek(0, 2)
    return Found(removed, rows, kept, size)


def progress_of(errand: Errand, found: Found) -> Progress:
    """Say what the settle shall record: the file is done with, for good or until the next job."""
    place, archived = errand.place, errand.archived
    if archived is not None:
        place = _moved(place, archived.file, again=_waits(archived.manifest, found))
    return Progress(
        seq=errand.claim.job.batches + 1,
        sha256=None,
        bytes=found.bytes,
        roots=sum(found.removed.values()),
        evidence={
            "archive": archived.file.job if archived else None,
            "file": file_name(archived.file.seq) if archived else None,
            "kind": archived.kind if archived else None,
            "given_up": errand.given_up,
            "rows": found.rows,
            "removed": found.removed,
            "kept": found.kept,
        },
        checkpoint=place.to_json(),
        tail=None,
        final=not errand.more,
        events=_events(errand, found),
    )


def _described(file: File, archive: Job) -> Archived:
    assert archive.opening is not None  # noqa: S101 - an archive that succeeded was opened
    return Archived(
        file,
        archive.directory,
        archive.kind or "",
        archive.namespace_id,
        manifest_of(archive, parse_opening(archive.opening)),
    )


def _rows(
    work: Work, errand: Errand, copy: IO[bytes], index: int
) -> Iterator[list[tuple[Value, ...]]]:
    """Yield the rows of one table of the file in pieces; raises ``Passing`` when time is up."""
    assert errand.archived is not None  # noqa: S101 - there is a copy
    deadline = work.deadline.for_reading()
    for piece in pieces(errand.archived.manifest, copy, index, errand.claim.job.page_size):
        if deadline.passed():
            raise Passing(Code.PRUNE_INCOMPLETE, cause="deadline")
        yield piece


def _ahead(work: Work, job: Job, after: File) -> list[File]:
    params = {
        "namespace_id": job.namespace_id,
        "storage_id": work.storage.volume.storage_id,
        "roots": list(removal.ROOTS),
        "closed_at": after.closed_at,
        "job": after.job,
        "seq": after.seq,
    }
    rows = work.control.transact(
        statement("shared.operations", "next_files"), params, repeatable=True
    )
    return [File(row["closed_at"], str(row["job_id"]), row["seq"], row["sha256"]) for row in rows]


def _moved(place: Place, file: File, *, again: bool) -> Place:
    left = (*place.left, file)[-AGAIN_MAX:] if again else place.left
    if place.again:
        return Place(place.after, place.again[1:], left)
    return Place(replace(file, sha256=None), (), left)


def _waits(manifest: Manifest, found: Found) -> bool:
    """Tell whether a row stays for a reason that goes away by itself."""
    return any(
        rule.for_now and rule.reason in found.kept.get(table.label, {})
        for table in manifest.tables
        for rule in STAYS.get(table.name, ())
    )


def _events(errand: Errand, found: Found) -> tuple[Event, ...]:
    if errand.archived is None:
        return ()
    told: Json = {
        "file": file_name(errand.archived.file.seq),
        "directory": errand.archived.directory,
        "kind": errand.archived.kind,
    }
    if errand.given_up:
        code = Code.FILE_PASSED_OVER
        return (
            Event("file-passed-over", "warning", done=False, reason_code=code, reason_params=told),
        )
    rows = sum(reasons.get(DIFFERS, 0) for reasons in found.kept.values())
    if not rows:
        return ()
    params = told | {"rows": rows}
    return (
        Event("rows-kept", "warning", done=False, reason_code=Code.ROWS_KEPT, reason_params=params),
    )


PRUNE = Operation[Errand, dict[str, int], Found](
    name="prune",
    needs_volume=True,
    next_unit=next_file,
    do=remove,
    verify=look,
    record=progress_of,
)
