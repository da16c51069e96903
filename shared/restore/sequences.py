"""Sequences moved past the values that came in, so that the next row of the application finds its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import sql

from shared.restore.target import transaction
from shared.restore.trouble import target_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.catalog.names import TableName
    from shared.restore.target import Connection, Found

# The order of the subqueries is one: the values are looked up first, then where the sequence stands, and
# only the blink between that and setting it is left to a row somebody inserts meanwhile.
MOVE = """
WITH came AS MATERIALIZED (
    SELECT {farthest}({column}) AS value FROM {table}
), wanted AS (
    SELECT {nearer}(value, {last}) AS value FROM came WHERE value IS NOT NULL
)
SELECT setval({name}, wanted.value) AS moved
FROM wanted
CROSS JOIN LATERAL (
    SELECT last_value, is_called FROM {sequence} WHERE wanted.value IS NOT NULL OFFSET 0
) AS now
WHERE wanted.value {beyond} now.last_value OR (wanted.value = now.last_value AND NOT now.is_called)
"""
RISING = {"farthest": "max", "nearer": "least", "beyond": ">"}
FALLING = {"farthest": "min", "nearer": "greatest", "beyond": "<"}


def moved(connection: Connection, found: Sequence[Found]) -> list[dict[str, Any]]:
    """Move the sequences of tables past what the tables hold, never backwards.

    Returns those that moved: ``sequence`` and ``value``. Raises ``Trouble``.
    """
    done = []
    for target in found:
        for each in target.sequences:
            with target_errors(sequence=f"{each['schema']}.{each['name']}"):
                value = _moved(connection, target.facts.name, each)
            if value is not None:
                done.append({"sequence": f"{each['schema']}.{each['name']}", "value": value})
    return done


def _moved(connection: Connection, table: TableName, each: dict[str, Any]) -> int | None:
    way = RISING if each["rising"] else FALLING
    sequence = sql.Identifier(each["schema"], each["name"])
    query = sql.SQL(MOVE).format(
        column=sql.Identifier(each["column"]),
        table=sql.Identifier(table.schema, table.name),
        last=sql.Literal(each["last"]),
        name=sql.Literal(sequence.as_string(connection)),
        sequence=sequence,
        **{name: sql.SQL(word) for name, word in way.items()},
    )
    with transaction(connection):
        row = connection.execute(query).fetchone()
    return None if row is None else int(row["moved"])
