"""The SQL that makes an index that a kind's tables lack, as it runs on the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import sql

if TYPE_CHECKING:
    from shared.catalog.facts import Facts

# The collation of byte order, as the catalog query writes it.
BYTE_ORDER = 'pg_catalog."C"'


def missing_index(facts: Facts, columns: list[str], bytewise: list[str]) -> dict[str, Any]:
    """Return what a finding tells of an index that a table lacks, the SQL that makes it included.

    ``bytewise`` are the columns that pages compare under the collation "C", as such an index must too.
    """
    # The server refuses to build the index of a partitioned table concurrently.
    partitioned = facts.row["kind"] == "p"
    made = sql.SQL("CREATE INDEX {}ON {} ({})").format(
        sql.SQL("" if partitioned else "CONCURRENTLY "),
        sql.Identifier(facts.name.schema, facts.name.name),
        sql.SQL(", ").join(_written(facts, name, bytewise) for name in columns),
    )
    params = {"table": str(facts.name), "columns": columns, "sql": made.as_string(None)}
    return params | ({"cause": "partitioned"} if partitioned else {})


def _written(facts: Facts, name: str, bytewise: list[str]) -> sql.Composed:
    otherwise = name in bytewise and facts.columns[name]["collates"] != BYTE_ORDER
    return sql.Identifier(name) + sql.SQL(' COLLATE "C"' if otherwise else "")
