"""What can be said about an archive: verdicts, and the reasons an archive is broken."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice

TOLD_MAX_CHARS = 200
TOLD_MAX_ITEMS = 40


class Verdict(StrEnum):
    """The one-word answer about a chain, from best to worst."""

    SOUND = "SOUND"
    CONSISTENT = "CONSISTENT"
    UNFINISHED = "UNFINISHED"
    UNRECORDED = "UNRECORDED"
    BROKEN = "BROKEN"


class Reason(StrEnum):
    """Why bytes are not what the format demands; the codes are stable."""

    JSON_INVALID = "JSON_INVALID"
    FORMAT_UNKNOWN = "FORMAT_UNKNOWN"
    MANIFEST_INVALID = "MANIFEST_INVALID"

    FRAME_INVALID = "FRAME_INVALID"
    FRAME_REFUSED = "FRAME_REFUSED"
    FRAME_TRUNCATED = "FRAME_TRUNCATED"
    FRAME_TRAILING = "FRAME_TRAILING"
    RAW_TOO_LARGE = "RAW_TOO_LARGE"

    TEXT_TRUNCATED = "TEXT_TRUNCATED"
    TEXT_TRAILING = "TEXT_TRAILING"
    LINE_TOO_LONG = "LINE_TOO_LONG"
    HEADER_INVALID = "HEADER_INVALID"
    PREAMBLE_MISMATCH = "PREAMBLE_MISMATCH"
    GUARD_MISMATCH = "GUARD_MISMATCH"
    COPY_MISMATCH = "COPY_MISMATCH"
    ROW_CONTROL = "ROW_CONTROL"
    ROW_ESCAPE = "ROW_ESCAPE"
    ROW_COLUMNS = "ROW_COLUMNS"
    END_INVALID = "END_INVALID"

    JOB_MISMATCH = "JOB_MISMATCH"
    SEQ_MISMATCH = "SEQ_MISMATCH"
    PREV_MISMATCH = "PREV_MISMATCH"
    AFTER_MISMATCH = "AFTER_MISMATCH"
    ROWS_MISMATCH = "ROWS_MISMATCH"
    ROOTS_MISMATCH = "ROOTS_MISMATCH"
    RAW_BYTES_MISMATCH = "RAW_BYTES_MISMATCH"
    LAST_MISMATCH = "LAST_MISMATCH"

    FILE_MISSING = "FILE_MISSING"
    FILE_AFTER_FINAL = "FILE_AFTER_FINAL"
    TAIL_NOT_FOUND = "TAIL_NOT_FOUND"

    # These three are for whoever opens the files; nothing in this package sees a directory.
    MANIFEST_MISSING = "MANIFEST_MISSING"
    ENTRY_FOREIGN = "ENTRY_FOREIGN"
    ENTRY_NOT_REGULAR = "ENTRY_NOT_REGULAR"


class Broken(Exception):
    """The bytes that were read are not what the format demands.

    `params` hold what a message needs: numbers, digests, names, positions; never row values
    except those of a cursor. They may come from a hostile file and go to databases, logs and
    terminals: texts and lists are cut to a size, and what cannot be printed is a question mark.
    """

    def __init__(self, reason: Reason, **params: object) -> None:
        """Break for `reason`, with what a message needs to know."""
        super().__init__(reason)
        self.reason = reason
        self.params = {name: _told(value) for name, value in params.items()}

    def __str__(self) -> str:
        """Code and parameters, for logs and tracebacks."""
        return f"{self.reason} {self.params}"


def _told(value: object) -> object:
    if isinstance(value, str):
        text = value[:TOLD_MAX_CHARS]
        if not text.isprintable():
            text = "".join(char if char.isprintable() else "?" for char in text)
        return text if len(value) <= TOLD_MAX_CHARS else text + "…"
    if isinstance(value, tuple | list):
        return type(value)(_told(item) for item in value[:TOLD_MAX_ITEMS])
    if isinstance(value, dict):
        told = islice(value.items(), TOLD_MAX_ITEMS)
        return {_told(name): _told(item) for name, item in told}
    return value
