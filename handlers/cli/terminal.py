"""Text of rows as a terminal may show it: nothing in it moves the cursor or changes colours."""

from __future__ import annotations

import json


def printable(value: str | None) -> str:
    """Return a value as a terminal may show it: one line, nothing that moves the cursor."""
    if value is None:
        return "NULL"
    if not value:
        return '""'
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in value
    )


def harmless(piece: bytes) -> bytes:
    r"""Return text with everything that is not printable as ``\uXXXX``, which JSON reads back."""
    text = piece.decode(errors="backslashreplace")
    return "".join(
        each if each.isprintable() or each in "\n\t" else json.dumps(each)[1:-1] for each in text
    ).encode()
