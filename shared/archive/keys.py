"""What to do about a root whose key will not do: name another one, or make one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.archive.written import listed
from shared.catalog.names import TableName

if TYPE_CHECKING:
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
