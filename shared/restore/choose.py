"""Some roots of an archive and their whole trees, chosen while the rows of a batch stream by.

A child belongs to a chosen row when its foreign key holds what the row's referenced columns hold, to any
depth. Only these few values are kept, of one batch at a time.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import chain
from typing import TYPE_CHECKING

from shared.chain.batch import unescape
from shared.chain.verdict import Broken, Reason
from shared.errors import Code, Refused
from shared.restore.rows import fields, lines
from shared.restore.sieve import TEXTS_MAX, sieved

if TYPE_CHECKING:
    from shared.chain.manifest import Manifest, Table
    from shared.restore.rows import Block, Value

Comparable = Callable[[str], Hashable]

PADDED = re.compile(r"character(\(\d+\))?")
INTEGERS = re.compile(r"smallint|integer|bigint")
NUMBERS = re.compile(rf"{INTEGERS.pattern}|numeric(\(.*\))?|real|double precision")
NULL = r"\N"
# Rows chosen are handed on in pieces of about this size.
PIECE_BYTES = 256 * 1024


@dataclass(frozen=True)
class Choice:
    """Which roots: those with one of these keys (any, where there are none) that fulfil all conditions."""

    keys: frozenset[tuple[Value, ...]]
    where: tuple[tuple[str, Value], ...]


@dataclass
class _Wanted:
    """What the chosen rows of a table hold in the columns that a child refers to."""

    places: tuple[int, ...]
    comparable: tuple[Comparable, ...]
    seen: set[tuple[Hashable, ...]] = field(default_factory=set)


def choice(manifest: Manifest, keys: Iterable[str], where: Iterable[str]) -> Choice:
    r"""Read what people write: keys as texts, conditions as ``column=text``.

    A key of several columns is written like a line of CSV. ``\N`` in a condition is NULL. Raises
    ``Refused`` (CHOICE_INVALID).
    """
    keys, where = tuple(keys), tuple(where)
    for text in (*keys, *where):
        _check_text(text)
    return Choice(
        frozenset(_key(manifest, text) for text in keys),
        tuple(_condition(manifest, text) for text in where),
    )


def chosen(
    manifest: Manifest,
    blocks: Iterable[Block],
    wanted: Choice,
    found: set[tuple[Value, ...]],
    is_older: Callable[[tuple[Value, ...]], bool] | None = None,
) -> Iterator[tuple[Table, Iterator[bytes]]]:
    """Yield each table with the bytes of its chosen rows; these must be taken before the next table.

    The keys of chosen roots are added to ``found``. Roots whose key ``is_older`` accepts are left out.
    """
    kept = [_wanted(manifest, index) for index in range(len(manifest.tables))]
    for index, block in enumerate(blocks):
        if index == 0:
            rows = _roots(manifest, block, wanted, found, is_older)
        else:
            rows = _children(block, _own(manifest, index), kept[index])
        below = [kept[child] for child in _below(manifest, index)]
        yield block.table, _pieces(_remembered(rows, block.table, below))


def is_followed(manifest: Manifest) -> bool:
    """Tell whether the rows that belong to a root can be found by comparing texts, in every table."""
    try:
        for index in range(len(manifest.tables)):
            _wanted(manifest, index)
            _own(manifest, index)
    except Refused:
        return False
    return True


def _check_text(text: str) -> None:
    # An argument of a command may hold any bytes; what is no UTF-8 is in no archive.
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        spelled = text.encode("utf-8", "backslashreplace").decode()
        raise Refused(Code.CHOICE_INVALID, cause="not-text", text=spelled) from error


def _key(manifest: Manifest, text: str) -> tuple[Value, ...]:
    parts = [text] if len(manifest.key) == 1 else next(csv.reader([text], strict=True), [])
    if len(parts) != len(manifest.key):
        raise Refused(Code.CHOICE_INVALID, cause="key-length", key=text, columns=list(manifest.key))
    types = {column.name: column.type for column in manifest.root.columns}
    return tuple(
        _as_printed(types[name], part) for name, part in zip(manifest.key, parts, strict=True)
    )


def _condition(manifest: Manifest, text: str) -> tuple[str, Value]:
    # A name may hold an equals sign itself: the longest that fits is meant.
    names = sorted(manifest.root.copied, key=len, reverse=True)
    for name in names:
        if text.startswith(f"{name}="):
            value = text[len(name) + 1 :]
            types = {column.name: column.type for column in manifest.root.columns}
            return name, None if value == NULL else _as_printed(types[name], value)
    raise Refused(
        Code.CHOICE_INVALID,
        cause="column-unknown",
        condition=text.partition("=")[0],
        columns=list(manifest.root.copied),
    )


def _as_printed(declared: str, text: str) -> str:
    # Nobody writes the spaces that the server pads with.
    return text.rstrip(" ") if PADDED.fullmatch(declared) else text


def _roots(
    manifest: Manifest,
    block: Block,
    wanted: Choice,
    found: set[tuple[Value, ...]],
    is_older: Callable[[tuple[Value, ...]], bool] | None,
) -> Iterator[bytes]:
    table = block.table
    types = {column.name: column.type for column in table.columns}
    key = [(table.copied.index(name), types[name]) for name in manifest.key]
    where = [(table.copied.index(name), types[name], value) for name, value in wanted.where]
    asked = [
        *((place, kind, {own[at] for own in wanted.keys}) for at, (place, kind) in enumerate(key)),
        *((place, kind, {value}) for place, kind, value in where),
    ]
    texts = {place: found for place, kind, found in asked if not PADDED.fullmatch(kind)}
    for line in _likely(block, texts):
        row = fields(line, table)
        if any(_printed(row[place], kind, table) != value for place, kind, value in where):
            continue
        own = tuple(_printed(row[place], kind, table) for place, kind in key)
        if wanted.keys and own not in wanted.keys:
            continue
        if is_older is not None and is_older(own):
            continue
        found.add(own)
        yield line


def _children(
    block: Block, own: tuple[tuple[int, Comparable], ...], parents: _Wanted
) -> Iterator[bytes]:
    if not parents.seen:
        return
    texts = {
        place: {values[at] for values in parents.seen}
        for at, (place, compared) in enumerate(own)
        if compared is _text
    }
    for line in _likely(block, texts):
        row = fields(line, block.table)
        values = [_value(row[place], block.table) for place, _ in own]
        if None in values:
            continue
        joined = tuple(
            compared(value)
            for value, (_, compared) in zip(values, own, strict=True)
            if value is not None
        )
        if joined in parents.seen:
            yield line


def _likely(block: Block, texts: Mapping[int, AbstractSet[Hashable]]) -> Iterator[bytes]:
    """Yield the rows that may hold one of the texts in each of the places given, and perhaps others."""
    few: dict[int, list[str]] = {}
    for place, found in texts.items():
        # NULL is no text, and not looked for.
        listed = [text for text in found if isinstance(text, str)]
        if 0 < len(listed) == len(found) <= TEXTS_MAX:
            few[place] = listed
    if not few:
        return lines(block.pieces)
    # Of several columns the one with the longest texts: they are the rarest.
    rarest = max(few, key=lambda place: min(map(len, few[place])))
    return sieved(block.pieces, rarest, len(block.table.copied), few[rarest])


def _remembered(rows: Iterator[bytes], table: Table, below: list[_Wanted]) -> Iterator[bytes]:
    for line in rows:
        if below:
            row = fields(line, table)
            for wanted in below:
                values = [_value(row[place], table) for place in wanted.places]
                if None not in values:
                    pairs = zip(wanted.comparable, values, strict=True)
                    wanted.seen.add(
                        tuple(compared(value) for compared, value in pairs if value is not None)
                    )
        yield line


def _pieces(rows: Iterator[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for line in rows:
        held.append(line)
        size += len(line) + 1
        if size >= PIECE_BYTES:
            yield b"\n".join(chain(held, [b""]))
            held, size = [], 0
    if held:
        yield b"\n".join(chain(held, [b""]))


def _below(manifest: Manifest, index: int) -> list[int]:
    return [place for place, table in enumerate(manifest.tables) if table.parent == index]


def _wanted(manifest: Manifest, index: int) -> _Wanted:
    """Return what is to be remembered of the parent's rows for the table at ``index``."""
    table = manifest.tables[index]
    if table.parent is None:
        return _Wanted((), ())
    parent = manifest.tables[table.parent]
    _check_joined(table, parent)
    places = tuple(_place(parent, name) for name in table.references)
    return _Wanted(places, tuple(_compared(*types) for types in _types(table, parent)))


def _own(manifest: Manifest, index: int) -> tuple[tuple[int, Comparable], ...]:
    table = manifest.tables[index]
    parent = manifest.tables[table.parent or 0]
    places = [_place(table, name) for name in table.foreign_key]
    compared = [_compared(*types) for types in _types(table, parent)]
    return tuple(zip(places, compared, strict=True))


def _types(table: Table, parent: Table) -> list[tuple[str, str]]:
    own = {column.name: column.type for column in table.columns}
    theirs = {column.name: column.type for column in parent.columns}
    pairs = zip(table.foreign_key, table.references, strict=True)
    return [(own[child], theirs[referenced]) for child, referenced in pairs]


def _place(table: Table, name: str) -> int:
    if name not in table.copied:
        raise Refused(Code.CHOICE_INVALID, cause="join-generated", table=table.label, column=name)
    return table.copied.index(name)


def _check_joined(table: Table, parent: Table) -> None:
    for child, referenced in _types(table, parent):
        bare = {re.sub(r"\(.*\)", "", each) for each in (child, referenced)}
        texts = {"text", "character", "character varying", "name"}
        alike = len(bare) == 1 or bare <= texts or all(map(NUMBERS.fullmatch, (child, referenced)))
        if not alike or "interval" in bare:
            raise Refused(
                Code.CHOICE_INVALID,
                cause="join-types",
                table=table.label,
                type=child,
                references=referenced,
            )


def _compared(child: str, parent: str) -> Comparable:
    """Return what makes texts of two types equal exactly where the source joined them.

    A number may be printed with more digits on one side, unless it is an integer, and a ``character(n)``
    with more spaces.
    """
    if all(map(INTEGERS.fullmatch, (child, parent))):
        return _text
    if all(map(NUMBERS.fullmatch, (child, parent))):
        return _number
    if PADDED.fullmatch(child) or PADDED.fullmatch(parent):
        return lambda text: text.rstrip(" ")
    return _text


def _text(text: str) -> Hashable:
    return text


def _number(text: str) -> Hashable:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return text
    return text if value.is_nan() else value


def _printed(raw: bytes, declared: str, table: Table) -> Value:
    value = _value(raw, table)
    return None if value is None else _as_printed(declared, value)


def _value(raw: bytes, table: Table) -> Value:
    try:
        return unescape(raw)
    except ValueError as error:
        raise Broken(Reason.ROW_ESCAPE, table=table.label) from error
