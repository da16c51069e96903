"""The parts that the queries of a page are composed of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from shared.archive.shape import OrderColumn, Relation, Shape
    from shared.chain.manifest import Cursor


def time_bounds(
    alias: str, column: str, time: OrderColumn, after: Cursor | None, last: Cursor | None
) -> list[sql.Composed]:
    """Return the conditions that a column lies between the times of two cursors, both included."""
    return [
        sql.SQL("{} {} {}").format(
            sql.Identifier(alias, column), sql.SQL(operator), cast(cursor[0], time)
        )
        for cursor, operator in ((after, ">="), (last, "<="))
        if cursor is not None
    ]


def condition(where: str | None) -> sql.Composable:
    """Return a kind's own condition, which speaks of its table alone and sees no other name."""
    if where is None:
        return sql.SQL("true")
    # On lines of its own: a comment at its end cannot swallow the parenthesis.
    return sql.SQL("(\n{}\n)").format(sql.SQL(where))


def joined(relation: Relation) -> sql.Composed:
    """Return the condition that joins a related table, as ``c``, to its parent, as ``p``."""
    table = relation.table
    pairs = zip(table.foreign_key, table.references, relation.text_join, strict=True)
    return sql.SQL(" AND ").join(
        sql.SQL("{}{} = {}").format(
            sql.Identifier("c", child),
            sql.SQL(' COLLATE "C"' if text else ""),
            sql.Identifier("p", parent),
        )
        for child, parent, text in pairs
    )


def columns_of(alias: str, relation: Relation) -> sql.Composed:
    """Return the columns of a table that a batch holds, in their order."""
    return sql.SQL(", ").join(sql.Identifier(alias, name) for name in relation.table.copied)


def table_of(relation: Relation) -> sql.Identifier:
    """Return the name of a table."""
    return sql.Identifier(relation.table.schema, relation.table.name)


def in_order(shape: Shape) -> sql.Composed:
    """Return what orders roots, as ``r``."""
    return sql.SQL(", ").join(ordered("r", column) for column in shape.order)


def ordered(alias: str, column: OrderColumn) -> sql.Composed:
    """Return a column as it is compared and ordered."""
    # Byte order for text, so that no collation, and no other version of one, can move a row.
    return sql.SQL("{}{}").format(
        sql.Identifier(alias, column.name), sql.SQL(' COLLATE "C"' if column.text else "")
    )


def cast(text: str, column: OrderColumn) -> sql.Composed:
    """Return the text of a value as the column's type."""
    return sql.SQL("CAST({} AS {})").format(sql.Literal(text), sql.SQL(column.type))
