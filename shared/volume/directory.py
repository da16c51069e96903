"""One archive directory, wherever it lies, handed to the verifier: no volume, lock or database needed."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shared.chain.batch import file_name
from shared.chain.manifest import MANIFEST_NAME, MANIFEST_READ_BYTES
from shared.chain.verdict import Broken, Reason, Verdict
from shared.chain.verify import DAMAGES_MAX, BatchProof, ChainReport, damage_of, verify_chain
from shared.errors import Code, Refused
from shared.errors import Verdict as Ended
from shared.volume.files import (
    READ,
    chunks_of,
    errno_name,
    let_go,
    opened_file,
    read_whole,
)
from shared.volume.listing import Listing, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

UNSEEN = ChainReport(Verdict.BROKEN, None, {}, None, (), None, anchored=False)


def verified(
    path: Path,
    expected_sha256: str | None = None,
    passed: Callable[[BatchProof], None] = lambda _: None,
    *,
    first_only: bool = True,
) -> ChainReport:
    """Judge the archive in a directory, following no link and opening nothing but its own files.

    ``passed`` is told of each batch that verified before the first damage. What comes after it is read
    too unless ``first_only``. Raises ``Refused`` (DIRECTORY_UNREADABLE) when the
    directory or a file of it cannot be read: only bytes that were read prove anything.
    """
    with readable(path), opened(path) as directory:
        there = listed(directory)
        found = _damages(there)
        if found and (first_only or not there.has_manifest):
            return _with_strangers(UNSEEN, there, found)
        manifest, _ = read_whole(directory, MANIFEST_NAME, MANIFEST_READ_BYTES)
        batches = ((seq, BatchFile(directory, seq)) for seq in there.numbers)
        report = verify_chain(
            manifest, batches, expected_sha256=expected_sha256, passed=passed, first_only=first_only
        )
        return _with_strangers(report, there, found)


def batch_numbers(there: Listing) -> Sequence[int]:
    """Return the numbers of the batch files, ascending; raises ``Broken`` for whatever else is there."""
    for broken in _damages(there):
        raise broken
    return there.numbers


def _damages(there: Listing) -> list[Broken]:
    """Return what is wrong with the entries of a directory, whatever its files hold."""
    found = [(name, Reason.ENTRY_FOREIGN) for name in there.foreign]
    found += [(name, Reason.ENTRY_NOT_REGULAR) for name in there.irregular]
    damages = [Broken(reason, entry=name) for name, reason in sorted(found)]
    if not there.has_manifest and MANIFEST_NAME not in there.irregular:
        damages.append(Broken(Reason.MANIFEST_MISSING))
    return damages


def _with_strangers(report: ChainReport, there: Listing, found: list[Broken]) -> ChainReport:
    report = replace(report, harmless=there.harmless)
    if not found:
        return report
    told = found[:DAMAGES_MAX]
    return replace(
        report,
        verdict=Verdict.BROKEN,
        reason=found[0].reason,
        params=found[0].params,
        damages=(*map(damage_of, told), *report.damages),
        damages_left_out=report.damages_left_out + len(found) - len(told),
    )


@dataclass(frozen=True)
class BatchFile:
    """The stored bytes of one batch, read anew whenever they are iterated."""

    directory: int
    seq: int

    def __iter__(self) -> Iterator[bytes]:
        """Yield the bytes; raises ``OSError``."""
        return batch_chunks(self.directory, self.seq)


def batch_chunks(directory: int, seq: int) -> Iterator[bytes]:
    """Yield the stored bytes of one batch; raises ``OSError``."""
    # Opened when its turn comes: one descriptor at a time, however long the chain.
    with opened_file(directory, file_name(seq)) as fd:
        yield from chunks_of(fd)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open an archive's directory, which must be no link, and close it again; raises ``OSError``."""
    fd = os.open(path, READ | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        let_go(fd)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what cannot be read of an archive, or is too much, into ``Refused`` (DIRECTORY_UNREADABLE)."""
    try:
        yield
    except OSError as error:
        # With O_DIRECTORY a link is answered as "not a directory"; people are told what it is.
        link = error.errno == errno.ENOTDIR and path.is_symlink()
        cause = "ELOOP" if link else errno_name(error)
        raise Refused(Code.DIRECTORY_UNREADABLE, directory=str(path), cause=cause) from error
    except Ended as ended:
        # A limit of what is read says nothing about the archive.
        if ended.code is not Code.STORAGE_LIMIT:
            raise
        params = {"directory": str(path), **ended.params}
        raise Refused(Code.DIRECTORY_UNREADABLE, **params) from ended
