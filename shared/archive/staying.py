"""Rows that a kind leaves where they are, or takes though they may not be old: counted in bounded time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from psycopg import sql

from shared.archive.examine import Finding, Problem
from shared.archive.fragments import condition, joined
from shared.archive.shape import TimeSort
from shared.archive.source import snapshot
from shared.archive.written import quoted
from shared.catalog.names import TableName, column_written
from shared.db.statement import statement
from shared.errors import Passing, TooMuch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from shared.archive.shape import Relation, Shape
    from shared.catalog.facts import Facts
    from shared.chain.manifest import Table
    from shared.db.connect import Row

READER = "tallystick count"
# What a count may take; beyond that a sample of the table answers, or nothing does.
COUNT_SECONDS = 2.0
# More rows than this are not counted one by one.
COUNTED_MAX = 10_000
# A sample reads about so much of a table.
SAMPLE_BYTES = 64 * 1024 * 1024


def staying(
    connection: psycopg.Connection[Row], shape: Shape, facts: Sequence[Facts], seconds: float
) -> tuple[Finding, ...]:
    """Count roots without a time or with one that may mean never, and related rows without a parent.

    No count takes longer than ``seconds``; one that would is estimated, or left unknown and said to be.
    Raises ``Verdict`` where the database refuses.
    """
    by_name = {each.name: each for each in facts}
    limit = min(COUNT_SECONDS, seconds)
    findings = _times(connection, shape, by_name[name_of(shape.tables[0])], limit)
    for relation in shape.relations[1:]:
        parent = shape.tables[relation.table.parent or 0]
        findings += _orphans(connection, relation, parent, by_name, limit)
    return tuple(findings)


def zone_note(
    connection: psycopg.Connection[Row], shape: Shape, time_zone: str, seconds: float
) -> tuple[Finding, ...]:
    """Say in which zone a time without zone is read, and whether an hour comes twice there each year."""
    if shape.time_sort is not TimeSort.LOCAL:
        return ()
    with snapshot(connection, [], name=READER, seconds=seconds, lock=False):
        asked = statement("shared.archive", "zone_repeats")
        row = connection.execute(asked, {"time_zone": time_zone}).fetchone()
    table, column = shape.tables[0].label, shape.order[0].name
    params: dict[str, Any] = {"table": table, "column": column, "time_zone": time_zone}
    if row and row["repeats"]:
        params["cause"] = "repeats"
    return (Finding(Problem.TIME_ZONE_READ, params),)


def name_of(table: Table) -> TableName:
    """Return the name of a table of a shape as facts have it."""
    return TableName(table.schema, table.name)


def _times(
    connection: psycopg.Connection[Row], shape: Shape, root: Facts, seconds: float
) -> list[Finding]:
    column, number = shape.order[0].name, shape.time_sort is TimeSort.NUMBER
    if root.columns[column]["not_null"] and not number:
        return []
    relation = shape.relations[0]
    counts = partial(_time_counts, relation, column, number=number)
    row = _bounded(connection, counts(sql.SQL("")), seconds)
    exact = row is not None
    if row is None:
        with snapshot(connection, [], name=READER, seconds=seconds, lock=False):
            percent = sample_percent(connection, root.name)
        part = sql.SQL("TABLESAMPLE SYSTEM ({}) REPEATABLE (1)").format(sql.Literal(percent))
        row = _bounded(connection, counts(part), seconds)
    if row is None or not row["total"]:
        return []
    found = []
    for problem, amount in ((Problem.TIME_NULL, row["nulls"]), (Problem.TIME_ZERO, row["zeros"])):
        if amount:
            share = share_text(amount / row["total"])
            params: dict[str, Any] = {"table": relation.table.label, "column": column}
            exactly = {"rows": amount, "total": row["total"], "share": share}
            params |= exactly if exact else {"share": share, "cause": "sampled"}
            if problem is Problem.TIME_ZERO:
                params["where"] = quoted(f"{column_written(column)} > 0")
            found.append(Finding(problem, params))
    return found


def share_text(share: float) -> str:
    """Return a share in percent; one that is more than nothing is never told as 0%."""
    if 0 < share < 0.01:  # noqa: PLR2004 - one percent
        return "under 1%"
    return "over 99%" if 0.99 < share < 1 else f"{share:.0%}"  # noqa: PLR2004 - one percent less


def sample_percent(connection: psycopg.Connection[Row], name: TableName) -> float:
    """Return how much of a table, in percent, a sample may read; its partitions count with it."""
    params = {"schema": name.schema, "table": name.name}
    row = connection.execute(statement("shared.archive", "table_size"), params).fetchone()
    size = row["bytes"] if row else 0
    return min(100.0, 100.0 * SAMPLE_BYTES / size) if size else 100.0


def _time_counts(
    relation: Relation, column: str, part: sql.Composable, *, number: bool
) -> sql.Composed:
    time = sql.Identifier("r", column)
    zeros = sql.SQL("{} <= 0").format(time) if number else sql.SQL("false")
    return sql.SQL(
        "SELECT count(*) AS total, count(*) FILTER (WHERE {} IS NULL) AS nulls,"
        " count(*) FILTER (WHERE {}) AS zeros FROM {} AS r {} WHERE {}"
    ).format(time, zeros, _table(relation.table), part, condition(relation.where))


def _orphans(
    connection: psycopg.Connection[Row],
    relation: Relation,
    parent: Table,
    by_name: dict[TableName, Facts],
    seconds: float,
) -> list[Finding]:
    table = relation.table
    child = by_name[name_of(table)]
    declared = next(
        (
            key
            for key in child.row["foreign_keys"]
            if (key["schema"], key["table"]) == (parent.schema, parent.name)
            and key["columns"] == list(table.foreign_key)
        ),
        None,
    )
    params: dict[str, Any] = {"table": table.label, "parent": parent.label}
    findings = []
    if declared is not None and not declared["validated"]:
        mend = "VALIDATE CONSTRAINT {}" if declared["enforced"] else "ALTER CONSTRAINT {} ENFORCED"
        command = sql.SQL("ALTER TABLE {} " + mend).format(
            _table(table), sql.Identifier(declared["name"])
        )
        about = params | {"name": declared["name"], "sql": command.as_string(None)}
        findings.append(Finding(Problem.FOREIGN_KEY_UNPROVEN, about))
    proven = declared is not None and declared["validated"]
    nullable = [name for name in table.foreign_key if not child.columns[name]["not_null"]]
    if proven and not nullable:
        return findings
    alone = _alone(relation, parent, nullable if proven else None)
    row = _bounded(connection, alone, seconds)
    params["columns"] = list(table.foreign_key)
    if row is None:
        findings.append(Finding(Problem.ROWS_WITHOUT_PARENT, params | {"cause": "unknown"}))
    elif row["rows"] > COUNTED_MAX:
        counted = params | {"rows": COUNTED_MAX, "cause": "many"}
        findings.append(Finding(Problem.ROWS_WITHOUT_PARENT, counted))
    elif row["rows"]:
        findings.append(Finding(Problem.ROWS_WITHOUT_PARENT, params | {"rows": row["rows"]}))
    return findings


def _alone(relation: Relation, parent: Table, nullable: Sequence[str] | None) -> sql.Composed:
    """Return the count of related rows without a parent; of NULLs only, where the key is proven."""
    if nullable is not None:
        alone: sql.Composable = sql.SQL(" OR ").join(
            sql.SQL("{} IS NULL").format(sql.Identifier("c", name)) for name in nullable
        )
    else:
        alone = sql.SQL("NOT EXISTS (SELECT FROM {} AS p WHERE {})").format(
            _table(parent), joined(relation)
        )
    return sql.SQL(
        "SELECT count(*) AS rows FROM (SELECT FROM {} AS c WHERE ({}) AND {} LIMIT {}) AS found"
    ).format(_table(relation.table), alone, condition(relation.where), sql.Literal(COUNTED_MAX + 1))


def _bounded(
    connection: psycopg.Connection[Row], query: sql.Composed, seconds: float
) -> Row | None:
    """Return the one row of a count; None where it took longer than there is time for."""
    try:
        with snapshot(connection, [], name=READER, seconds=seconds, lock=False):
            return connection.execute(query).fetchone()
    except (TooMuch, Passing):
        return None


def _table(table: Table) -> sql.Identifier:
    return sql.Identifier(table.schema, table.name)
