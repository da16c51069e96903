"""The writer's side of a batch: every line that is not a row, spelled from values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.chain.canonical import canonical_json
from shared.chain.manifest import FORMAT

if TYPE_CHECKING:
    from shared.chain.manifest import Cursor, Table

HEADER_MARK = b"-- tallystick "
END_MARK = b"-- end "
END_OF_ROWS = b"\\.\n"

PINS: tuple[tuple[str, str], ...] = (
    ("client_encoding", "'UTF8'"),
    ("standard_conforming_strings", "on"),
    ("search_path", "pg_catalog, pg_temp"),
    ("row_security", "off"),
    ("datestyle", "'ISO, YMD'"),
    ("intervalstyle", "'postgres'"),
    ("timezone", "'UTC'"),
    ("extra_float_digits", "3"),
    ("bytea_output", "'hex'"),
    ("array_nulls", "on"),
    ("lc_monetary", "'C'"),
    ("xmloption", "content"),
)
"""Settings, as SQL, under which the text of a value has one meaning: for writing and reading."""

PREAMBLE = b"\\set ON_ERROR_STOP on\n" + b"".join(
    f"SET {name} = {value};\n".encode("ascii") for name, value in PINS
)
"""The lines after the header, the same bytes in every batch of format 1."""

INCOMPLETE = "the archive is not complete"
"""What psql is asked to run in the place of COMMIT after a batch that is not the last: an error."""

# Two statements that are errors outside a transaction block: rows must not be committed batch by batch.
_IN_ONE_TRANSACTION = "SAVEPOINT tallystick;\nRELEASE SAVEPOINT tallystick;\n"
# The setting is local to the transaction and names the last batch that was read in it.
_STEP = (
    "DO $$BEGIN IF coalesce(current_setting('tallystick.chain', true), '') <> '{before}'"
    " THEN RAISE EXCEPTION '{problem}'; END IF;"
    " PERFORM set_config('tallystick.chain', '{now}', true); END$$;\n"
)

_FILE = re.compile(r"([0-9]{6,})\.sql\.zst")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_LETTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


@dataclass(frozen=True)
class Header:
    """Where a batch belongs: its job, its number, the digest and the cursor before it."""

    job: str
    seq: int
    prev: str
    after: Cursor | None
    writer: str


@dataclass(frozen=True)
class End:
    """What a batch holds: counts by label, bytes of row lines, the cursor it ends at."""

    roots: int
    rows: tuple[tuple[str, int], ...]
    raw_bytes: int
    last: Cursor | None
    final: bool


def file_name(seq: int) -> str:
    """Name of the batch file with this number, counted from 1."""
    return f"{seq:06d}.sql.zst"


def file_number(name: str) -> int | None:
    """Number of the batch file with this name; None for a name that `file_name` never gives."""
    match = _FILE.fullmatch(name)
    number = int(match[1]) if match else None
    return number if number and file_name(number) == name else None


def header_line(header: Header) -> bytes:
    """First line of a batch."""
    value = {
        "format": FORMAT,
        "job": header.job,
        "seq": header.seq,
        "prev": header.prev,
        "after": header.after,
        "writer": header.writer,
    }
    return HEADER_MARK + canonical_json(value) + b"\n"


def begin_lines(job: str, seq: int) -> bytes:
    """Lines before the first table: psql stops unless the batch before this one has just ended."""
    place = "be the first in" if seq == 1 else f"come right after batch {seq - 1} in"
    step = _STEP.format(
        before="" if seq == 1 else f"{job} {seq - 1}",
        problem=f"batch {seq} of job {job} must {place} its transaction",
        now=f"{job} {seq} begun",
    )
    return (_IN_ONE_TRANSACTION + step).encode("ascii")


def done_line(job: str, seq: int, *, final: bool) -> bytes:
    """Line after the last table: psql stops unless this same batch began, and notes that it ended."""
    step = _STEP.format(
        before=f"{job} {seq} begun",
        problem=f"the beginning of batch {seq} of job {job} is missing",
        now=f"{job} {seq} final" if final else f"{job} {seq}",
    )
    return step.encode("ascii")


def commit_line(*, final: bool) -> bytes:
    """Line that says what `:tallystick_end` runs after this batch: COMMIT after the last one only."""
    statement = "COMMIT" if final else f"'{INCOMPLETE}'"
    return f"\\set tallystick_end {statement}\n".encode("ascii")


def end_line(end: End) -> bytes:
    """Last line of a batch."""
    value = {
        "roots": end.roots,
        "rows": dict(end.rows),
        "raw_bytes": end.raw_bytes,
        "last": end.last,
        "final": end.final,
    }
    return END_MARK + canonical_json(value) + b"\n"


def quote(name: str) -> str:
    """Quote an SQL name; raises ValueError for one that no line can hold."""
    if not name or _CONTROL.search(name):
        raise ValueError(name)
    return '"' + name.replace('"', '""') + '"'


def copy_line(table: Table) -> bytes:
    """Open the block of one table.

    A table whose columns are all generated has no column list, because `()` is no SQL; each of
    its rows is an empty line.
    """
    name = f"{quote(table.schema)}.{quote(table.name)}"
    columns = ", ".join(quote(column) for column in table.copied)
    listed = f" ({columns})" if columns else ""
    return f"COPY {name}{listed} FROM stdin;\n".encode()


def unescape(field: bytes) -> str | None:
    r"""Turn one field of COPY text into its value; None for the NULL mark `\N`.

    Reads every escape that Postgres reads. Raises ValueError for what is no text: invalid
    UTF-8, a NUL, a backslash at the end.
    """
    if b"\\" not in field:
        return field.decode("utf-8")
    if field == b"\\N":
        return None
    if (len(field) - len(field.rstrip(b"\\"))) % 2:
        raise ValueError(field[-1:])
    text = _ESCAPE.sub(_unescaped, field).decode("utf-8")
    if "\0" in text:
        raise ValueError("\0")
    return text


def _unescaped(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, letter = match.groups()
    if octal is not None:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    return _LETTERS.get(letter, letter)
