"""The batch file that proves rows: checked against what the database recorded, copied, strictly read."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from shared.chain.batch import HEADER_MARK, file_name
from shared.chain.canonical import parse_json
from shared.chain.frame import decompressed
from shared.chain.manifest import MANIFEST_NAME, MANIFEST_READ_BYTES, Manifest, encode_manifest
from shared.chain.text import Text
from shared.chain.verdict import Broken, Reason
from shared.errors import Code, Passing, Refused, Verdict
from shared.restore.held import linked, spooled, temporary
from shared.restore.rows import blocks, lines, values
from shared.volume import publish
from shared.volume.files import CHUNK, chunks_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from shared.jobs.model import Job, Json
    from shared.restore.rows import Block, Value
    from shared.volume.identity import Volume

# Rows are sent to the database in pieces of at most this size.
PIECE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class File:
    """One batch file: when its job closed (as the database prints it), its job, its number, its digest.

    ``sha256`` is what the database recorded, None where it no longer has the unit.
    """

    closed_at: str
    job: str
    seq: int
    sha256: str | None = None

    def is_at(self, params: Json | None) -> bool:
        """Tell whether the parameters of an error name this file."""
        return params is not None and (params.get("archive"), params.get("seq")) == (
            self.job,
            self.seq,
        )


@dataclass(frozen=True)
class Archived:
    """The file of a unit, and what the database believes of the archive it belongs to."""

    file: File
    directory: str
    kind: str
    namespace_id: UUID
    manifest: Manifest


def digest_of(volume: Volume, archived: Archived, archive: Job) -> str:
    """Return the digest the file must have, once its manifest is the one the database fixed.

    Which columns are a row's key is said in the manifest alone. Raises ``Verdict`` (FILE_CHECK_FAILED).
    """
    with (
        _of_archive(archived),
        publish.job_directory(volume, archived.directory, create=False) as directory,
    ):
        _check_manifest(directory, archived.manifest)
        return archived.file.sha256 or _digest_by_chain(directory, archived.file, archive)


@contextmanager
def copied(volume: Volume, archived: Archived) -> Iterator[IO[bytes]]:
    """Copy the file and check the copy, so that what is checked and what is read are the same bytes.

    Raises ``Verdict`` (FILE_CHECK_FAILED), also for rows that are read and are not what they should be, and
    ``Passing`` (TEMPORARY_UNUSABLE) where there is no room for the copy.
    """
    file, name = archived.file, file_name(archived.file.seq)
    digest = hashlib.sha256()
    with spooled() as copy, _of_archive(archived):
        with (
            publish.job_directory(volume, archived.directory, create=False) as directory,
            publish.published(directory, name) as fd,
        ):
            for chunk in chunks_of(fd):
                digest.update(chunk)
                with _room():
                    copy.write(chunk)
        with _room():
            copy.seek(0)
        if digest.hexdigest() != file.sha256:
            raise Verdict(
                Code.FILE_CHECK_FAILED,
                file=name,
                cause="digest",
                expected=file.sha256,
                found=digest.hexdigest(),
            )
        with _broken(name):
            _check_header(copy, file)
            yield copy


def pieces(
    manifest: Manifest, copy: IO[bytes], index: int, limit: int
) -> Iterator[list[tuple[Value, ...]]]:
    """Yield the rows of one table, at most ``limit`` at a time; raises ``Broken`` inside ``copied``."""
    for place, block in enumerate(blocks(manifest, _chunks(copy))):
        if place == index:
            yield from _of_block(block, limit)


def _check_manifest(directory: int, manifest: Manifest) -> None:
    found = publish.read_published(directory, MANIFEST_NAME, MANIFEST_READ_BYTES)
    if found != encode_manifest(manifest):
        raise Verdict(Code.FILE_CHECK_FAILED, file=MANIFEST_NAME, cause="differs")


def _digest_by_chain(directory: int, file: File, archive: Job) -> str:
    """Return the digest of a file whose unit was removed, proven by the links from it to the confirmed tail.

    Raises ``Verdict`` (FILE_CHECK_FAILED).
    """
    name = file_name(file.seq)
    with publish.published(directory, name) as fd:
        digest = tail = publish.sha256_of(fd)
    for seq in range(file.seq + 1, archive.batches + 1):
        name = file_name(seq)
        with publish.published(directory, name) as fd, _broken(name):
            tail = linked(chunks_of(fd), tail)
    if tail != archive.last_sha256:
        raise Verdict(
            Code.FILE_CHECK_FAILED,
            file=name,
            cause="digest",
            expected=archive.last_sha256,
            found=tail,
        )
    return digest


def _check_header(copy: IO[bytes], file: File) -> None:
    line = Text(decompressed(_chunks(copy))).line()
    value = parse_json(line.removeprefix(HEADER_MARK), place="header")
    header = value if isinstance(value, dict) else {}
    job, seq = header.get("job"), header.get("seq")
    if job != file.job:
        raise Broken(Reason.JOB_MISMATCH, expected=file.job, found=job)
    if seq != file.seq:
        raise Broken(Reason.SEQ_MISMATCH, expected=file.seq, found=seq)


def _of_block(block: Block, limit: int) -> Iterator[list[tuple[Value, ...]]]:
    rows: list[tuple[Value, ...]] = []
    size = 0
    for line in lines(block.pieces):
        rows.append(values(line, block.table))
        size += len(line)
        if len(rows) == limit or size >= PIECE_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _chunks(copy: IO[bytes]) -> Iterator[bytes]:
    copy.seek(0)
    while chunk := copy.read(CHUNK):
        yield chunk


@contextmanager
def _broken(file: str) -> Iterator[None]:
    try:
        yield
    except Broken as broken:
        params = {"file": file, **broken.params, "cause": str(broken.reason)}
        raise Verdict(Code.FILE_CHECK_FAILED, **params) from broken


@contextmanager
def _room() -> Iterator[None]:
    """Have a unit that finds no room for its copy tried again: room may come by itself."""
    try:
        with temporary():
            yield
    except Refused as refused:
        raise Passing(refused.code, **refused.params) from refused


@contextmanager
def _of_archive(archived: Archived) -> Iterator[None]:
    """Have a verdict about a file name its job: the one that fails is another."""
    try:
        yield
    except Verdict as verdict:
        verdict.params |= {"archive": archived.file.job, "seq": archived.file.seq}
        raise
