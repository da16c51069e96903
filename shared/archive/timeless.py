"""Whether a condition reads the clock, asked of the server: it parses, and says what it would call.

The parse tree is printed as a notice (``debug_print_rewritten``, which every user may set, on a standby too),
before anything is folded: so a function behind any spelling, an operator, a cast or a view is in it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from psycopg import sql

from shared.archive.source import snapshot
from shared.db.statement import statement
from shared.errors import Code, Verdict

if TYPE_CHECKING:
    import psycopg

    from shared.archive.shape import Shape
    from shared.chain.manifest import Table
    from shared.db.connect import Row

# 26 hours apart, so that today is never the same day in both.
ZONES = ("<-12>12", "<+14>-14")
APART = 26 * 3600 * 1_000_000
CALLS = re.compile(r" :(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)")
OPERATORS = re.compile(r" :opno (\d+)")
# Types that a text is turned into: by a cast, or by a function of SQL/JSON.
READS = re.compile(r" :resulttype (\d+)|\{JSONRETURNING .*?:typid (\d+)")
CONSTANT = re.compile(r"\{CONST :consttype (\d+) [^{}]*?:constvalue (\d+) \[ ([-\d ]*)\]")
# What is never the same for certain; columns of a table function are read from texts.
ALWAYS = re.compile(r"\{(SQLVALUEFUNCTION|NEXTVALUEEXPR|TABLEFUNC)\b")
CHUNK = 8
# By their object ids, which never change: date, time, timestamp.
WITHOUT_ZONE = frozenset({"1082", "1083", "1114"})


def reads_clock(
    connection: psycopg.Connection[Row], table: Table, where: str, *, name: str, seconds: float
) -> list[str]:
    """Return what in a condition on ``table`` may say otherwise at another time; empty when nothing does.

    Raises ``Verdict`` for a condition that the server does not accept.
    """
    query = sql.SQL("SELECT 1 FROM {} AS r WHERE (\n{}\n) LIMIT 0").format(
        sql.Identifier(table.schema, table.name), sql.SQL(where)
    )
    first = _parsed(connection, query, ZONES[0], name, seconds)
    second = _parsed(connection, query, ZONES[1], name, seconds)
    found = [each.lower() for each in ALWAYS.findall(first)]
    if _differ(CONSTANT.findall(first), CONSTANT.findall(second)):
        found.append("now, today, yesterday or tomorrow")
    asked = {
        "functions": [int(each) for each in CALLS.findall(first)],
        "operators": [int(each) for each in OPERATORS.findall(first)],
        "types": [int(cast or returned) for cast, returned in READS.findall(first)],
    }
    with snapshot(connection, [], name=name, seconds=seconds, lock=False):
        calls = connection.execute(statement("shared.archive", "calls"), asked).fetchall()
    return found + [row["call"] for row in calls]


def clock_readers(
    connection: psycopg.Connection[Row], shape: Shape, *, name: str, seconds: float
) -> list[tuple[Table, list[str]]]:
    """Return the tables of a kind whose conditions read the clock, and what in them does."""
    found = []
    for relation in shape.relations:
        if relation.where is not None:
            calls = reads_clock(
                connection, relation.table, relation.where, name=name, seconds=seconds
            )
            if calls:
                found.append((relation.table, calls))
    return found


def _parsed(
    connection: psycopg.Connection[Row],
    query: sql.Composed,
    zone: str,
    name: str,
    seconds: float,
) -> str:
    """Return the parse tree of a query under a time zone; raises ``Verdict`` where none was printed."""
    trees: list[str] = []

    def noted(said: psycopg.errors.Diagnostic) -> None:
        trees.append(said.message_detail or "")

    with snapshot(connection, [], name=name, seconds=seconds, lock=False):
        connection.execute(sql.SQL("SET LOCAL timezone = {}").format(sql.Literal(zone)))
        connection.execute("SET LOCAL client_min_messages = log")
        connection.execute("SET LOCAL debug_pretty_print = off")
        connection.execute("SET LOCAL debug_print_rewritten = on")
        connection.add_notice_handler(noted)
        try:
            connection.execute(query)
        finally:
            connection.remove_notice_handler(noted)
    # The server breaks its lines where there is a space.
    tree = " ".join(" ".join(each.split()) for each in trees if "{QUERY" in each)
    if not tree:
        raise Verdict(
            Code.EXPORT_FAILED, cause="refused-by-server", detail="no parse tree was printed"
        )
    return tree


def _differ(first: list[tuple[str, str, str]], second: list[tuple[str, str, str]]) -> bool:
    """Tell whether constants of two parse trees are more than the same time of day in two zones.

    One that was made from the clock moved by what passed between the two.
    """
    if len(first) != len(second):
        return True
    for one, other in zip(first, second, strict=True):
        before, after = _bytes(one[2]), _bytes(other[2])
        if one[0] in WITHOUT_ZONE and before != after:
            return True
        if len(before) != len(after):
            return True
        for place in range(0, len(before), CHUNK):
            was, is_now = before[place : place + CHUNK], after[place : place + CHUNK]
            moved = abs(_number(is_now) - _number(was))
            if moved not in (0, APART) or (moved == APART and len(was) < CHUNK):
                return True
    return False


def _bytes(text: str) -> bytes:
    return bytes(int(each) % 256 for each in text.split())


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)
