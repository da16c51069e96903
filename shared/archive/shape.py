"""The shape of a kind in its database: its tables in order, how they join, and what orders the roots."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from shared.chain.manifest import Column, Table


class TimeSort(StrEnum):
    """How the time of a root is stored, hence how a cutoff is written for it."""

    INSTANT = "instant"
    LOCAL = "local"
    DATE = "date"
    NUMBER = "number"


@dataclass(frozen=True)
class OrderColumn:
    """A column that orders roots: time first, then the key. ``type`` is what its text is cast to."""

    name: str
    type: str
    text: bool


@dataclass(frozen=True)
class Relation:
    """One table as a page reads it; ``text_join`` marks join columns compared byte by byte.

    ``identity`` is the table's oid: the same name may stand for another table in the middle of a job. A
    partitioned table keeps its own when partitions come and go, and every table does when it is truncated
    or rewritten, on a physical standby, and after pg_upgrade.
    """

    table: Table
    where: str | None
    text_join: tuple[bool, ...]
    identity: int | None = None


@dataclass(frozen=True)
class Shape:
    """Everything about tables that a job depends on; a page whose tables differ is refused."""

    relations: tuple[Relation, ...]
    order: tuple[OrderColumn, ...]
    time_sort: TimeSort
    namespace: str | None

    @property
    def tables(self) -> tuple[Table, ...]:
        """Return the tables as a manifest lists them, root first."""
        return tuple(relation.table for relation in self.relations)


@dataclass(frozen=True)
class Opening:
    """What the first unit of a job fixes for all others.

    ``after`` and ``cutoff`` bound the window, as texts of the order columns; ``namespace_value`` is what
    the rows' namespace column must say. ``late_rows`` are rows that appeared before the window since the
    last job, at least; None when that is not known, and ``late_unknown`` then says why, as the parameters
    of LATE_ROWS. ``roots_at_start`` are the roots in the window before the first page, None when they could
    not be counted in time. ``margin_seconds`` and ``held_back`` say how the end of the window was found, as
    ``window.Ending`` does.
    """

    shape: Shape
    after: tuple[str, ...] | None
    cutoff: str
    namespace_value: str | None
    database: str
    encoding: str
    late_rows: int | None
    roots_at_start: int | None = None
    late_unknown: dict[str, Any] | None = None
    margin_seconds: int | None = None
    held_back: str | None = None


@cache
def _openings() -> TypeAdapter[Opening]:
    # Made when first needed: a tick that finds nothing due does without it.
    return TypeAdapter(Opening)


def opening_json(opening: Opening) -> dict[str, Any]:
    """Return an opening as the database stores it."""
    value: dict[str, Any] = _openings().dump_python(opening, mode="json")
    return value


def parse_opening(value: dict[str, Any]) -> Opening:
    """Read what ``opening_json`` wrote."""
    return _openings().validate_python(value)


@dataclass(frozen=True)
class Difference:
    """The first thing in which two shapes differ; ``replaced`` when it is the identity of a table."""

    table: str
    column: str | None
    before: str | None
    now: str | None
    replaced: bool = False


def difference(before: Shape, now: Shape) -> Difference | None:
    """Say where the tables stopped being what the job began with; None when they are the same."""
    if before == now:
        return None
    for old, new in zip(before.tables, now.tables, strict=False):
        if old.label != new.label:
            return Difference(old.label, None, old.label, new.label)
        if found := _column_difference(old, new):
            return found
    for was, is_ in zip(before.relations, now.relations, strict=False):
        if was.identity != is_.identity:
            label = was.table.label
            return Difference(label, None, str(was.identity), str(is_.identity), replaced=True)
    return Difference(before.tables[0].label, None, "joins and order", "others")


def _column_difference(old: Table, new: Table) -> Difference | None:
    was = {column.name: column for column in old.columns}
    are = {column.name: column for column in new.columns}
    for name in [*was, *(name for name in are if name not in was)]:
        if was.get(name) != are.get(name):
            return Difference(old.label, name, _told(was.get(name)), _told(are.get(name)))
    if list(was) != list(are):
        return Difference(old.label, None, ",".join(was), ",".join(are))
    return None


def _told(column: Column | None) -> str | None:
    if column is None:
        return None
    parts = [column.type, "not null" if column.not_null else "null"]
    if column.generated is not None:
        parts.append("generated")
    if column.identity:
        parts.append("identity")
    if column.labels is not None:
        parts.append(f"labels {','.join(column.labels)}")
    return " ".join(parts)
