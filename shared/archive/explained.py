"""How the server would run a query, asked of it and not guessed from what its catalog says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from psycopg import sql

from shared.archive.source import snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg

    from shared.db.connect import Row

READER = "tallystick explain"
Node = dict[str, Any]


def plan_of(
    connection: psycopg.Connection[Row],
    query: sql.Composed,
    seconds: float,
    without: Sequence[str] = (),
) -> Node:
    """Return the top node of the server's plan for a query that is not run.

    ``without`` names planner settings to turn off (``enable_sort``): the server then does without what
    they stand for wherever it can. Raises ``Trouble``.
    """
    with snapshot(connection, [], name=READER, seconds=seconds, lock=False):
        # Workers would divide the numbers of rows among them.
        connection.execute("SET LOCAL max_parallel_workers_per_gather = 0")
        for setting in without:
            connection.execute(sql.SQL("SET LOCAL {} = off").format(sql.Identifier(setting)))
        row = connection.execute(sql.SQL("EXPLAIN (FORMAT JSON) ") + query).fetchone()
    assert row is not None  # noqa: S101 - a plan has one row
    found = row["QUERY PLAN"]
    top: Node = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return top


def flattened(node: Node) -> Iterator[Node]:
    """Yield a node and everything below it."""
    yield node
    for child in node.get("Plans", ()):
        yield from flattened(child)
