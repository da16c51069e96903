"""Keys that will not do: of a root, with another one to name or to make; of a related table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.archive.written import listed
from shared.catalog.names import TableName

if TYPE_CHECKING:
    from collections.abc import Collection

    from shared.catalog.facts import Facts

NEW_KEY = "archive_key"


def key_advice(root: Facts) -> dict[str, Any]:
    """Return what a message needs: ``instead``, a key to name in the kinds file, or ``sql`` that makes one.

    ``parents`` are the tables it refers to, and could be archived along with.
    """
    advice: dict[str, Any] = {}
    for columns in root.unique_keys():
        if all(_serves(root.columns[name]) for name in columns):
            return {"instead": f"key = {listed(columns)}"}
    # A partitioned table takes no unique key without its partition columns.
    if root.row["kind"] == "r" and NEW_KEY not in root.columns:
        advice["sql"] = (
            f"ALTER TABLE {root.name.sql} ADD COLUMN {NEW_KEY} bigint"
            " GENERATED ALWAYS AS IDENTITY UNIQUE"
        )
    parents = {TableName(key["schema"], key["table"]) for key in root.row["foreign_keys"]}
    if parents := parents - {root.name}:
        advice["parents"] = sorted(map(str, parents))
    return advice


def _serves(column: dict[str, Any]) -> bool:
    return column["not_null"] and column["generated"] is None and column["base_kind"] != "other"


def temporal_key(
    child: Facts, foreign_key: list[str] | None, tables: Collection[TableName]
) -> str | None:
    """Return the name of a temporal foreign key that rows would be joined by.

    Its period lies within the parent's, so that joining by what is equal would leave children out.
    """
    for each in child.row["foreign_keys"]:
        inside = TableName(each["schema"], each["table"]) in tables
        if each["period"] and inside and foreign_key in (None, each["columns"]):
            name: str = each["name"]
            return name
    return None
