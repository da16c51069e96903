"""The manifest of a job: what its batches hold, fixed before the first of them is written."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from shared.chain.canonical import canonical_json, parse_json
from shared.chain.verdict import Broken, Reason

FORMAT = 1
MANIFEST_NAME = "manifest.json"
MANIFEST_MAX_BYTES = 16 * 1024 * 1024
# What to read of a manifest's file: its line break, and one byte that gives a longer file away.
MANIFEST_READ_BYTES = MANIFEST_MAX_BYTES + 2

Cursor = tuple[str, ...]
"""A place in the order of roots: the text of the time, then of each key column."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BARE = re.compile(r"[a-z_][a-z0-9_$]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Namespace:
    """The administrative domain that the job belongs to."""

    id: str
    name: str


@dataclass(frozen=True)
class Window:
    """The roots of the job: strictly after `after` (None: from the first), before `cutoff`.

    `margin_seconds` is set where transactions that were running could not be seen when the window was
    fixed: the cutoff is at least so long before the clock of the source.
    """

    after: Cursor | None
    cutoff: str
    margin_seconds: int | None


@dataclass(frozen=True)
class Policy:
    """The policy that the cutoff came from, and how old it asked rows to be."""

    revision: int
    after_days: int


@dataclass(frozen=True)
class Source:
    """The database that was read and the encoding it stores text in."""

    database: str
    encoding: str


@dataclass(frozen=True)
class Column:
    """One column as the source declared it; `generated` holds its expression, or None."""

    name: str
    type: str
    not_null: bool
    generated: str | None
    identity: str
    collation: str | None
    labels: tuple[str, ...] | None


@dataclass(frozen=True)
class Table:
    """One table; `parent` is the index of the table its rows belong to, None for the root."""

    schema: str
    name: str
    parent: int | None
    foreign_key: tuple[str, ...]
    references: tuple[str, ...]
    columns: tuple[Column, ...]

    @cached_property
    def copied(self) -> tuple[str, ...]:
        """Names of the columns whose values are in the batches: all but the generated."""
        return tuple(column.name for column in self.columns if column.generated is None)

    @property
    def label(self) -> str:
        """The table's name as people and end lines write it, quoted only where it must be."""
        return ".".join(
            part if _BARE.fullmatch(part) else '"' + part.replace('"', '""') + '"'
            for part in (self.schema, self.name)
        )


@dataclass(frozen=True)
class Previous:
    """The kind's last closed job, and the tail of its chain."""

    job: str
    tail: str


@dataclass(frozen=True)
class Manifest:
    """Everything that is the same for all batches of a job; `tables[0]` is the root."""

    job: str
    namespace: Namespace
    kind: str
    definition: dict[str, object]
    window: Window
    policy: Policy | None
    batch_size: int
    source: Source
    tables: tuple[Table, ...]
    key: tuple[str, ...]
    time: str
    previous: Previous | None

    @property
    def root(self) -> Table:
        """The table whose rows the job counts and orders."""
        return self.tables[0]


def encode_manifest(manifest: Manifest) -> bytes:
    """Spell the manifest as the bytes of its file, the same from every writer.

    Raises ValueError for a manifest that `parse_manifest` would refuse.
    """
    data = _encoded(manifest)
    try:
        parse_manifest(data)
    except Broken as broken:
        raise ValueError(str(broken)) from broken
    return data


def parse_manifest(data: bytes) -> Manifest:
    """Read a manifest file, accepting only what `encode_manifest` writes; else Broken."""
    if not data.endswith(b"\n"):
        raise _invalid("", "newline")
    value = parse_json(data[:-1], place="manifest")
    version = value.get("format") if isinstance(value, dict) else None
    if type(version) is int and version != FORMAT:
        raise Broken(Reason.FORMAT_UNKNOWN, place="manifest", format=version)
    manifest = _manifest(value)
    if _encoded(manifest) != data:
        raise _invalid("", "not_canonical")
    return manifest


def _encoded(manifest: Manifest) -> bytes:
    return canonical_json({"format": FORMAT, **_members(manifest)}, _members) + b"\n"


def _members(part: Any) -> dict[str, object]:  # noqa: ANN401 - any part of a manifest
    # Not asdict: every tick and every lookup does this, and its deep copy took nine tenths of the time.
    return {field.name: getattr(part, field.name) for field in fields(part)}


def _invalid(path: str, problem: str) -> Broken:
    return Broken(Reason.MANIFEST_INVALID, path=path, problem=problem)


def _manifest(value: object) -> Manifest:
    top = _object(value, "", Manifest.__dataclass_fields__.keys() | {"format"})
    _whole(top["format"], "format", FORMAT)
    manifest = Manifest(
        job=_matching(top["job"], "job", _UUID),
        namespace=_namespace(top["namespace"]),
        kind=_name(top["kind"], "kind"),
        definition=_any_object(top["definition"], "definition"),
        window=_window(top["window"]),
        policy=None if top["policy"] is None else _policy(top["policy"]),
        batch_size=_whole(top["batch_size"], "batch_size", 1),
        source=_source(top["source"]),
        tables=tuple(
            _table(item, f"tables[{index}]")
            for index, item in enumerate(_list(top["tables"], "tables"))
        ),
        key=_names(top["key"], "key"),
        time=_name(top["time"], "time"),
        previous=None if top["previous"] is None else _previous(top["previous"]),
    )
    _check_tables(manifest.tables)
    _check_order(manifest)
    return manifest


def _namespace(value: object) -> Namespace:
    fields = _object(value, "namespace", {"id", "name"})
    return Namespace(
        _matching(fields["id"], "namespace.id", _UUID), _name(fields["name"], "namespace.name")
    )


def _window(value: object) -> Window:
    fields = _object(value, "window", {"after", "cutoff", "margin_seconds"})
    after = None if fields["after"] is None else _texts(fields["after"], "window.after")
    if after is not None and any("\0" in text for text in after):
        raise _invalid("window.after", "value")
    margin = fields["margin_seconds"]
    return Window(
        after,
        _text(fields["cutoff"], "window.cutoff"),
        None if margin is None else _whole(margin, "window.margin_seconds", 0),
    )


def _policy(value: object) -> Policy:
    fields = _object(value, "policy", {"revision", "after_days"})
    return Policy(
        _whole(fields["revision"], "policy.revision", 0),
        _whole(fields["after_days"], "policy.after_days", 0),
    )


def _source(value: object) -> Source:
    fields = _object(value, "source", {"database", "encoding"})
    return Source(
        _name(fields["database"], "source.database"), _name(fields["encoding"], "source.encoding")
    )


def _previous(value: object) -> Previous:
    fields = _object(value, "previous", {"job", "tail"})
    return Previous(
        _matching(fields["job"], "previous.job", _UUID),
        _matching(fields["tail"], "previous.tail", _SHA256),
    )


def _table(value: object, path: str) -> Table:
    fields = _object(value, path, Table.__dataclass_fields__.keys())
    parent = fields["parent"]
    return Table(
        schema=_name(fields["schema"], f"{path}.schema"),
        name=_name(fields["name"], f"{path}.name"),
        parent=None if parent is None else _whole(parent, f"{path}.parent", 0),
        foreign_key=_names(fields["foreign_key"], f"{path}.foreign_key"),
        references=_names(fields["references"], f"{path}.references"),
        columns=tuple(
            _column(item, f"{path}.columns[{index}]")
            for index, item in enumerate(_list(fields["columns"], f"{path}.columns"))
        ),
    )


def _column(value: object, path: str) -> Column:
    fields = _object(value, path, Column.__dataclass_fields__.keys())
    generated, collation, labels = fields["generated"], fields["collation"], fields["labels"]
    if not isinstance(fields["not_null"], bool):
        raise _invalid(f"{path}.not_null", "type")
    if fields["identity"] not in ("", "a", "d"):
        raise _invalid(f"{path}.identity", "value")
    return Column(
        name=_name(fields["name"], f"{path}.name"),
        type=_name(fields["type"], f"{path}.type"),
        not_null=fields["not_null"],
        generated=None if generated is None else _text(generated, f"{path}.generated"),
        identity=str(fields["identity"]),
        collation=None if collation is None else _name(collation, f"{path}.collation"),
        labels=None if labels is None else _texts(labels, f"{path}.labels"),
    )


def _check_tables(tables: tuple[Table, ...]) -> None:
    if not tables:
        raise _invalid("tables", "empty")
    if len({(table.schema, table.name) for table in tables}) != len(tables):
        raise _invalid("tables", "duplicate")
    for index, table in enumerate(tables):
        columns = _column_names(table)
        if len(columns) != len(table.columns):
            raise _invalid(f"tables[{index}].columns", "duplicate")
        _check_relation(tables, index)


def _check_relation(tables: tuple[Table, ...], index: int) -> None:
    table, path = tables[index], f"tables[{index}]"
    if index == 0:
        if table.parent is not None or table.foreign_key or table.references:
            raise _invalid(path, "root_with_parent")
        return
    if table.parent is None or table.parent >= index:
        raise _invalid(f"{path}.parent", "value")
    if not table.foreign_key or len(table.foreign_key) != len(table.references):
        raise _invalid(f"{path}.foreign_key", "length")
    if not set(table.foreign_key) <= _column_names(table):
        raise _invalid(f"{path}.foreign_key", "unknown_column")
    if not set(table.references) <= _column_names(tables[table.parent]):
        raise _invalid(f"{path}.references", "unknown_column")


def _column_names(table: Table) -> set[str]:
    return {column.name for column in table.columns}


def _check_order(manifest: Manifest) -> None:
    columns = _column_names(manifest.root)
    if not manifest.key or len(set(manifest.key)) != len(manifest.key):
        raise _invalid("key", "value")
    if not set(manifest.key) <= columns:
        raise _invalid("key", "unknown_column")
    if manifest.time not in columns:
        raise _invalid("time", "unknown_column")
    after = manifest.window.after
    if after is not None and len(after) != 1 + len(manifest.key):
        raise _invalid("window.after", "length")


def _any_object(value: object, path: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _invalid(path, "type")
    return value


def _object(value: object, path: str, members: AbstractSet[str]) -> dict[str, object]:
    found = _any_object(value, path)
    if found.keys() != members:
        raise _invalid(path, "members")
    return found


def _list(value: object, path: str) -> list[object]:
    if not isinstance(value, list):
        raise _invalid(path, "type")
    return value


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise _invalid(path, "type")
    return value


def _texts(value: object, path: str) -> tuple[str, ...]:
    return tuple(_text(item, path) for item in _list(value, path))


def _name(value: object, path: str) -> str:
    # A line break inside a name would end the COPY line it is written into.
    text = _text(value, path)
    if not text or _CONTROL.search(text):
        raise _invalid(path, "value")
    return text


def _names(value: object, path: str) -> tuple[str, ...]:
    return tuple(_name(item, path) for item in _list(value, path))


def _matching(value: object, path: str, pattern: re.Pattern[str]) -> str:
    text = _text(value, path)
    if not pattern.fullmatch(text):
        raise _invalid(path, "value")
    return text


def _whole(value: object, path: str, least: int) -> int:
    # bool is an int to Python, and `true` is not a number to anyone else.
    if type(value) is not int:
        raise _invalid(path, "type")
    if value < least:
        raise _invalid(path, "value")
    return value
