"""Places spread evenly over the roots of a window, from where a page can be read as from any cursor."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from psycopg import sql

from shared.archive.page import root_select
from shared.archive.source import snapshot
from shared.errors import Passing, TooMuch

if TYPE_CHECKING:
    import psycopg

    from shared.archive.preview import Extent
    from shared.archive.shape import Opening
    from shared.chain.manifest import Cursor
    from shared.db.connect import Row

READER = "tallystick preview"
# What finding one place may take.
PLACE_SECONDS = 1.0


def places(
    connection: psycopg.Connection[Row], opening: Opening, extent: Extent, count: int
) -> list[Cursor]:
    """Return up to ``count - 1`` cursors that divide the window into parts of about the same size.

    By counting along the order where the roots were counted, else by what the last ANALYZE saw of the
    times. Fewer, or none, where that takes too long or nothing is known.
    """
    if extent.exact:
        asked = [
            sql.SQL("{} OFFSET {}").format(
                _cursor(opening, root_select(opening, None, at)), sql.Literal(at - 1)
            )
            for at in (extent.roots * part // count for part in range(1, count))
            if at > 0
        ]
    else:
        asked = [
            _cursor(opening, root_select(_from(opening, bound), None, 1))
            for bound in _bounds(connection, opening, count)
        ]
    found = []
    for query in asked:
        row = _answer(connection, query)
        if row is None:
            break
        found.append(tuple(row["cursor"]))
    return found


def _cursor(opening: Opening, roots: sql.Composed) -> sql.Composed:
    texts = sql.SQL(", ").join(
        sql.SQL("{}::pg_catalog.text").format(sql.Identifier("p", column.name))
        for column in opening.shape.order
    )
    return sql.SQL("SELECT ARRAY[{}] AS cursor FROM ({}) AS p").format(texts, roots)


def _from(opening: Opening, bound: str) -> Opening:
    """Return the opening for roots from a time on only."""
    root, *related = opening.shape.relations
    time = opening.shape.order[0]
    later = sql.SQL("{} >= CAST({} AS {})").format(
        sql.Identifier(time.name), sql.Literal(bound), sql.SQL(time.type)
    )
    where = later.as_string(None) + (f" AND (\n{root.where}\n)" if root.where else "")
    return replace(
        opening, shape=replace(opening.shape, relations=(replace(root, where=where), *related))
    )


def _bounds(connection: psycopg.Connection[Row], opening: Opening, count: int) -> list[str]:
    table, time = opening.shape.tables[0], opening.shape.order[0]
    query = sql.SQL(
        "SELECT array_agg(bound ORDER BY place) AS bounds FROM ("
        "SELECT histogram_bounds::text::text[] AS bounds FROM pg_stats"
        " WHERE schemaname = {} AND tablename = {} AND attname = {}"
        " ORDER BY inherited DESC LIMIT 1) AS known"
        " CROSS JOIN LATERAL unnest(bounds) WITH ORDINALITY AS one (bound, place)"
        " WHERE CAST(bound AS {}) < CAST({} AS {})"
    ).format(
        *map(sql.Literal, (table.schema, table.name, time.name)),
        sql.SQL(time.type),
        sql.Literal(opening.cutoff),
        sql.SQL(time.type),
    )
    row = _answer(connection, query)
    bounds = (row["bounds"] if row else None) or []
    return [bounds[len(bounds) * part // count] for part in range(1, count)] if bounds else []


def _answer(connection: psycopg.Connection[Row], query: sql.Composed) -> Row | None:
    try:
        with snapshot(connection, [], name=READER, seconds=PLACE_SECONDS, lock=False):
            return connection.execute(query).fetchone()
    except (TooMuch, Passing):
        return None
