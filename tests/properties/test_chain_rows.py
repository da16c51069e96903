"""Counting rows at C speed agrees with reading them one byte at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.chain.batch import unescape
from shared.chain.text import LastRow, Text, count_rows
from shared.chain.verdict import Broken, Reason

ESCAPES = {
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}

tricky = st.lists(
    st.sampled_from([b"\\", b"\\\\", b".", b"\t", b"\n", b"\n\\.", b"\\.\n", b"N", b"a", b"\r"])
).map(b"".join)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


def escape(text: str) -> bytes:
    return "".join(ESCAPES.get(char, char) for char in text).encode()


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    """Cut `data` into pieces of the given sizes, over and over."""
    at, turn = 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        yield data[at : at + size]
        at, turn = at + size, turn + 1


def rows_one_by_one(data: bytes, columns: int) -> tuple[list[list[bytes]], bytes] | None:
    """Read a block the slow way: its rows and what follows it, or None if it is not a block."""
    rows: list[list[bytes]] = []
    while (end := data.find(b"\n")) >= 0:
        line, data = data[:end], data[end + 1 :]
        if line == b"\\.":
            return rows, data
        fields = line.split(b"\t")
        escapes = re.findall(rb"\\(.?)", line, re.DOTALL)
        if len(fields) != columns or b"\r" in line or {b"", b"\t", b"."} & set(escapes):
            return None
        rows.append(fields)
    return None


@given(tricky, st.integers(1, 3), st.lists(st.integers(1, 9), min_size=1), st.booleans())
@settings(max_examples=500)
def test_a_block_is_counted_as_if_read_byte_by_byte(
    block: bytes, columns: int, sizes: list[int], ended: bool
) -> None:
    data = block + (b"\n\\.\nrest" if ended else b"")
    text = Text(cut(data, sizes))
    last = LastRow(frozenset({0, columns - 1}))
    expected = rows_one_by_one(data, columns)
    try:
        rows, size = count_rows(text, columns, last)
    except Broken:
        assert expected is None
        return
    assert expected is not None
    slow_rows, rest = expected
    assert rows == len(slow_rows)
    assert size == sum(len(b"\t".join(row)) + 1 for row in slow_rows)
    assert text.take(len(rest)) == rest
    assert text.finished()
    if slow_rows:
        assert last.fields == {0: slow_rows[-1][0], columns - 1: slow_rows[-1][-1]}


@given(
    st.lists(st.lists(texts, min_size=2, max_size=2), max_size=4),
    st.lists(st.integers(1, 9), min_size=1),
)
def test_whatever_postgres_would_write_is_accepted(rows: list[list[str]], sizes: list[int]) -> None:
    block = b"".join(b"\t".join(map(escape, row)) + b"\n" for row in rows)
    last = LastRow(frozenset({1}))
    counted = count_rows(Text(cut(block + b"\\.\n", sizes)), 2, last)
    assert counted == (len(rows), len(block))
    if rows:
        assert unescape(last.fields[1]) == rows[-1][1]


@given(texts)
def test_unescaping_undoes_the_escapes_of_postgres(text: str) -> None:
    assert unescape(escape(text)) == text


def test_a_row_longer_than_memory_should_hold_is_followed_without_keeping_it() -> None:
    piece = b"x" * 1024 * 1024
    big = [b"1\t", *[piece] * 64, b"\tlast\n", b"\\.\n"]
    last = LastRow(frozenset({0, 2}))
    assert count_rows(Text(iter(big)), 3, last) == (1, 64 * len(piece) + 8)
    assert last.fields == {0: b"1", 2: b"last"}


def test_a_field_longer_than_any_cursor_is_not_kept_whole() -> None:
    piece = b"x" * 1024 * 1024
    last = LastRow(frozenset({0}))
    count_rows(Text(iter([*[piece] * 40, b"\n\\.\n"])), 1, last)
    assert len(last.fields[0]) == 16 * 1024 * 1024 + 1


@pytest.mark.parametrize(
    ("data", "reason"), [(b"a\n\\.", Reason.TEXT_TRUNCATED), (b"a\tb\n\\.", Reason.ROW_COLUMNS)]
)
def test_a_block_cut_short_is_told_from_a_block_of_bad_rows(data: bytes, reason: Reason) -> None:
    with pytest.raises(Broken) as caught:
        count_rows(Text(iter([data])), 1, LastRow(frozenset()))
    assert caught.value.reason is reason
