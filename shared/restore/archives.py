"""Archives to read from: directories verified from first byte to last, in the order their jobs ran.

Nothing here needs a database. Files are opened relative to their directory, and no link is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from shared.chain.manifest import MANIFEST_NAME, MANIFEST_READ_BYTES, Manifest, parse_manifest
from shared.chain.verdict import Broken, Reason, Verdict
from shared.chain.verify import BatchProof, ChainReport
from shared.errors import Code, Refused
from shared.errors import Verdict as Ended
from shared.volume import directory
from shared.volume.directory import batch_chunks, opened, readable
from shared.volume.files import entries_of, read_whole
from shared.volume.walk import JOB_DIRECTORY

Passed = Callable[[BatchProof], None]


@dataclass(frozen=True)
class Place:
    """Where an archive lies, what its manifest says, and the tail kept elsewhere, if there is one."""

    path: Path
    manifest: Manifest
    expected: str | None


@dataclass(frozen=True)
class Archive:
    """One archive that verified; ``batches`` go up to the expected tail and no further.

    ``unrecorded`` are the numbers of files past it: they continue the chain and nobody recorded them.
    """

    path: Path
    manifest: Manifest
    verdict: Verdict
    batches: tuple[BatchProof, ...]
    unrecorded: tuple[int, ...]
    tail: str

    @property
    def rows(self) -> dict[str, int]:
        """Return the numbers of rows in the batches, by the label of the table."""
        total = dict.fromkeys((table.label for table in self.manifest.tables), 0)
        for batch in self.batches:
            for label, count in batch.end.rows:
                total[label] += count
        return total


def is_archive(path: Path) -> bool:
    """Tell whether a directory is one archive; otherwise it may hold several."""
    return (path / MANIFEST_NAME).exists()


def place(path: Path, expected: str | None = None) -> Place:
    """Look at one archive; raises what ``verified`` raises."""
    with readable(path), named(path, MANIFEST_NAME), opened(path) as fd:
        return Place(path, parse_manifest(_manifest(fd)), expected)


def places(path: Path, expected: str | None = None) -> list[Place]:
    """Return the archives in the job directories below ``path``, linked, oldest first.

    ``expected`` is the tail of the newest. Raises ``Refused`` (ARCHIVE_UNKNOWN) when there is none, or
    they are of several kinds, and what ``linked`` raises.
    """
    with readable(path), opened(path) as fd:
        entries = (entry.name for entry in entries_of(fd))
        names = sorted(name for name in entries if JOB_DIRECTORY.fullmatch(name))
    found = [place(path / name) for name in names]
    kinds = sorted({f"{each.manifest.namespace.name}/{each.manifest.kind}" for each in found})
    if len(kinds) > 1:
        raise Refused(Code.ARCHIVE_UNKNOWN, cause="several-kinds", target=str(path), kinds=kinds)
    if not found:
        raise Refused(Code.ARCHIVE_UNKNOWN, cause="no-archive", target=str(path))
    *older, newest = linked(found)
    return [*older, replace(newest, expected=expected)]


def linked(found: Sequence[Place]) -> list[Place]:
    """Order the archives of one kind by the links in their manifests, oldest first.

    Each link holds the tail of the archive before, which is then expected of it. Raises ``Verdict``
    (ARCHIVE_BROKEN) when the links are not one unbroken chain.
    """
    by_job = {each.manifest.job: each for each in found}
    links = [each.manifest.previous for each in found if each.manifest.previous is not None]
    for link in links:
        linked_to = by_job.get(link.job)
        if linked_to is None:
            raise Ended(Code.ARCHIVE_BROKEN, cause="previous-missing", previous=link.job)
        if linked_to.expected not in (None, link.tail):
            raise Ended(
                Code.ARCHIVE_BROKEN,
                cause="previous-differs",
                directory=str(linked_to.path),
                expected=linked_to.expected,
                found=link.tail,
            )
        by_job[link.job] = replace(linked_to, expected=link.tail)
    heads = by_job.keys() - {link.job for link in links}
    ordered: list[Place] = []
    at = by_job[heads.pop()] if len(heads) == 1 else None
    while at is not None and len(ordered) < len(found):
        ordered.insert(0, at)
        before = at.manifest.previous
        at = None if before is None else by_job[before.job]
    if len(ordered) < len(found):
        jobs = sorted(by_job)
        raise Ended(Code.ARCHIVE_BROKEN, cause="several-chains", jobs=jobs)
    return ordered


def verified(place: Place, passed: Passed = lambda _: None) -> Archive:
    """Verify an archive whole; ``passed`` is told of each batch.

    Raises ``Verdict`` (ARCHIVE_BROKEN) with file and reason, and ``Refused`` (DIRECTORY_UNREADABLE) when
    something of it cannot be read: only bytes that were read prove anything.
    """
    batches: list[BatchProof] = []

    def note(proof: BatchProof) -> None:
        batches.append(proof)
        passed(proof)

    report = directory.verified(place.path, place.expected, note)
    if report.reason is not None:
        file = str(report.params.get("file", MANIFEST_NAME))
        with named(place.path, file):
            raise Broken(report.reason, **report.params)
    assert report.manifest is not None  # noqa: S101 - only a broken chain has none
    recorded = len(batches) - len(report.unrecorded)
    return Archive(
        path=place.path,
        manifest=report.manifest,
        verdict=report.verdict,
        batches=tuple(batches[:recorded]),
        unrecorded=report.unrecorded,
        tail=batches[recorded - 1].sha256 if recorded else _manifest_digest(report, batches),
    )


@contextmanager
def opened_batch(archive: Archive, seq: int) -> Iterator[Iterator[bytes]]:
    """Open a batch file and give its stored bytes.

    They are whatever lies there now: who reads rows out of them compares their digest in the end.
    """
    with readable(archive.path), opened(archive.path) as fd:
        yield batch_chunks(fd, seq)


def _manifest_digest(report: ChainReport, batches: Sequence[BatchProof]) -> str:
    if batches:
        return batches[0].header.prev
    assert report.position is not None  # noqa: S101 - only a broken chain has none
    return report.position.tail


def _manifest(fd: int) -> bytes:
    try:
        content, _ = read_whole(fd, MANIFEST_NAME, MANIFEST_READ_BYTES)
    except FileNotFoundError:
        raise Broken(Reason.MANIFEST_MISSING) from None
    return content


@contextmanager
def named(path: Path, file: str) -> Iterator[None]:
    """Turn ``Broken`` into ``Verdict`` (ARCHIVE_BROKEN) that names directory and file."""
    try:
        yield
    except Broken as broken:
        raise Ended(
            Code.ARCHIVE_BROKEN,
            **{"file": file, **broken.params, "directory": str(path), "cause": str(broken.reason)},
        ) from broken
