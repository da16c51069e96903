"""One archive directory, wherever it lies, handed to the verifier: no volume, lock or database needed."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shared.chain.batch import file_name, file_number
from shared.chain.manifest import MANIFEST_NAME, MANIFEST_READ_BYTES
from shared.chain.verdict import Broken, Reason, Verdict
from shared.chain.verify import BatchProof, ChainReport, verify_chain
from shared.errors import Code, Refused
from shared.errors import Verdict as Ended
from shared.volume.files import (
    READ,
    chunks_of,
    errno_name,
    let_go,
    names_in,
    opened_file,
    read_whole,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def verified(
    path: Path,
    expected_sha256: str | None = None,
    passed: Callable[[BatchProof], None] = lambda _: None,
) -> ChainReport:
    """Judge the archive in a directory, following no link and opening nothing but its own files.

    ``passed`` is told of each batch that verified. Raises ``Refused`` (DIRECTORY_UNREADABLE) when the
    directory or a file of it cannot be read: only bytes that were read prove anything.
    """
    with readable(path), opened(path) as directory:
        try:
            numbers = batch_numbers(directory)
            manifest, _ = read_whole(directory, MANIFEST_NAME, MANIFEST_READ_BYTES)
        except Broken as broken:
            return ChainReport(
                Verdict.BROKEN, broken.reason, broken.params, None, (), None, anchored=False
            )
        batches = ((seq, batch_chunks(directory, seq)) for seq in numbers)
        return verify_chain(manifest, batches, expected_sha256=expected_sha256, passed=passed)


def batch_numbers(directory: int) -> list[int]:
    """Return the numbers of the batch files, ascending; raises ``Broken`` for whatever else is there."""
    names = names_in(directory)
    numbers = []
    for name in names:
        number = file_number(name)
        if name != MANIFEST_NAME and number is None:
            raise Broken(Reason.ENTRY_FOREIGN, entry=shown(name))
        if not stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise Broken(Reason.ENTRY_NOT_REGULAR, entry=shown(name))
        if number is not None:
            numbers.append(number)
    if MANIFEST_NAME not in names:
        raise Broken(Reason.MANIFEST_MISSING)
    return sorted(numbers)


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
