"""A batch file is exactly one zstd frame: how it is written and how it is read."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from shared.chain.verdict import Broken, Reason

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LEVEL = 3
MAX_WINDOW_LOG = 23
MAX_RAW_BYTES = 4 * 1024 * 1024 * 1024
PIECE_BYTES = 256 * 1024

Compressor = zstd.ZstdCompressor

_MAGIC = b"\x28\xb5\x2f\xfd"
# Magic, descriptor and the longest content size; no valid frame with a checksum is shorter.
_HEAD_BYTES = 13
_SINGLE_SEGMENT = 0x20
_CHECKSUM = 0x04
_DICTIONARY = 0x03
# Decoders look at neither bit; a writer leaves both at zero.
_RESERVED_OR_UNUSED = 0x18


def compressor() -> Compressor:
    """Start the one frame of a batch: `compress` any number of times, then `flush` once."""
    return Compressor(
        options={
            zstd.CompressionParameter.compression_level: LEVEL,
            zstd.CompressionParameter.checksum_flag: 1,
        }
    )


def decompressed(chunks: Iterable[bytes], *, limit: int = MAX_RAW_BYTES) -> Iterator[bytes]:
    """Yield the content of exactly one frame in pieces of at most PIECE_BYTES.

    Raises Broken for anything that is not one whole frame with a checksum, a window of at most
    8 MiB and at most `limit` bytes of content, and for any byte after it.
    """
    decoder = zstd.ZstdDecompressor(
        options={zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
    )
    raw_bytes = 0
    for chunk in _with_checked_head(chunks):
        if decoder.eof and chunk:
            raise Broken(Reason.FRAME_TRAILING)
        for piece in _pieces(decoder, chunk):
            raw_bytes += len(piece)
            if raw_bytes > limit:
                raise Broken(Reason.RAW_TOO_LARGE, limit=limit)
            yield piece
        if decoder.eof and decoder.unused_data:
            raise Broken(Reason.FRAME_TRAILING)
    if not decoder.eof:
        raise Broken(Reason.FRAME_TRUNCATED)


def _pieces(decoder: zstd.ZstdDecompressor, chunk: bytes) -> Iterator[bytes]:
    # A bounded max_length means a bomb costs time, never memory.
    pending = chunk
    while not decoder.eof:
        try:
            piece = decoder.decompress(pending, PIECE_BYTES)
        except zstd.ZstdError:
            raise Broken(Reason.FRAME_INVALID) from None
        pending = b""
        if piece:
            yield piece
        if decoder.needs_input:
            return


def _with_checked_head(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = iter(chunks)
    head = b""
    for chunk in rest:
        head += chunk
        if len(head) >= _HEAD_BYTES:
            break
    else:
        raise Broken(Reason.FRAME_TRUNCATED)
    _check_head(head)
    yield head
    yield from rest


def _check_head(head: bytes) -> None:
    # Judged here and not left to the library alone: it skips its window check when a whole frame
    # fits one call, and the verdict must not depend on how the bytes were cut into chunks.
    if not head.startswith(_MAGIC):
        raise Broken(Reason.FRAME_INVALID)
    flags = head[4]
    if flags & _RESERVED_OR_UNUSED:
        raise Broken(Reason.FRAME_REFUSED, problem="reserved")
    if flags & _DICTIONARY:
        raise Broken(Reason.FRAME_REFUSED, problem="dictionary")
    if not flags & _CHECKSUM:
        raise Broken(Reason.FRAME_REFUSED, problem="checksum")
    if _window_bytes(head) > 1 << MAX_WINDOW_LOG:
        raise Broken(Reason.FRAME_REFUSED, problem="window")


def _window_bytes(head: bytes) -> int:
    flags = head[4]
    if not flags & _SINGLE_SEGMENT:
        exponent, mantissa = head[5] >> 3, head[5] & 7
        base = 1 << (10 + exponent)
        return base + (base >> 3) * mantissa
    width = (1, 2, 4, 8)[flags >> 6]
    # A size in two bytes counts from 256, which makes no difference to a limit of megabytes.
    return int.from_bytes(head[5 : 5 + width], "little")
