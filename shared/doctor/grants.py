"""The GRANTs that are missing, written out: whole statements with quoted names, ready to be run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SCHEMA = "tallystick"


def quoted(name: str) -> str:
    """Return a name as an SQL identifier, always in quotes."""
    return '"' + name.replace('"', '""') + '"'


def control_grants(row: dict[str, Any]) -> tuple[str, ...]:
    """Return what a user of the control database lacks, given the facts of it."""
    role = quoted(row["role"])
    lines = []
    if not row["schema_there"]:
        if not row["may_create"]:
            lines.append(f"GRANT CREATE ON DATABASE {quoted(row['database'])} TO {role};")
        return tuple(lines)
    if not row["schema_usage"]:
        lines.append(f"GRANT USAGE ON SCHEMA {quoted(SCHEMA)} TO {role};")
    return (*lines, *_on_tables(row, role, deleting=False))


def prune_grants(row: dict[str, Any]) -> tuple[str, ...]:
    """Return what a user of the control database lacks of what only pruning asks for."""
    return tuple(_on_tables(row, quoted(row["role"]), deleting=True))


def _on_tables(row: dict[str, Any], role: str, *, deleting: bool) -> list[str]:
    by_table: dict[str, list[str]] = {}
    for each in row["missing"]:
        if (each["privilege"] == "DELETE") is deleting:
            by_table.setdefault(each["table"], []).append(each["privilege"])
    return [_on_table(SCHEMA, table, privileges, role) for table, privileges in by_table.items()]


def source_grants(rows: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """Return what the user of a source lacks to read tables, given the facts of each table."""
    schemas, tables = [], []
    for row in rows:
        role = quoted(row["role"])
        if not row["schema_usage"]:
            schemas.append(f"GRANT USAGE ON SCHEMA {quoted(row['schema'])} TO {role};")
        if not row["table_select"]:
            tables.append(_on_table(row["schema"], row["name"], ["SELECT"], role))
    # Several tables of one schema ask for it once.
    return tuple(dict.fromkeys([*schemas, *tables]))


def _on_table(schema: str, table: str, privileges: Sequence[str], role: str) -> str:
    return f"GRANT {', '.join(privileges)} ON TABLE {quoted(schema)}.{quoted(table)} TO {role};"
