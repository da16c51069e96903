"""Rows as CSV or JSON Lines, with every value as exact as the source printed it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shared.chain.manifest import Column, Table
    from shared.restore.rows import Value

# What JSON can say as a number without losing a digit; NaN, infinities and money stay texts.
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-]?[0-9]+)?")
NUMERIC = re.compile(r"(smallint|integer|bigint|real|double precision|oid|numeric(\(.*\))?)")
DOCUMENTS = frozenset({"json", "jsonb"})
TRUTH = {"t": "true", "f": "false"}
CSV_SPECIAL = re.compile(r'[",\r\n]')


def csv_header(table: Table) -> str:
    """Return the line of column names."""
    return ",".join(_csv_field(name) for name in table.copied) + "\n"


def csv_row(values: Iterable[Value]) -> str:
    r"""Return one row as ``COPY … CSV`` writes it: NULL is nothing, an empty text is ``""``."""
    return ",".join("" if value is None else _csv_field(value) for value in values) + "\n"


def json_writer(table: Table) -> Callable[[Iterable[Value]], str]:
    """Return a function that writes rows of a table as one JSON object each, on one line.

    Numbers keep every digit, which readers that go through floating point will lose; JSON documents are
    embedded; everything else is the server's text.
    """
    columns = [column for column in table.columns if column.generated is None]
    names = [json.dumps(column.name, ensure_ascii=False) for column in columns]
    writers = [_json_writer(column) for column in columns]

    def write(values: Iterable[Value]) -> str:
        members = (
            f"{name}:{'null' if value is None else writer(value)}"
            for name, writer, value in zip(names, writers, values, strict=True)
        )
        return "{" + ",".join(members) + "}\n"

    return write


def _csv_field(value: str) -> str:
    # A lone \. would end the data for COPY, and an empty text would be read as NULL.
    if value in {"", "\\."} or CSV_SPECIAL.search(value):
        return '"' + value.replace('"', '""') + '"'
    return value


def _json_writer(column: Column) -> Callable[[str], str]:
    if column.type in DOCUMENTS:
        return _document
    if column.type == "boolean":
        return lambda value: TRUTH[value]
    if NUMERIC.fullmatch(column.type):
        return _number
    return _text


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _number(value: str) -> str:
    return value if NUMBER.fullmatch(value) else _text(value)


def _document(value: str) -> str:
    # A json column keeps the line breaks it was written with, and JSON Lines allows none.
    return value.replace("\n", " ").replace("\r", " ")
