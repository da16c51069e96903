"""The rows of a block that may hold a text, looked for in the raw bytes.

Reading a row strictly costs a hundred times what passing over its bytes does, and most rows of a batch
are not the one that is asked for. What is left out here cannot hold any of the texts; what is handed on
may still not, and whoever asked reads it strictly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.chain.text import copy_text
from shared.chain.verdict import Broken, Reason
from shared.restore.rows import check_size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

# Each text is a pass over the block: with more of them than this, reading every row is no dearer.
TEXTS_MAX = 16
# What COPY never leaves as it is.
_RAW = (b"\b", b"\f", b"\r", b"\v")
_LETTERS = (b"b", b"f", b"n", b"r", b"t", b"v")


def sieved(
    pieces: Iterable[bytes], place: int, columns: int, texts: Collection[str]
) -> Iterator[bytes]:
    """Yield the rows of a block that may hold one of ``texts`` in the column at ``place``, in order.

    Rows have ``columns`` columns. They come without their newlines. Raises ``Broken`` for a block that
    does not end with a row.
    """
    before = b"\t" if place else b"\n"
    after = b"\t" if place < columns - 1 else b"\n"
    needles = [before + copy_text(text) + after for text in texts]
    for rows in _whole(pieces):
        if not _plain(rows):
            yield from rows[1:-1].split(b"\n")
            continue
        starts = {start for needle in needles for start in _found(rows, needle)}
        for start in sorted(starts):
            yield rows[start : rows.index(b"\n", start)]


def _whole(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Gather pieces to whole rows, with a newline also before the first."""
    # A row may be a gigabyte in pieces of a megabyte: they are joined once.
    held, size = [b"\n"], 0
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if not end:
            held.append(piece)
            size += len(piece)
            check_size(size)
            continue
        yield b"".join([*held, piece[:end]])
        held, size = [b"\n", piece[end:]], len(piece) - end
    if any(held[1:]):
        raise Broken(Reason.TEXT_TRUNCATED)


def _plain(rows: bytes) -> bool:
    """Tell whether every value is spelled as COPY spells it, so that equal values are equal bytes.

    Postgres reads other spellings too, and so do we; where there may be one, no row is left out.
    """
    if any(raw in rows for raw in _RAW):
        return False
    if b"\\" not in rows:
        return True
    single = rows.replace(b"\\\\", b"__")
    nulls = single.count(b"\\N")
    alone = single.count(b"\t\\N") + single.count(b"\n\\N")
    ended = single.count(b"\\N\t") + single.count(b"\\N\n")
    escapes = sum(single.count(b"\\" + letter) for letter in _LETTERS)
    return nulls == alone == ended and single.count(b"\\") == nulls + escapes


def _found(rows: bytes, needle: bytes) -> Iterator[int]:
    """Yield where the rows begin that a needle is found in."""
    at = rows.find(needle)
    while at >= 0:
        start = rows.rfind(b"\n", 0, at + 1) + 1
        yield start
        # The newline that ends this row may begin what is found in the next.
        at = rows.find(needle, rows.index(b"\n", start))
