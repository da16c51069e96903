"""A batch file is one frame, read in bounded memory."""

from __future__ import annotations

import tracemalloc
from collections import deque

import pytest

from shared.chain import frame
from shared.chain.frame import compressor, decompressed
from shared.chain.verdict import Broken, Reason
from tests.unit.chain.scribe import framed


def broken_by(data: bytes, limit: int = frame.MAX_RAW_BYTES) -> Broken:
    with pytest.raises(Broken) as caught:
        deque(decompressed([data], limit=limit), maxlen=0)
    return caught.value


def test_what_the_compressor_wrote_comes_back() -> None:
    packed = compressor()
    data = packed.compress(b"one ") + packed.compress(b"two") + packed.flush()
    assert b"".join(decompressed([data])) == b"one two"


def test_a_bomb_is_broken_at_the_limit_and_never_fills_the_memory() -> None:
    bomb = framed(bytes(64 * 1024 * 1024))
    tracemalloc.start()
    try:
        assert broken_by(bomb, limit=32 * 1024 * 1024).reason is Reason.RAW_TOO_LARGE
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024 * 1024


def test_content_of_exactly_the_limit_is_fine() -> None:
    data = framed(bytes(1000))
    assert sum(map(len, decompressed([data], limit=1000))) == 1000
    assert broken_by(data, limit=999).reason is Reason.RAW_TOO_LARGE


def test_pieces_are_bounded_whatever_a_chunk_expands_to() -> None:
    pieces = list(decompressed([framed(bytes(5_000_000))]))
    assert max(map(len, pieces)) <= frame.PIECE_BYTES
    assert sum(map(len, pieces)) == 5_000_000


@pytest.mark.parametrize("size", [10, 9 * 1024 * 1024])
@pytest.mark.parametrize("step", [1 << 10, 1 << 30])
def test_a_window_above_8_mib_is_refused_however_the_bytes_arrive(size: int, step: int) -> None:
    data = framed(bytes(size), window_log=24)
    with pytest.raises(Broken) as caught:
        list(decompressed(data[at : at + step] for at in range(0, len(data), step)))
    assert caught.value.params == {"problem": "window"}


def test_a_declared_size_is_a_window_too() -> None:
    data = framed(bytes(9 * 1024 * 1024), declare_size=True, window_log=24)
    assert broken_by(data).params == {"problem": "window"}


@pytest.mark.parametrize("size", [13, 255, 256, 65_791, 65_792, 8_000_000])
def test_a_declared_size_within_the_limit_is_fine(size: int) -> None:
    data = framed(bytes(size), declare_size=True)
    assert sum(map(len, decompressed([data]))) == size


def test_a_frame_without_a_checksum_is_refused() -> None:
    assert broken_by(framed(b"rows", checksum_flag=0)).params == {"problem": "checksum"}


def test_a_frame_that_needs_a_dictionary_is_refused() -> None:
    marked = bytearray(framed(b"rows of rows"))
    marked[4] |= 1
    assert broken_by(bytes(marked)).params == {"problem": "dictionary"}


def test_damage_inside_the_frame_is_broken() -> None:
    data = bytearray(framed(b"some rows that compress to a block of their own"))
    data[20] ^= 0x40
    assert broken_by(bytes(data)).reason is Reason.FRAME_INVALID


def test_an_empty_frame_is_a_frame() -> None:
    assert list(decompressed([framed(b"")])) == []


def test_empty_chunks_mean_nothing() -> None:
    data = framed(b"rows")
    assert b"".join(decompressed([b"", data[:9], b"", data[9:], b""])) == b"rows"
