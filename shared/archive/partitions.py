"""Tables that share rows: one is a partition of the other, or inherits from it, at any depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.archive.written import listed, quoted
from shared.catalog.names import TableName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from shared.catalog.facts import Facts


@dataclass(frozen=True)
class Join:
    """How a related table's rows find their parent."""

    parent: TableName
    foreign_key: list[str]
    references: list[str]


def overlaps(tables: Iterable[Facts]) -> list[tuple[TableName, TableName]]:
    """Return every table whose rows another of these tables includes, with that other table."""
    found = {each.name: each for each in tables}
    return [
        (facts.name, ancestor)
        for facts in found.values()
        for ancestor in facts.ancestors
        if ancestor in found
    ]


def holder(reference: dict[str, Any], tables: Collection[TableName]) -> TableName | None:
    """Return which of these tables has the rows that refer by a foreign key: its own, or an ancestor."""
    own = TableName(reference["schema"], reference["table"])
    return next((name for name in (own, *named(reference["ancestors"])) if name in tables), None)


def unfollowed(
    tables: Mapping[TableName, Facts], joins: Mapping[TableName, Join]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the problem and its names for every foreign key into a kind that no row is taken along by."""
    for facts in tables.values():
        apart: dict[tuple[TableName, tuple[str, ...]], list[str]] = {}
        for each in facts.row["referenced_by"]:
            child, columns = TableName(each["schema"], each["table"]), each["columns"]
            params = {"table": str(facts.name), "child": str(child), "name": each["name"]}
            inside, of = holder(each, tables), whole(each)
            join = joins.get(inside) if inside else None
            if join and join.parent == facts.name and sorted(join.foreign_key) == sorted(columns):
                continue
            if inside is not None:
                yield ("SELF_REFERENCE" if inside == facts.name else "SECOND_PATH"), params
            elif of is not None and of not in facts.ancestors:
                apart.setdefault((of, tuple(columns)), []).append(str(child))
            else:
                yield "NOT_FOLLOWED", params
        for (of, names), parts in apart.items():
            form = long_form(of, names, facts.name)
            params = {"table": str(facts.name), "child": str(of), "parts": parts, "related": form}
            yield "PARTITIONS_NOT_FOLLOWED", params
    for name, join in joins.items():
        of = tables[name].whole
        if of is not None and of not in tables[join.parent].ancestors:
            form = long_form(of, join.foreign_key, join.parent)
            yield "PARTITION_ALONE", {"table": str(name), "whole": str(of), "related": form}


def whole(reference: dict[str, Any]) -> TableName | None:
    """Return the partitioned table of which the one that declares a foreign key is a part, if it is one."""
    found = reference["whole"]
    return TableName(found["schema"], found["table"]) if found else None


def declared_by_parts(parent: Facts, child: TableName, columns: list[str]) -> list[str] | None:
    """Return what ``columns`` of a child refer to where only partitions, of either side, declare it.

    None where no such key is declared, or where those declared differ.
    """
    found = [
        each["references"]
        for each in parent.row["referenced_by"]
        if each["columns"] == columns and holder(each, {child}) == child
    ]
    return found[0] if found and all(each == found[0] for each in found) else None


def named(tables: Iterable[dict[str, Any]]) -> tuple[TableName, ...]:
    """Return the names of tables as the catalog query gives them."""
    return tuple(TableName(each["schema"], each["table"]) for each in tables)


def long_form(child: TableName, columns: Iterable[str], parent: TableName) -> str:
    """Return how a kinds file names a related table with the columns that refer to its parent."""
    parts = (
        f"table = {quoted(str(child))}",
        f"foreign_key = {listed(list(columns))}",
        f"references = {quoted(str(parent))}",
    )
    return "{ " + ", ".join(parts) + " }"
