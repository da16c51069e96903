"""Whether indexes serve the pages of a kind, as the planner says; where none does, the SQL that makes one."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from psycopg import sql

from shared.archive.examine import Finding, Problem
from shared.archive.explained import flattened, plan_of
from shared.archive.fragments import condition, joined, table_of
from shared.archive.index import missing_index
from shared.archive.page import root_select
from shared.archive.shape import TimeSort
from shared.archive.source import snapshot
from shared.db.statement import statement

if TYPE_CHECKING:
    import psycopg

    from shared.archive.shape import Opening, Shape
    from shared.catalog.facts import Facts
    from shared.db.connect import Row

READER = "tallystick survey"
OF_INDEXES = frozenset({Problem.NO_INDEX_FOR_ORDER, Problem.NO_INDEX_FOR_JOIN})
# The size of a page does not matter: what cannot serve one page serves none.
PAGE = 1001
# An index by time alone serves where this many rows at most share one time: they are sorted for each page.
TIES_MAX = 10_000
LATEST = {
    TimeSort.INSTANT: "infinity",
    TimeSort.LOCAL: "infinity",
    TimeSort.DATE: "infinity",
    TimeSort.NUMBER: "32767",
}
ORDER_WITHOUT = ("enable_seqscan", "enable_bitmapscan", "enable_sort")
JOIN_WITHOUT = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")
# The child's alias in the query, and those the server makes of it for partitions.
CHILD_ALIAS = re.compile(r"c(_\d+)?")


def index_findings(
    connection: psycopg.Connection[Row], opening: Opening, facts: list[Facts], seconds: float
) -> tuple[Finding, ...]:
    """Ask the planner for the pages of a kind without scans and sorts: what it cannot do lacks an index.

    Raises ``Trouble``.
    """
    by_label = {str(each.name): each for each in facts}
    shape = opening.shape
    findings = []
    if not _serves_order(connection, opening, seconds):
        root = by_label[shape.tables[0].label]
        columns = list(dict.fromkeys(column.name for column in shape.order))
        bytewise = [column.name for column in shape.order if column.text]
        params = missing_index(root, columns, bytewise)
        findings.append(Finding(Problem.NO_INDEX_FOR_ORDER, params))
    for index, relation in enumerate(shape.relations[1:], start=1):
        table = relation.table
        if not _serves_join(connection, opening, index, seconds):
            columns = list(table.foreign_key)
            marked = zip(columns, relation.text_join, strict=True)
            bytewise = [name for name, text in marked if text]
            child = by_label[table.label]
            params = missing_index(child, columns, bytewise)
            findings.append(Finding(Problem.NO_INDEX_FOR_JOIN, params))
    return tuple(findings)


def _child_select(shape: Shape, index: int) -> sql.Composed:
    """Return the query for what belongs to any one row of a related table's parent."""
    relation = shape.relations[index]
    return sql.SQL(
        "SELECT 1 FROM (SELECT c.* FROM {} AS c WHERE {}) AS c JOIN (SELECT * FROM {} LIMIT 1) AS p ON {}"
    ).format(
        table_of(relation),
        condition(relation.where),
        table_of(shape.relations[relation.table.parent or 0]),
        joined(relation),
    )


def _serves_order(connection: psycopg.Connection[Row], opening: Opening, seconds: float) -> bool:
    latest = replace(opening, cutoff=LATEST[opening.shape.time_sort])
    top = plan_of(connection, root_select(latest, None, PAGE), seconds, ORDER_WITHOUT)
    found = {node["Node Type"] for node in flattened(top)}
    if found & {"Seq Scan", "Sort"}:
        return False
    if "Incremental Sort" not in found:
        return True
    table = opening.shape.tables[0]
    asked = {
        "schema": table.schema,
        "table": table.name,
        "column": opening.shape.order[0].name,
    }
    with snapshot(connection, [], name=READER, seconds=seconds, lock=False):
        row = connection.execute(statement("shared.archive", "largest_group"), asked).fetchone()
    return row is None or row["rows"] <= TIES_MAX


def _serves_join(
    connection: psycopg.Connection[Row], opening: Opening, index: int, seconds: float
) -> bool:
    top = plan_of(connection, _child_select(opening.shape, index), seconds, JOIN_WITHOUT)
    nodes = list(flattened(top))
    if any(
        node["Node Type"] == "Seq Scan" and CHILD_ALIAS.fullmatch(node["Alias"]) for node in nodes
    ):
        return False
    columns = opening.shape.tables[index].foreign_key
    conditions = [node["Index Cond"] for node in nodes if "Index Cond" in node]
    # None where nothing can be found at all, as in a table that has no partition yet.
    return not any(CHILD_ALIAS.fullmatch(node.get("Alias", "")) for node in nodes) or any(
        all(_names(each, column) for column in columns) for each in conditions
    )


def _names(text: str, column: str) -> bool:
    written = sql.Identifier(column).as_string(None)
    bare = rf"(?<![\w\"$]){re.escape(column)}(?![\w\"$])"
    return written in text or re.search(bare, text) is not None
