"""What a statement reads, and whether that grows with the history beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from shared.db.connect import connect
from tests.postgres.long_history import History

# Tables that grow as long as the program runs, and are pruned only where somebody plans it.
GROWING = frozenset(
    {"job", "unit", "recovery_event", "security_event", "audit_entry", "receipt", "ledger"}
)
# Beside a hundred times the history a statement may read half as much again, as indexes get deeper, and this.
MORE_PAGES = 60
MORE_ROWS = 100

Params = Mapping[str, object]


@dataclass(frozen=True)
class Cost:
    """What running a statement read: pages of all tables and indexes, and the most rows of any step."""

    pages: int
    rows: int
    scans: tuple[str, ...]


def cost(history: History, text: str, params: Params, first: str = "") -> Cost:
    """Run a statement as the program does, with its values written into it, and take it back.

    ``first`` is run before it in the same transaction.
    """
    with closing(connect(history.dsn)) as connection:
        connection.execute(f"BEGIN; {first}".encode())
        with psycopg.ClientCursor(connection, row_factory=dict_row) as cursor:
            explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}"
            row = cursor.execute(explained.encode(), params or None).fetchone()
        connection.execute("ROLLBACK")
    assert row is not None
    found = row["QUERY PLAN"]
    top = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    nodes = list(flattened(top))
    scans = [
        f"{node['Node Type']} on {node['Relation Name']}"
        for node in nodes
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in GROWING
    ]
    return Cost(
        pages=top["Shared Hit Blocks"] + top["Shared Read Blocks"],
        rows=round(max(passed(node) for node in nodes)),
        scans=tuple(scans),
    )


def flattened(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return a step of a plan and all below it."""
    yield node
    for child in node.get("Plans", ()):
        yield from flattened(child)


def passed(node: dict[str, Any]) -> float:
    """Return how many rows a step of a plan gave or passed over, in all its rounds."""
    removed = sum(value for name, value in node.items() if name.startswith("Rows Removed by"))
    return float((node["Actual Rows"] + removed) * node["Actual Loops"])


def grown(
    histories: tuple[History, History],
    text: str,
    ask: Callable[[History], Params],
    first: str = "",
) -> list[str]:
    """Return in which ways a statement costs more beside the long history than beside the short one."""
    before, after = (cost(history, text, ask(history), first) for history in histories)
    problems = list(after.scans)
    if after.pages > before.pages * 1.5 + MORE_PAGES:
        problems.append(f"{before.pages} pages became {after.pages}")
    if after.rows > before.rows * 1.5 + MORE_ROWS:
        problems.append(f"{before.rows} rows became {after.rows}")
    return problems
