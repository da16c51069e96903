"""The reader's side of the lines of a batch that are no rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.chain.batch import (
    END_MARK,
    HEADER_MARK,
    PREAMBLE,
    End,
    Header,
    begin_lines,
    commit_line,
    done_line,
)
from shared.chain.canonical import canonical_json, parse_json
from shared.chain.manifest import FORMAT
from shared.chain.verdict import Broken, Reason

if TYPE_CHECKING:
    from shared.chain.manifest import Cursor
    from shared.chain.text import Text

_PRINTABLE = re.compile(rb"[ -~]*")


def read_header(text: Text) -> Header:
    """Take the first line of a batch; raises Broken."""
    value = _marked_json(text.line(), HEADER_MARK, "header", Reason.HEADER_INVALID)
    version = value.get("format")
    if type(version) is not int:
        raise Broken(Reason.HEADER_INVALID, problem="format")
    if version != FORMAT:
        raise Broken(Reason.FORMAT_UNKNOWN, place="header", format=version)
    if value.keys() != {"format", "job", "seq", "prev", "after", "writer"}:
        raise Broken(Reason.HEADER_INVALID, problem="members")
    job, seq, prev, writer = (value[name] for name in ("job", "seq", "prev", "writer"))
    if not (isinstance(job, str) and isinstance(prev, str) and isinstance(writer, str)):
        raise Broken(Reason.HEADER_INVALID, problem="type")
    if type(seq) is not int:
        raise Broken(Reason.HEADER_INVALID, problem="type")
    return Header(job, seq, prev, cursor(value["after"], Reason.HEADER_INVALID), writer)


def check_beginning(text: Text, header: Header) -> None:
    """Take the lines between header and first table; raises Broken unless they are those of the format."""
    if text.take(len(PREAMBLE)) != PREAMBLE:
        raise Broken(Reason.PREAMBLE_MISMATCH)
    guard = begin_lines(header.job, header.seq)
    if text.take(len(guard)) != guard:
        raise Broken(Reason.GUARD_MISMATCH, place="beginning")


def read_guard(text: Text, header: Header) -> bool:
    """Take the lines between last table and end line, and tell whether they call the batch final."""
    found = text.line() + b"\n" + text.line() + b"\n"
    for final in (False, True):
        if found == done_line(header.job, header.seq, final=final) + commit_line(final=final):
            return final
    raise Broken(Reason.GUARD_MISMATCH, place="end")


def read_end(text: Text) -> End:
    """Take the last line of a batch; raises Broken."""
    value = _marked_json(text.line(), END_MARK, "end", Reason.END_INVALID)
    if value.keys() != {"roots", "rows", "raw_bytes", "last", "final"}:
        raise Broken(Reason.END_INVALID, problem="members")
    roots, rows, raw_bytes, final = (
        value[name] for name in ("roots", "rows", "raw_bytes", "final")
    )
    if type(roots) is not int or type(raw_bytes) is not int or not isinstance(final, bool):
        raise Broken(Reason.END_INVALID, problem="type")
    if not isinstance(rows, dict) or any(type(count) is not int for count in rows.values()):
        raise Broken(Reason.END_INVALID, problem="type")
    last = cursor(value["last"], Reason.END_INVALID)
    return End(roots, tuple(rows.items()), raw_bytes, last, final)


def _marked_json(line: bytes, mark: bytes, place: str, reason: Reason) -> dict[str, object]:
    # Printable ASCII alone: a raw carriage return would end the comment for psql.
    if not line.startswith(mark) or not _PRINTABLE.fullmatch(line):
        raise Broken(reason, problem="line")
    spelled = line[len(mark) :]
    value = parse_json(spelled, place=place)
    if not isinstance(value, dict):
        raise Broken(reason, problem="type")
    if canonical_json(value) != spelled:
        raise Broken(reason, problem="not_canonical")
    return value


def cursor(value: object, reason: Reason) -> Cursor | None:
    """Read a cursor out of JSON; raises Broken for `reason`."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise Broken(reason, problem="cursor")
    # No text of a database holds U+0000, and none could be given one to keep.
    if not all(isinstance(text, str) and "\0" not in text for text in value):
        raise Broken(reason, problem="cursor")
    return tuple(value)
