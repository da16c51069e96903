"""Rows as CSV or JSON Lines, with every value as exact as the source printed it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.chain.batch import unescape
from shared.chain.verdict import Broken, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shared.chain.manifest import Table


def _no_constant(name: str) -> str:
    raise ValueError(name)


# What JSON can say as a number without losing a digit; NaN, infinities and money stay texts.
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-]?[0-9]+)?")
NUMERIC = re.compile(r"(smallint|integer|bigint|real|double precision|oid|numeric(\(.*\))?)")
DOCUMENTS = frozenset({"json", "jsonb"})
# Numbers are not converted: they may have more digits than Python reads. NaN is no JSON to Postgres.
CHECKED = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)
TRUTH = {"t": "true", "f": "false", "true": "true", "false": "false"}
CSV_SPECIAL = re.compile(r'[",\r\n]')
# A line of COPY text without any of these is CSV once its tabs are commas: no escape or NULL, nothing to
# quote, no empty text.
COPY_SPECIAL = re.compile(rb'[\\",]|(?:^|\t)(?:\t|$)')


@dataclass(frozen=True)
class Pick:
    """One column of the rows that come out: its name, its type, and its place in a line of COPY text.

    ``place`` is None where a table never held the column: it reads as NULL.
    """

    name: str
    type: str
    place: int | None


def picks_of(table: Table) -> tuple[Pick, ...]:
    """Return all columns that a table's lines hold, in their order."""
    copied = (column for column in table.columns if column.generated is None)
    return tuple(Pick(column.name, column.type, place) for place, column in enumerate(copied))


def csv_header(names: Sequence[str]) -> bytes:
    """Return the line of column names."""
    alone = len(names) == 1
    return (",".join(csv_field(name, alone=alone) for name in names) + "\n").encode()


def csv_row(values: Sequence[str | None]) -> bytes:
    r"""Return one row as ``COPY … CSV`` writes it: NULL is nothing, an empty text is ``""``."""
    alone = len(values) == 1
    fields = ("" if value is None else csv_field(value, alone=alone) for value in values)
    return (",".join(fields) + "\n").encode()


def csv_field(value: str, *, alone: bool) -> str:
    r"""Return one value as ``COPY … CSV`` writes it; ``alone`` on its line, ``\.`` would end the data."""
    if not value or CSV_SPECIAL.search(value) or (alone and value == "\\."):
        return '"' + value.replace('"', '""') + '"'
    return value


def csv_writer(picks: Sequence[Pick], width: int) -> Callable[[bytes], bytes]:
    """Return a function that turns a line of COPY text, ``width`` columns wide, into one of CSV."""
    whole = [pick.place for pick in picks] == list(range(width))
    places = [pick.place for pick in picks]

    def write(line: bytes) -> bytes:
        if whole and not COPY_SPECIAL.search(line):
            return checked(line).replace(b"\t", b",") + b"\n"
        return csv_row(values_at(line, places))

    return write


def json_writer(picks: Sequence[Pick]) -> Callable[[bytes], bytes]:
    """Return a function that turns a line of COPY text into one JSON object on one line.

    Numbers keep every digit, which readers that go through floating point will lose; JSON documents are
    embedded; everything else is the server's text.
    """
    places = [pick.place for pick in picks]
    names = [json.dumps(pick.name, ensure_ascii=False) for pick in picks]
    writers = [json_value(pick.type) for pick in picks]

    def write(line: bytes) -> bytes:
        members = (
            f"{name}:{'null' if value is None else writer(value)}"
            for name, writer, value in zip(names, writers, values_at(line, places), strict=True)
        )
        return ("{" + ",".join(members) + "}\n").encode()

    return write


def json_value(type_name: str) -> Callable[[str], str]:
    """Return the function that spells values of a type in JSON."""
    if type_name in DOCUMENTS:
        return _document
    if type_name == "boolean":
        return _truth
    if NUMERIC.fullmatch(type_name):
        return _number
    return _text


def values_at(line: bytes, places: Sequence[int | None]) -> list[str | None]:
    """Return the values in these places of a line of COPY text; raises ``Broken`` for what is no text."""
    fields = line.split(b"\t")
    try:
        return [None if place is None else unescape(fields[place]) for place in places]
    except ValueError as error:
        raise Broken(Reason.ROW_ESCAPE) from error


def checked(line: bytes) -> bytes:
    """Return a line of COPY text; raises ``Broken`` for one that is not UTF-8."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise Broken(Reason.ROW_ESCAPE) from error
    return line


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _truth(value: str) -> str:
    return TRUTH.get(value) or _text(value)


def _number(value: str) -> str:
    return value if NUMBER.fullmatch(value) else _text(value)


def _document(value: str) -> str:
    """Embed a JSON document; a text that is none stays a text, or it could write members of its own.

    A json column keeps the line breaks it was written with, and JSON Lines allows none.
    """
    try:
        CHECKED.decode(value)
    except (ValueError, RecursionError):
        return _text(value)
    return value.replace("\n", " ").replace("\r", " ")
