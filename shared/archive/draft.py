"""A kind drafted from what a table and its declared foreign keys say, judged as any kind is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.archive.examine import Finding, Problem, examine, time_sort
from shared.archive.kinds import Kind, Related, TimeUnit, builtin
from shared.archive.partitions import holder, whole
from shared.archive.shape import TimeSort
from shared.archive.source import snapshot
from shared.archive.times import time_column, time_unit
from shared.catalog.facts import inspected
from shared.catalog.names import CONTROL, TableName, likely, parse_table, visible
from shared.db.statement import statement
from shared.errors import Code, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from shared.catalog.facts import Facts
    from shared.db.connect import Row

READER = "tallystick draft"
STATEMENT_SECONDS = 10.0
# Of partitions without a key, which may be thousands.
PARTS_NAMED = 10


@dataclass(frozen=True)
class Link:
    """A declared foreign key by which the rows of ``child`` travel with those of ``parent``.

    ``by_parts`` says that not the child itself declares it, but partitions of it.
    """

    child: TableName
    parent: TableName
    columns: tuple[str, ...]
    by_parts: bool = False


@dataclass(frozen=True)
class Partly:
    """A foreign key that only partitions of the child declare, and some of the ``count`` that do not."""

    link: Link
    count: int
    without: tuple[str, ...]


@dataclass(frozen=True)
class Draft:
    """A kind that can be archived, and what whoever drafted it should be told.

    ``findings`` are warnings about the kind; ``left_out`` are tables that refer to it and cannot travel
    with it, each with the reason; ``outside`` are foreign keys to tables that stay; ``guessed_unit`` says
    that the time unit was taken from the size of the values; ``partly`` are the keys taken that not all
    partitions of their table declare.
    """

    name: str
    kind: Kind
    sort: TimeSort
    findings: tuple[Finding, ...]
    left_out: tuple[tuple[Link, Finding], ...]
    outside: tuple[Link, ...]
    guessed_unit: bool
    partly: tuple[Partly, ...]


@dataclass(frozen=True)
class Wishes:
    """What was said about a draft; None leaves it to the table."""

    time: str | None = None
    time_unit: TimeUnit | None = None
    name: str | None = None


def draft(connection: psycopg.Connection[Row], text: str, wishes: Wishes) -> Draft:
    """Draft a kind for a table, with every table that refers to it, to any depth.

    Raises ``Refused`` when there is no such table, it cannot be archived, or its time must be named.
    """
    table = parse_table(text)
    if table is None:
        if CONTROL.search(text):
            cause = str(Problem.NAME_UNPRINTABLE)
            raise Refused(Code.DRAFT_REFUSED, cause=cause, table=visible(text))
        meant = likely(text)
        raise Refused(
            Code.TABLE_UNKNOWN,
            cause="malformed",
            table=text,
            found=_alike(connection, text),
            written=str(meant) if meant else None,
        )
    with snapshot(connection, [table], name=READER, seconds=STATEMENT_SECONDS, lock=False) as facts:
        root = facts[0]
        if not root.row["found"]:
            found = _like_named(connection, table.name)
            raise Refused(Code.TABLE_UNKNOWN, table=text, found=found)
        time = wishes.time or time_column(connection, root)
        unit = wishes.time_unit or time_unit(connection, root, time)
        known, links = _followed(connection, root)
        partly = [_partly(connection, link) for link in links if link.by_parts]
    kind = _with_key(Kind(root=str(table), time=time, time_unit=unit), root)
    kind, findings, left_out = _related(kind, known, links)
    inside = {parse_table(each.table) for each in kind.related} | {table}
    sort = time_sort(root.columns[time])
    assert sort is not None  # noqa: S101 - a time of another type was refused above
    return Draft(
        name=wishes.name or _name(table),
        kind=kind,
        sort=sort,
        findings=findings,
        left_out=left_out,
        outside=tuple(_outside(known, inside)),
        guessed_unit=unit is not None and wishes.time_unit is None,
        partly=tuple(each for each in partly if each.link.child in inside),
    )


def _followed(
    connection: psycopg.Connection[Row], root: Facts
) -> tuple[dict[TableName, Facts], list[Link]]:
    """Walk the foreign keys into the tree, level by level, and choose one for each table met.

    The nearest to the root counts; of several as near, one that cannot be null: a row surely has that one.
    """
    known, links, level = {root.name: root}, list[Link](), [root]
    while level:
        found: dict[TableName, list[Link]] = {}
        for parent in level:
            for each in parent.row["referenced_by"]:
                if holder(each, known) is None:
                    link = _link(each, parent.name, root)
                    found.setdefault(link.child, []).append(link)
        names = [*known, *found]
        level = inspected(connection, names)[len(known) :] if found else []
        for child_facts in level:
            known[child_facts.name] = child_facts
            links.append(
                min(
                    found[child_facts.name],
                    key=lambda link: (link.by_parts, _nullable(known, link)),
                )
            )
    return known, links


def _link(reference: dict[str, Any], parent: TableName, root: Facts) -> Link:
    """Return how a table travels; as a whole, where a partition of it declares the key for itself.

    So its other partitions go along, and those that are made later.
    """
    child, of = TableName(reference["schema"], reference["table"]), whole(reference)
    columns = tuple(reference["columns"])
    if of is None or of == root.name or of in root.ancestors:
        return Link(child, parent, columns)
    return Link(of, parent, columns, by_parts=True)


def _partly(connection: psycopg.Connection[Row], link: Link) -> Partly:
    asked = {
        "child_schema": link.child.schema,
        "child_name": link.child.name,
        "parent_schema": link.parent.schema,
        "parent_name": link.parent.name,
        "columns": list(link.columns),
        "limit": PARTS_NAMED,
    }
    rows = connection.execute(statement("shared.archive", "parts_without_key"), asked).fetchall()
    names = tuple(str(TableName(row["schema"], row["name"])) for row in rows)
    return Partly(link, rows[0]["found"] if rows else 0, names)


def _nullable(known: dict[TableName, Facts], link: Link) -> bool:
    columns = known[link.child].columns
    return not all(columns[name]["not_null"] for name in link.columns if name in columns)


def _with_key(kind: Kind, root: Facts) -> Kind:
    """Return the kind with a key of the root: the primary one where it will do, which needs no naming."""
    refusal = _refusal(kind, [root])
    if refusal is None:
        return kind
    for columns in root.unique_keys():
        named = kind.model_copy(update={"key": columns})
        if _refusal(named, [root]) is None:
            return named
    raise Refused(Code.DRAFT_REFUSED, cause=str(refusal.problem), **refusal.params)


def _related(
    kind: Kind, known: dict[TableName, Facts], links: list[Link]
) -> tuple[Kind, tuple[Finding, ...], tuple[tuple[Link, Finding], ...]]:
    """Add the tables one by one, so that each is judged for itself; what hangs on one left out is, too."""
    left_out: list[tuple[Link, Finding]] = []
    inside = [parse_table(kind.root)]
    for link in links:
        if link.parent not in inside:
            without = next(why for other, why in left_out if other.child == link.parent)
            left_out.append((link, without))
            continue
        if not _is_written(link.child):
            left_out.append((link, _unwritten(link.child)))
            continue
        grown = kind.model_copy(update={"related": [*kind.related, _long(link)]})
        refusal = _refusal(grown, [known[name] for name in [*inside, link.child] if name])
        if refusal is None:
            kind, inside = grown, [*inside, link.child]
        else:
            left_out.append((link, refusal))
    facts = [known[name] for name in inside if name]
    kind = kind.model_copy(update={"related": [_shortened(each, facts) for each in kind.related]})
    _, findings = examine(kind.definition("application"), facts)
    dropped = {link.child for link, _ in left_out}
    told = (
        found for found in findings if parse_table(found.params.get("child", "")) not in dropped
    )
    return kind, tuple(told), tuple(left_out)


def _long(link: Link) -> Related:
    return Related(
        table=str(link.child), foreign_key=list(link.columns), references=str(link.parent)
    )


def _shortened(related: Related, facts: list[Facts]) -> Related:
    """Return the short form of a related table where that leaves no choice."""
    names = {each.name for each in facts}
    child = next(each for each in facts if str(each.name) == related.table)
    inside = [
        key
        for key in child.row["foreign_keys"]
        if TableName(key["schema"], key["table"]) in names - {child.name}
    ]
    only = inside[0] if len(inside) == 1 else None
    if only is not None and only["columns"] == related.foreign_key:
        return Related(table=related.table)
    return related


def _refusal(kind: Kind, facts: list[Facts]) -> Finding | None:
    if unwritten := [each.name for each in facts if not _is_written(each.name)]:
        return _unwritten(unwritten[0])
    _, findings = examine(kind.definition("application"), facts)
    return next((found for found in findings if found.refuses), None)


def _is_written(name: TableName) -> bool:
    return parse_table(str(name)) == name


def _unwritten(name: TableName) -> Finding:
    return Finding(Problem.NAME_UNPRINTABLE, {"table": visible(str(name))})


def _outside(known: dict[TableName, Facts], inside: set[TableName | None]) -> Iterator[Link]:
    # A key to a partition of a table that travels is one to that table.
    into = {
        (each["schema"], each["table"], each["name"])
        for name, facts in known.items()
        if name in inside
        for each in facts.row["referenced_by"]
    }
    for name, facts in known.items():
        if name in inside:
            for key in facts.row["foreign_keys"]:
                parent = TableName(key["schema"], key["table"])
                if parent not in inside and (name.schema, name.name, key["name"]) not in into:
                    yield Link(name, parent, tuple(key["columns"]))


def _name(table: TableName) -> str:
    """Return a name for the kind: that of the table, as far as its letters go."""
    taken = {kind.name for kind in builtin()}
    for text in (table.name, f"{table.schema}_{table.name}"):
        name = re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_")[:63]
        name = name if re.match("[a-z]", name) else f"kind_{name}"[:63].rstrip("_")
        if name not in taken:
            return name
    return f"{name}_rows"[-63:]


def _alike(connection: psycopg.Connection[Row], text: str) -> list[str]:
    with snapshot(connection, [], name=READER, seconds=STATEMENT_SECONDS, lock=False):
        return _like_named(connection, text.rpartition(".")[2].strip('"'))


def _like_named(connection: psycopg.Connection[Row], name: str) -> list[str]:
    query = statement("shared.archive", "like_named")
    rows = connection.execute(query, {"name": name}).fetchall()
    return [str(TableName(row["schema"], row["name"])) for row in rows]
