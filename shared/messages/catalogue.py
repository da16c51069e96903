"""The catalogues: one file of entries per language."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Entry:
    """Templates: what happened, what to do next, and the command that does it ("" where there is none)."""

    happened: str
    next_step: str
    command: str = ""


def entry(language: str, key: str) -> Entry | None:
    """Return the entry of a code, or of ``code/cause``."""
    return entries(language).get(key)


@cache
def entries(language: str) -> dict[str, Entry]:
    """Return all entries of a language; raises ``LookupError`` for one that has none."""
    file = files("shared.messages") / f"{language}.toml"
    if not file.is_file():
        raise LookupError(language)
    read = tomllib.loads(file.read_text("utf-8"))
    return {
        key: Entry(value["happened"], value.get("next", ""), value.get("command", ""))
        for key, value in read.items()
    }
