"""Batches to read rows from: each copied once, verified from the copy, and read from the copy.

So what is verified and what is read are the same bytes, whatever happens to the file meanwhile.
"""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from shared.chain.batch import HEADER_MARK, file_name
from shared.chain.canonical import parse_json
from shared.chain.frame import decompressed
from shared.chain.manifest import MANIFEST_NAME, MANIFEST_READ_BYTES, Manifest
from shared.chain.text import Text
from shared.chain.verdict import Broken, Reason
from shared.chain.verify import Position, start, verify_batch
from shared.errors import Code, Refused
from shared.restore.archives import named
from shared.restore.rows import blocks
from shared.volume.directory import (
    batch_chunks,
    batch_numbers,
    opened,
    readable,
)
from shared.volume.files import CHUNK, errno_name, read_whole
from shared.volume.listing import listed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shared.restore.archives import Place
    from shared.restore.newest import OlderIn
    from shared.restore.rows import Block

# A copy larger than this goes to a nameless temporary file.
MEMORY_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Links:
    """A chain whose links hold: digests of its batch files in order, up to the expected tail.

    ``begin`` is the place before the first batch; ``unrecorded`` counts the files past the expected tail.
    ``older`` tells which roots of a batch are left out, as there is a newer state of them.
    """

    path: Path
    manifest: Manifest
    begin: Position
    digests: tuple[str, ...]
    unrecorded: int
    anchored: bool
    older: OlderIn = lambda _: None


@dataclass(frozen=True)
class Held:
    """A verified batch and its own copy of the stored bytes."""

    path: Path
    manifest: Manifest
    sha256: str
    after: Position
    copy: IO[bytes]

    @property
    def file(self) -> str:
        """Name of the batch file."""
        return file_name(self.after.seq)

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of its rows."""
        self.copy.seek(0)
        return blocks(self.manifest, _chunks(self.copy))


def linked_files(place: Place) -> Links:
    """Hold the links of an archive against each other, before a row of it is read.

    Hashes every file and reads its first line only, so it costs little; the rows are verified batch by
    batch. Raises ``Verdict`` (ARCHIVE_BROKEN) and ``Refused`` (DIRECTORY_UNREADABLE).
    """
    path = place.path
    with readable(path), opened(path) as directory:
        with named(path, MANIFEST_NAME):
            numbers = batch_numbers(listed(directory))
            content, _ = read_whole(directory, MANIFEST_NAME, MANIFEST_READ_BYTES)
            manifest, begin = start(content)
        digests = [begin.tail]
        for seq in numbers:
            with named(path, file_name(len(digests))):
                if seq != len(digests):
                    raise Broken(Reason.FILE_MISSING, found=seq)
                digests.append(linked(batch_chunks(directory, seq), digests[-1]))
    last = len(digests) - 1
    if place.expected is not None:
        with named(path, file_name(last) if last else MANIFEST_NAME):
            if place.expected not in digests:
                raise Broken(Reason.TAIL_NOT_FOUND, expected=place.expected, tail=digests[-1])
        last = digests.index(place.expected)
    return Links(
        path=path,
        manifest=manifest,
        begin=begin,
        digests=tuple(digests[1 : last + 1]),
        unrecorded=len(numbers) - last,
        anchored=place.expected is not None,
    )


def batches(links: Links) -> Iterator[Held]:
    """Yield the batches of a chain, each verified before it is handed over and valid until the next.

    Raises what ``held`` raises.
    """
    position = links.begin
    for digest in links.digests:
        with held(links.path, links.manifest, position, digest) as batch:
            yield batch
            position = batch.after


@contextmanager
def held(
    path: Path, manifest: Manifest, before: Position, digest: str | None = None
) -> Iterator[Held]:
    """Copy the batch that follows a position, and verify it from the copy.

    ``digest`` is what its file must have, if it is known. Raises ``Verdict`` (ARCHIVE_BROKEN) and
    ``Refused`` (DIRECTORY_UNREADABLE, TEMPORARY_UNUSABLE).
    """
    seq = before.seq + 1
    with spooled() as copy:
        with readable(path), opened(path) as directory:
            for chunk in batch_chunks(directory, seq):
                with temporary():
                    copy.write(chunk)
        with temporary():
            copy.seek(0)
        with named(path, file_name(seq)):
            proof, after = verify_batch(manifest, before, _chunks(copy))
            if digest not in {None, proof.sha256}:
                raise Broken(Reason.PREV_MISMATCH, expected=digest, found=proof.sha256)
        yield Held(path, manifest, proof.sha256, after, copy)


@contextmanager
def temporary() -> Iterator[None]:
    """Turn what the operating system says of temporary files into ``Refused`` (TEMPORARY_UNUSABLE)."""
    try:
        yield
    except OSError as error:
        cause = errno_name(error)
        place = tempfile.gettempdir()
        raise Refused(Code.TEMPORARY_UNUSABLE, directory=place, cause=cause) from error


@contextmanager
def spooled() -> Iterator[IO[bytes]]:
    """Lend a file for a copy: in memory up to ``MEMORY_BYTES``, on the disk of temporary files beyond."""
    copy = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115 - closed below
    try:
        yield copy
    finally:
        # What could not be written was told when it was tried; closing tries once more.
        with suppress(OSError):
            copy.close()


def linked(chunks: Iterator[bytes], expected: str) -> str:
    """Return the digest of a batch file whose first line names the file before it; else raise ``Broken``."""
    digest = hashlib.sha256()

    def hashed() -> Iterator[bytes]:
        for chunk in chunks:
            digest.update(chunk)
            yield chunk

    stored = hashed()
    text = Text(decompressed(stored))
    line = text.line()
    for _ in stored:
        continue
    header = parse_json(line.removeprefix(HEADER_MARK), place="header")
    found = header.get("prev") if isinstance(header, dict) else None
    if found != expected:
        raise Broken(Reason.PREV_MISMATCH, expected=expected, found=found)
    return digest.hexdigest()


def _chunks(copy: IO[bytes]) -> Iterator[bytes]:
    while chunk := copy.read(CHUNK):
        yield chunk
