"""Rows looked for in raw bytes: none that holds the text is left out, however it is spelled or cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.chain.batch import unescape
from shared.chain.text import copy_text
from shared.chain.verdict import Broken
from shared.restore.sieve import sieved

WIDTH = 3
texts = st.text(st.sampled_from("aN7\\\t\n\b.ü"), max_size=3)
plain = texts.map(copy_text) | st.just(b"\\N")
# Spellings that Postgres reads and COPY never writes.
odd = st.sampled_from([b"\\a", b"a\\N", b"\\Na", b"\\141", b"\\x37", b"\b", b"\\\\\\N", b"\\7"])


def rows_of(fields: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    return st.lists(st.lists(fields, min_size=WIDTH, max_size=WIDTH).map(b"\t".join), max_size=8)


plain_rows, odd_rows = rows_of(plain), rows_of(plain | odd)


def cut(rows: list[bytes], sizes: list[int]) -> Iterator[bytes]:
    block = b"".join(row + b"\n" for row in rows)
    for size in sizes:
        yield block[:size]
        block = block[size:]
    yield block


def held(row: bytes, place: int) -> str | None:
    return unescape(row.split(b"\t")[place])


@given(
    rows=odd_rows, sizes=st.lists(st.integers(1, 12), max_size=6), place=st.integers(0, WIDTH - 1)
)
@example(rows=[b"1\t\\\\\\N\t2"], sizes=[], place=1)
def test_no_row_that_holds_a_text_is_left_out(
    rows: list[bytes], sizes: list[int], place: int
) -> None:
    for text in {held(row, place) for row in rows} - {None}:
        found = list(sieved(cut(rows, sizes), place, WIDTH, [text or ""]))
        assert [row for row in found if held(row, place) == text] == [
            row for row in rows if held(row, place) == text
        ]


@given(rows=plain_rows, sizes=st.lists(st.integers(1, 12), max_size=6))
def test_rows_come_once_and_in_order_whatever_the_number_of_texts(
    rows: list[bytes], sizes: list[int]
) -> None:
    texts = [text for row in rows if (text := held(row, 0)) is not None]
    found = list(sieved(cut(rows, sizes), 0, WIDTH, texts))
    assert [row for row in found if held(row, 0) is not None] == [
        row for row in rows if held(row, 0) is not None
    ]


@given(rows=plain_rows, place=st.integers(0, WIDTH - 1), text=texts)
def test_of_rows_as_copy_spells_them_only_those_with_the_text_are_handed_on(
    rows: list[bytes], place: int, text: str
) -> None:
    found = list(sieved(cut(rows, []), place, WIDTH, [text]))
    assert all(copy_text(text) in row.split(b"\t") for row in found)


def test_a_block_that_ends_within_a_row_is_refused() -> None:
    with pytest.raises(Broken):
        list(sieved([b"1\ta\n2\t", b"b"], 0, 2, ["2"]))
