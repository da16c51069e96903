"""A drafted kind as the text of a kinds file, with comments on what was decided and what stays behind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from shared.archive.shape import TimeSort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shared.archive.draft import Draft, Link, Partly
    from shared.archive.kinds import Related

    # Turns the code of a comment and its parameters into words.
    Told = Callable[[str, dict[str, Any]], str]

WIDTH = 100


def kind_text(draft: Draft, told: Told) -> str:
    """Return the text of a draft; read as a kinds file, it gives the kind that was drafted."""
    return "\n".join(_lines(draft, told)) + "\n"


def quoted(text: str) -> str:
    """Return a text as TOML writes it, in the quotes that leave it readable."""
    plain = text.isprintable() and "\\" not in text
    if plain and '"' not in text:
        return f'"{text}"'
    if plain and "'" not in text:
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def listed(texts: list[str]) -> str:
    """Return texts as a TOML array."""
    return "[" + ", ".join(map(quoted, texts)) + "]"


def _lines(draft: Draft, told: Told) -> Iterator[str]:
    kind = draft.kind
    yield from _comment(told("draft-heading", {"table": kind.root}))
    yield f"[kinds.{draft.name}]"
    yield f"root = {quoted(kind.root)}"
    if kind.key:
        yield f"key = {listed(kind.key)}"
    yield f"time = {quoted(kind.time)}"
    if draft.sort is TimeSort.LOCAL:
        yield from _comment(told("draft-time-zone", {"column": kind.time}))
        yield f"time_zone = {quoted(kind.time_zone)}"
    if kind.time_unit:
        if draft.guessed_unit:
            yield from _comment(told("draft-time-unit", {"column": kind.time}))
        yield f"time_unit = {quoted(kind.time_unit)}"
    if kind.related:
        yield "related = ["
        yield from (f"    {_related(each)}," for each in kind.related)
        yield "]"
    yield from _comment(told("draft-policy", {}))
    yield from ('# after = "365d"', '# every = "24h"', "# batch = 1000")
    yield from _remarks(draft, told)


def _remarks(draft: Draft, told: Told) -> Iterator[str]:
    remarks = [told("draft-outside", _params(link)) for link in draft.outside]
    remarks += [told("draft-parts", _part_params(part)) for part in draft.partly]
    for link, why in draft.left_out:
        left_out = told("draft-left-out", _params(link))
        remarks.append(f"{left_out} {told(str(why.problem), why.params)}")
    remarks += [told(str(each.problem), each.params) for each in draft.findings]
    for remark in remarks:
        yield "#"
        yield from _comment(remark)


def _params(link: Link) -> dict[str, Any]:
    return {
        "child": str(link.child),
        "parent": str(link.parent),
        "columns": list(link.columns),
    }


def _part_params(partly: Partly) -> dict[str, Any]:
    return {**_params(partly.link), "count": partly.count, "without": list(partly.without)}


def _related(each: Related) -> str:
    if each.foreign_key is None:
        return quoted(each.table)
    parts = [f"table = {quoted(each.table)}", f"foreign_key = {listed(each.foreign_key)}"]
    if each.references:
        parts.append(f"references = {quoted(each.references)}")
    return "{ " + ", ".join(parts) + " }"


def _comment(text: str) -> Iterator[str]:
    """Break a comment over lines at spaces; a name has to stay whole to be found."""
    line = "#"
    for word in text.split():
        if len(line) + 1 + len(word) > WIDTH and line != "#":
            yield line
            line = "#"
        line += f" {word}"
    yield line
