"""Templates of messages: names in braces, parts that may be left out in brackets.

``{name}`` is a parameter, ``{name:bytes}`` a size and ``{name:seconds}`` a time for people,
``{name:shell}`` one word of a command, ``{name|ID}`` a parameter with a placeholder for when it is not
known. A part in ``[brackets]`` is left out when a parameter it names is not there. Brackets around a part
that names no parameter are text: ``tallystick[query]``. Doubled brackets are one bracket of text, for where
there is a parameter between them: ``key = [[{column}]]``.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = re.compile(r"\{(\w+)(?::(\w+))?(?:\|([^{}]*))?\}")
OPTIONAL = re.compile(r"\[([^\[\]]*\{[^\[\]]*)\]")
# What stands for doubled brackets while a template is taken apart: no text has these.
BRACKETS = {"[[": "\x02", "]]": "\x03"}
UNKNOWN = "(unknown)"
TEXT_MAX = 300
LIST_MAX = 10
KIBI = 1024


def fill(template: str, params: Mapping[str, object]) -> str:
    """Return the text of a template; what cannot be filled in is left out or says so."""
    parts = _parts(template)
    kept = [
        part
        for place, part in enumerate(parts)
        if place % 2 == 0 or all(_is_there(params, match[1]) for match in NAME.finditer(part))
    ]
    text = "".join(kept)
    for doubled, mark in BRACKETS.items():
        text = text.replace(mark, doubled[0])
    return NAME.sub(lambda match: _value(match, params), text)


def names(template: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the parameters a template needs, and those it can do without."""
    parts = _parts(template)
    optional = {match[1] for part in parts[1::2] for match in NAME.finditer(part)}
    found = [match for part in parts[::2] for match in NAME.finditer(part)]
    needed = {match[1] for match in found if match[3] is None}
    optional |= {match[1] for match in found if match[3] is not None}
    return frozenset(needed), frozenset(optional)


def size_text(size: int) -> str:
    """Return a number of bytes as people read it: ``12 B``, ``3.4 KiB``, ``1.0 GiB``."""
    if size < KIBI:
        return f"{size} B"
    amount = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= KIBI
        if amount < KIBI:
            return f"{amount:.1f} {unit}"
    return f"{amount / KIBI:.1f} TiB"


def seconds_text(seconds: float) -> str:
    """Return a time as people read it: ``0.21 s``, ``45 s``, ``2 min``, ``3 h``, ``365 d``."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    # The unit is chosen after rounding: what reads as 24 hours is a day.
    for size, unit, limit in ((1, "s", 60), (60, "min", 60), (3600, "h", 24)):
        amount = round(seconds / size, 1)
        if amount < limit:
            return f"{amount:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds / 86400:.1f}".removesuffix(".0") + " d"


def _parts(template: str) -> list[str]:
    """Take a template apart: what may be left out stands at the odd places."""
    for doubled, mark in BRACKETS.items():
        template = template.replace(doubled, mark)
    return OPTIONAL.split(template)


def _is_there(params: Mapping[str, object], name: str) -> bool:
    value = params.get(name)
    return value is not None and value not in ("", [], ())


def _value(match: re.Match[str], params: Mapping[str, object]) -> str:
    name, form, otherwise = match.groups()
    if not _is_there(params, name):
        return UNKNOWN if otherwise is None else otherwise
    value = params[name]
    if form == "bytes" and isinstance(value, int):
        return size_text(value)
    if form == "seconds" and isinstance(value, int | float):
        return seconds_text(value)
    if form == "shell":
        return shlex.quote(str(value))
    return _text(value)


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        shown = [_text(each) for each in value[:LIST_MAX]]
        return ", ".join(shown) + (", …" if len(value) > LIST_MAX else "")
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(each)}" for name, each in list(value.items())[:LIST_MAX])
    # One line without control characters: it goes to terminals and logs.
    words = " ".join(str(value).split())
    text = "".join(letter if letter.isprintable() else "?" for letter in words)
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
