"""Whether a kind can be archived from the tables its database has: a shape, or every reason why not."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shared.archive.index import missing_index
from shared.archive.keys import key_advice, temporal_key
from shared.archive.partitions import Join as _Join
from shared.archive.partitions import declared_by_parts, overlaps, unfollowed
from shared.archive.shape import OrderColumn, Relation, Shape, TimeSort
from shared.catalog.facts import Facts, declared
from shared.catalog.names import CONTROL, TableName, parse_table, visible
from shared.chain.manifest import Table

if TYPE_CHECKING:
    from collections.abc import Mapping


class Problem(StrEnum):
    """What stands in the way of a kind, or should be known about it."""

    TABLE_MISSING = "TABLE_MISSING"
    NOT_A_TABLE = "NOT_A_TABLE"
    TEMPORARY = "TEMPORARY"
    INHERITED = "INHERITED"
    PARTITION_FOREIGN = "PARTITION_FOREIGN"
    ROWS_INCLUDED = "ROWS_INCLUDED"
    NOT_READABLE = "NOT_READABLE"
    ROW_SECURITY = "ROW_SECURITY"
    NAME_UNPRINTABLE = "NAME_UNPRINTABLE"
    COLUMN_MISSING = "COLUMN_MISSING"
    KEY_MISSING = "KEY_MISSING"
    KEY_NULLABLE = "KEY_NULLABLE"
    KEY_NOT_UNIQUE = "KEY_NOT_UNIQUE"
    COLUMN_GENERATED = "COLUMN_GENERATED"
    COLUMN_TYPE = "COLUMN_TYPE"
    TIME_TYPE = "TIME_TYPE"
    TIME_UNIT = "TIME_UNIT"
    TIME_ZONE = "TIME_ZONE"
    FOREIGN_KEY_MISSING = "FOREIGN_KEY_MISSING"
    FOREIGN_KEY_AMBIGUOUS = "FOREIGN_KEY_AMBIGUOUS"
    FOREIGN_KEY_LENGTH = "FOREIGN_KEY_LENGTH"
    FOREIGN_KEY_PERIOD = "FOREIGN_KEY_PERIOD"
    JOIN_COLLATION = "JOIN_COLLATION"
    PARENT_OUTSIDE = "PARENT_OUTSIDE"
    PARENT_NOT_UNIQUE = "PARENT_NOT_UNIQUE"
    TABLES_IN_CIRCLE = "TABLES_IN_CIRCLE"
    NO_INDEX_FOR_ORDER = "NO_INDEX_FOR_ORDER"
    NO_INDEX_FOR_JOIN = "NO_INDEX_FOR_JOIN"
    NOT_FOLLOWED = "NOT_FOLLOWED"
    PARTITIONS_NOT_FOLLOWED = "PARTITIONS_NOT_FOLLOWED"
    PARTITION_ALONE = "PARTITION_ALONE"
    SELF_REFERENCE = "SELF_REFERENCE"
    SECOND_PATH = "SECOND_PATH"
    WHERE_INVALID = "WHERE_INVALID"
    WHERE_READS_CLOCK = "WHERE_READS_CLOCK"
    JOIN_INVALID = "JOIN_INVALID"
    PAGE_READS_ALL = "PAGE_READS_ALL"
    ACTIVITY_HIDDEN = "ACTIVITY_HIDDEN"
    ENCODING_NONE = "ENCODING_NONE"
    FOREIGN_KEY_UNPROVEN = "FOREIGN_KEY_UNPROVEN"
    ROWS_WITHOUT_PARENT = "ROWS_WITHOUT_PARENT"
    TIME_NULL = "TIME_NULL"
    TIME_ZERO = "TIME_ZERO"
    TIME_ZONE_READ = "TIME_ZONE_READ"
    TRANSACTION_PREPARED = "TRANSACTION_PREPARED"


WARNINGS = frozenset(
    {
        Problem.NO_INDEX_FOR_ORDER,
        Problem.NO_INDEX_FOR_JOIN,
        Problem.NOT_FOLLOWED,
        Problem.PARTITIONS_NOT_FOLLOWED,
        Problem.PARTITION_ALONE,
        Problem.SELF_REFERENCE,
        Problem.SECOND_PATH,
        Problem.PAGE_READS_ALL,
        Problem.ACTIVITY_HIDDEN,
        Problem.ENCODING_NONE,
        Problem.FOREIGN_KEY_UNPROVEN,
        Problem.ROWS_WITHOUT_PARENT,
        Problem.TIME_NULL,
        Problem.TIME_ZERO,
        Problem.TIME_ZONE_READ,
        Problem.TRANSACTION_PREPARED,
    }
)

# What a table of a job that has begun can only come to by being changed since.
STRUCTURAL = frozenset(Problem) - WARNINGS - {Problem.NOT_READABLE, Problem.ROW_SECURITY}


@dataclass(frozen=True)
class Finding:
    """One problem of a kind, with the names a message needs."""

    problem: Problem
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def refuses(self) -> bool:
        """Tell whether the kind cannot be archived because of it."""
        return self.problem not in WARNINGS


def tables_of(definition: dict[str, Any]) -> list[TableName]:
    """Return the tables a definition names, root first."""
    texts = [definition["root"], *(related["table"] for related in definition["related"])]
    return [name for name in map(parse_table, texts) if name is not None]


def examine(
    definition: dict[str, Any], facts: list[Facts]
) -> tuple[Shape | None, tuple[Finding, ...]]:
    """Fit a definition to its tables: the shape, unless a finding refuses, and every finding."""
    by_name = {each.name: each for each in facts}
    findings = [found for each in facts for found in _table_findings(each)]
    findings += [
        Finding(Problem.ROWS_INCLUDED, {"table": str(name), "ancestor": str(ancestor)})
        for name, ancestor in overlaps(facts)
    ]
    if findings:
        return None, tuple(findings)
    root = facts[0]
    key = definition["key"] or root.primary_key()
    findings += _root_findings(definition, root, key)
    joins: dict[TableName, _Join] = {}
    for related in definition["related"]:
        name = parse_table(related["table"])
        assert name is not None  # noqa: S101 - kinds files are validated
        joined = _join(definition, related, by_name[name], by_name, key)
        if isinstance(joined, Finding):
            findings.append(joined)
        else:
            joins[name] = joined
            findings += _join_findings(by_name, name, joined, key, root)
    order = _in_order(root.name, joins)
    if order is None:
        findings.append(
            Finding(Problem.TABLES_IN_CIRCLE, {"tables": [str(name) for name in joins]})
        )
    findings += [Finding(Problem(code), params) for code, params in unfollowed(by_name, joins)]
    findings = _once(findings)
    if order is None or key is None or any(found.refuses for found in findings):
        return None, tuple(findings)
    return _shape(definition, by_name, joins, order, key), tuple(findings)


def _once(findings: list[Finding]) -> list[Finding]:
    """Keep the first of those about the same column: it may be part of the key and of several joins."""
    first = {
        (each.problem, each.params.get("table"), each.params.get("column", place)): each
        for place, each in reversed(list(enumerate(findings)))
    }
    return list(reversed(first.values()))


def _table_findings(facts: Facts) -> list[Finding]:
    row, params = facts.row, {"table": str(facts.name)}
    if not row["found"]:
        return [Finding(Problem.TABLE_MISSING, params)]
    checks = (
        (row["kind"] not in {"r", "p"}, Problem.NOT_A_TABLE),
        (row["persistence"] == "t", Problem.TEMPORARY),
        (row["has_heirs"], Problem.INHERITED),
        (row["has_foreign_parts"], Problem.PARTITION_FOREIGN),
        (not row["readable"], Problem.NOT_READABLE),
        (row["row_security"], Problem.ROW_SECURITY),
    )
    findings = [Finding(problem, params) for wrong, problem in checks if wrong]
    return findings + [
        Finding(Problem.NAME_UNPRINTABLE, params | {"column": visible(column)})
        for column in facts.columns
        if CONTROL.search(column)
    ]


def _root_findings(definition: dict[str, Any], root: Facts, key: list[str] | None) -> list[Finding]:
    table = str(root.name)
    if key is None:
        return [Finding(Problem.KEY_MISSING, {"table": table, **key_advice(root)})]
    findings = []
    for column in [definition["time"], *key, *filter(None, [definition["namespace"]])]:
        findings += _order_findings(root, column, key_advice(root) if column in key else {})
    if findings:
        return findings
    if nullable := [name for name in key if not root.columns[name]["not_null"]]:
        findings.append(Finding(Problem.KEY_NULLABLE, {"table": table, "columns": nullable}))
    if not root.is_unique(key):
        findings.append(Finding(Problem.KEY_NOT_UNIQUE, {"table": table, "columns": key}))
    time = root.columns[definition["time"]]
    sort = time_sort(time)
    params = {"table": table, "column": time["name"], "type": time["type"]}
    if sort is None:
        findings.append(Finding(Problem.TIME_TYPE, params))
    if (sort is TimeSort.NUMBER) != (definition["time_unit"] is not None):
        findings.append(Finding(Problem.TIME_UNIT, params))
    if not root.is_indexed([time["name"]], in_order=True):
        columns = list(dict.fromkeys([time["name"], *key]))
        bytewise = [name for name in columns if _is_text(root.columns[name])]
        params = missing_index(root, columns, bytewise)
        findings.append(Finding(Problem.NO_INDEX_FOR_ORDER, params))
    return findings


def _order_findings(
    facts: Facts, name: str, advice: Mapping[str, Any] = MappingProxyType({})
) -> list[Finding]:
    """Judge a column that rows are chosen, ordered or joined by; ``advice`` is for one that will not do."""
    params = {"table": str(facts.name), "column": name}
    column = facts.columns.get(name)
    if column is None:
        return [Finding(Problem.COLUMN_MISSING, params)]
    if column["generated"] is not None:
        return [Finding(Problem.COLUMN_GENERATED, params)]
    if column["base_kind"] == "other":
        return [Finding(Problem.COLUMN_TYPE, params | {"type": column["type"], **advice})]
    return []


def _join(
    definition: dict[str, Any],
    related: dict[str, Any],
    child: Facts,
    by_name: dict[TableName, Facts],
    key: list[str] | None,
) -> _Join | Finding:
    """Find the parent of a related table: by declared foreign key, or as the kind says."""
    params: dict[str, Any] = {"table": str(child.name)}
    parent_name = parse_table(related["references"] or definition["root"])
    assert parent_name is not None  # noqa: S101 - kinds files are validated
    if parent_name not in by_name:
        return Finding(Problem.PARENT_OUTSIDE, params | {"parent": str(parent_name)})
    if period := temporal_key(child, related["foreign_key"], by_name):
        return Finding(Problem.FOREIGN_KEY_PERIOD, params | {"name": period})
    declared = [
        _Join(TableName(each["schema"], each["table"]), each["columns"], each["references"])
        for each in child.row["foreign_keys"]
    ]
    inside = [join for join in declared if join.parent in by_name and join.parent != child.name]
    if related["references"]:
        inside = [join for join in inside if join.parent == parent_name]
    if related["foreign_key"] is None:
        if len(inside) == 1:
            return inside[0]
        problem = Problem.FOREIGN_KEY_AMBIGUOUS if inside else Problem.FOREIGN_KEY_MISSING
        found = [f"{join.parent} ({', '.join(join.foreign_key)})" for join in inside]
        return Finding(problem, params | {"found": found})
    for join in inside:
        if join.foreign_key == related["foreign_key"]:
            return join
    parent = by_name[parent_name]
    references = declared_by_parts(parent, child.name, related["foreign_key"])
    if references is None:
        is_root = parent_name == parse_table(definition["root"])
        references = key if is_root else parent.primary_key()
    if references is None or len(references) != len(related["foreign_key"]):
        return Finding(
            Problem.FOREIGN_KEY_LENGTH,
            params | {"columns": related["foreign_key"], "references": references or []},
        )
    return _Join(parent_name, related["foreign_key"], references)


def _join_findings(
    by_name: dict[TableName, Facts],
    name: TableName,
    join: _Join,
    key: list[str] | None,
    root: Facts,
) -> list[Finding]:
    child, parent = by_name[name], by_name[join.parent]
    findings = []
    for column in join.foreign_key:
        findings += [
            found
            for found in _order_findings(child, column)
            if found.problem is not Problem.COLUMN_GENERATED
        ]
    for column in join.references:
        findings += _order_findings(parent, column)
    sides = [(child, column) for column in join.foreign_key]
    sides += [(parent, column) for column in join.references]
    for facts, column in sides:
        # The server may tie a row to a parent that is spelled otherwise; by bytes it would be lost.
        if column in facts.columns and not facts.columns[column]["exact"]:
            where = {"table": str(facts.name), "column": column}
            findings.append(Finding(Problem.JOIN_COLLATION, where))
    is_key = parent is root and key is not None and sorted(key) == sorted(join.references)
    if not is_key and not parent.is_unique(join.references):
        params = {"table": str(parent.name), "columns": join.references, "child": str(name)}
        findings.append(Finding(Problem.PARENT_NOT_UNIQUE, params))
    if not findings and not child.is_indexed(join.foreign_key):
        collated = zip(
            join.foreign_key, _text_join(child.columns, parent.columns, join), strict=True
        )
        bytewise = [column for column, text in collated if text]
        index = missing_index(child, join.foreign_key, bytewise)
        findings.append(Finding(Problem.NO_INDEX_FOR_JOIN, index))
    return findings


def _in_order(root: TableName, joins: dict[TableName, _Join]) -> list[TableName] | None:
    """Return the tables so that each comes after its parent; None when they go in a circle."""
    order, waiting = [root], list(joins)
    while waiting:
        ready = [name for name in waiting if joins[name].parent in order]
        if not ready:
            # A parent that was refused leaves its children waiting too; that is no circle.
            stuck = all(joins[name].parent in joins for name in waiting)
            return None if stuck else order
        order += ready
        waiting = [name for name in waiting if name not in ready]
    return order


def _shape(
    definition: dict[str, Any],
    by_name: dict[TableName, Facts],
    joins: dict[TableName, _Join],
    order: list[TableName],
    key: list[str],
) -> Shape:
    root = by_name[order[0]]
    wheres = {parse_table(each["table"]): each["where"] for each in definition["related"]}
    relations = []
    for name in order:
        join = joins.get(name)
        columns = by_name[name].columns
        table = Table(
            schema=name.schema,
            name=name.name,
            parent=order.index(join.parent) if join else None,
            foreign_key=tuple(join.foreign_key) if join else (),
            references=tuple(join.references) if join else (),
            columns=tuple(declared(column) for column in columns.values()),
        )
        text_join = _text_join(columns, by_name[join.parent].columns, join) if join else ()
        where = wheres[name] if join else definition["where"]
        identity = by_name[name].row["identity"]
        relations.append(Relation(table, where, text_join, identity))
    sort = time_sort(root.columns[definition["time"]])
    assert sort is not None  # noqa: S101 - a time of another type was refused above
    return Shape(
        relations=tuple(relations),
        order=tuple(
            OrderColumn(name, root.columns[name]["base"], _is_text(root.columns[name]))
            for name in (definition["time"], *key)
        ),
        time_sort=sort,
        namespace=definition["namespace"],
    )


def _is_text(column: dict[str, Any]) -> bool:
    return column["collates"] is not None


def _text_join(
    child: dict[str, dict[str, Any]], parent: dict[str, dict[str, Any]], join: _Join
) -> tuple[bool, ...]:
    """Mark the columns to be compared byte by byte against their collation.

    Only where the two collate differently: an index serves no comparison under another collation, and
    every collation that gets here calls texts equal only when their bytes are.
    """
    pairs = [
        (child[ours], parent[theirs])
        for ours, theirs in zip(join.foreign_key, join.references, strict=True)
    ]
    return tuple(
        _is_text(ours) and ours["collates"] != theirs["collates"] for ours, theirs in pairs
    )


def time_sort(column: dict[str, Any]) -> TimeSort | None:
    """Return how a column can hold the time of a root; None when it cannot."""
    return {
        "timestamp with time zone": TimeSort.INSTANT,
        "timestamp without time zone": TimeSort.LOCAL,
        "date": TimeSort.DATE,
        "smallint": TimeSort.NUMBER,
        "integer": TimeSort.NUMBER,
        "bigint": TimeSort.NUMBER,
    }.get(column["base"])
