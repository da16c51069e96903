"""The rows of a batch, strictly parsed; a batch is never executed.

Everything here reads files that ``shared.chain.verify`` has judged before, and still takes nothing on
trust: lines that are not what the format demands raise ``Broken``.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.chain.batch import copy_line, unescape
from shared.chain.frame import decompressed
from shared.chain.lines import check_beginning, read_header
from shared.chain.text import Text
from shared.chain.verdict import Broken, Reason
from shared.errors import Code, Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shared.chain.manifest import Manifest, Table

Value = str | None

ROW_MAX_BYTES = ContextVar("ROW_MAX_BYTES", default=64 * 1024 * 1024)
"""The largest row that is held in memory: a few kilobytes of a file can hold one of gigabytes."""


@dataclass(frozen=True)
class Block:
    """The rows of one table in one batch; ``pieces`` must be taken before the next block begins."""

    table: Table
    pieces: Iterator[bytes]


def blocks(manifest: Manifest, chunks: Iterable[bytes]) -> Iterator[Block]:
    """Yield the blocks of a batch from its stored bytes, in the order of the manifest's tables."""
    text = Text(decompressed(chunks))
    header = read_header(text)
    if header.job != manifest.job:
        raise Broken(Reason.JOB_MISMATCH, expected=manifest.job, found=header.job)
    check_beginning(text, header)
    for table in manifest.tables:
        opening = copy_line(table)
        if text.take(len(opening)) != opening:
            raise Broken(Reason.COPY_MISMATCH, table=table.label)
        pieces = text.block()
        yield Block(table, pieces)
        for _ in pieces:
            continue


def check_size(size: int) -> None:
    """Refuse to hold more bytes of one row than ``ROW_MAX_BYTES``; raises ``Refused`` (ROW_TOO_LARGE)."""
    if size > (limit := ROW_MAX_BYTES.get()):
        raise Refused(Code.ROW_TOO_LARGE, limit=limit)


def lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the rows of a block one by one, without their newlines.

    Raises ``Refused`` (ROW_TOO_LARGE) before a row takes more than ``ROW_MAX_BYTES``.
    """
    # A row may be a gigabyte in pieces of a megabyte: they are joined once.
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        first, *others = piece.split(b"\n")
        held.append(first)
        size += len(first)
        check_size(size)
        if others:
            yield b"".join(held)
            yield from others[:-1]
            held, size = [others[-1]], len(others[-1])
    if any(held):
        raise Broken(Reason.TEXT_TRUNCATED)


def fields(line: bytes, table: Table) -> tuple[bytes, ...]:
    """Split a row into the COPY texts of its columns; raises ``Broken`` for another number of them."""
    found = tuple(line.split(b"\t")) if table.copied else ()
    if len(found) != len(table.copied):
        raise Broken(Reason.ROW_COLUMNS, table=table.label)
    return found


def values(line: bytes, table: Table) -> tuple[Value, ...]:
    """Return the values of a row as the source printed them, None for NULL."""
    try:
        return tuple(unescape(field) for field in fields(line, table))
    except ValueError as error:
        raise Broken(Reason.ROW_ESCAPE, table=table.label) from error
