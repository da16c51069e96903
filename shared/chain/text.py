"""The text of a batch taken in order, in bounded memory: lines, and blocks of counted rows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.chain.verdict import Broken, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINE_BYTES = 16 * 1024 * 1024

_END_OF_ROWS = b"\\.\n"
_COPY_ESCAPES = str.maketrans(
    {"\\": r"\\", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}
)
_NOT_MARKS = bytes(byte for byte in range(256) if byte not in b"\t\n\r\0")
# Escapes under which a raw tab or line break would not separate, or a row would end the copy.
_MISLEADING = re.compile(rb"\\[\t\n.]")


def copy_text(text: str) -> bytes:
    """Spell a value as COPY prints it."""
    return text.translate(_COPY_ESCAPES).encode("utf-8")


class Text:
    """The decompressed bytes of a batch, consumed from front to back."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        """Begin at the front of `pieces`."""
        self._pieces = pieces
        self._buffer = b""

    def line(self) -> bytes:
        """Take one line without its line break, of at most MAX_LINE_BYTES."""
        searched = 0
        while (found := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_LINE_BYTES:
                raise Broken(Reason.LINE_TOO_LONG, limit=MAX_LINE_BYTES)
            self._extend()
        if found > MAX_LINE_BYTES:
            raise Broken(Reason.LINE_TOO_LONG, limit=MAX_LINE_BYTES)
        line, self._buffer = self._buffer[:found], self._buffer[found + 1 :]
        return line

    def take(self, size: int) -> bytes:
        """Take exactly `size` bytes."""
        while len(self._buffer) < size:
            self._extend()
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def finished(self) -> bool:
        """Tell whether nothing is left, having read the frame to its end to know."""
        return not self._buffer and next(self._pieces, None) is None

    def block(self) -> Iterator[bytes]:
        r"""Take a block of rows and the `\.` line after it; yield the bytes of the rows.

        No piece ends inside an escape, so each can be judged without the one before.
        """
        line_starts = True
        while True:
            data = self._buffer
            if line_starts and data.startswith(_END_OF_ROWS):
                self._buffer = data[len(_END_OF_ROWS) :]
                return
            found = data.find(b"\n" + _END_OF_ROWS)
            if found >= 0:
                self._buffer = data[found + 1 + len(_END_OF_ROWS) :]
                yield data[: found + 1]
                return
            cut = _safe_cut(data)
            if cut > 0:
                self._buffer = data[cut:]
                line_starts = data[cut - 1] == ord("\n")
                yield data[:cut]
            self._extend()

    def _extend(self) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            raise Broken(Reason.TEXT_TRUNCATED)
        self._buffer = self._buffer + piece if self._buffer else piece


def _safe_cut(data: bytes) -> int:
    # What stays behind is long enough to recognise the end mark once more bytes have come.
    cut = len(data) - len(_END_OF_ROWS)
    if cut > 0 and data[cut - 1] == ord("\\"):
        before = data[:cut]
        cut -= (cut - len(before.rstrip(b"\\"))) % 2
    return cut


@dataclass
class LastRow:
    """Some fields of the newest row, followed while rows stream by; a row can be 1 GB long."""

    wanted: frozenset[int]
    fields: dict[int, bytes] = field(default_factory=dict)
    _index: int = 0
    _complete: bool = True

    def follow(self, piece: bytes) -> None:
        """See the next bytes of the block."""
        start = piece.rfind(b"\n", 0, -1) + 1
        if start or self._complete:
            self.fields, self._index = {}, 0
        self._complete = piece.endswith(b"\n")
        for offset, part in enumerate(piece[start:].removesuffix(b"\n").split(b"\t")):
            self._index += offset > 0
            if self._index in self.wanted:
                self._keep(part)

    def _keep(self, part: bytes) -> None:
        # A field longer than any line is cut: no cursor in an end line could equal it anyway.
        kept = self.fields.get(self._index, b"")
        self.fields[self._index] = kept + part[: MAX_LINE_BYTES + 1 - len(kept)]


def count_rows(text: Text, columns: int, last: LastRow) -> tuple[int, int]:
    """Take one block and return its rows and bytes, refusing rows that don't have `columns`.

    A table without columns has empty rows. Escapes are judged only where they would make the
    count wrong: before a tab, a line break or a dot.
    """
    row_marks = b"\t" * (columns - 1) + b"\n"
    width = len(row_marks)
    rows, size, phase = 0, 0, 0
    for piece in text.block():
        marks = piece.translate(None, _NOT_MARKS)
        expected = (row_marks * (len(marks) // width + 2))[phase : phase + len(marks)]
        if marks != expected:
            raise _odd_row(marks, expected, rows)
        if columns == 0 and len(marks) != len(piece):
            raise Broken(Reason.ROW_COLUMNS, after_row=rows)
        # With its pairs of backslashes gone, every backslash left begins an escape.
        if _MISLEADING.search(piece) and _MISLEADING.search(piece.replace(b"\\\\", b"")):
            raise Broken(Reason.ROW_ESCAPE, after_row=rows)
        last.follow(piece)
        phase = (phase + len(marks)) % width
        rows += marks.count(b"\n")
        size += len(piece)
    return rows, size


def _odd_row(marks: bytes, expected: bytes, rows: int) -> Broken:
    first = next(at for at, mark in enumerate(marks) if mark != expected[at])
    reason = Reason.ROW_CONTROL if marks[first] in b"\r\0" else Reason.ROW_COLUMNS
    return Broken(reason, row=rows + marks[:first].count(b"\n") + 1)
