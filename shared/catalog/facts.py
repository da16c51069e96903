"""One table as its database declares it, from one look at the catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.catalog.names import TableName
from shared.chain.manifest import Column
from shared.db.statement import statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from shared.db.connect import Row


@dataclass(frozen=True)
class Facts:
    """A row of the catalog query: one table as its database declares it."""

    name: TableName
    row: dict[str, Any]

    @property
    def columns(self) -> dict[str, dict[str, Any]]:
        """Return the columns by name, in their order."""
        return {column["name"]: column for column in self.row["columns"]}

    @property
    def ancestors(self) -> tuple[TableName, ...]:
        """Return the tables whose rows include this one's: partitioned ones, and parents it inherits from."""
        return tuple(TableName(each["schema"], each["table"]) for each in self.row["ancestors"])

    @property
    def whole(self) -> TableName | None:
        """Return the partitioned table at the top, of which this table is a partition; None if it is none."""
        found = self.row["whole"]
        return TableName(found["schema"], found["table"]) if found else None

    def is_unique(self, columns: list[str]) -> bool:
        """Tell whether exactly these columns have a valid, immediate, whole unique index."""
        return any(
            index["unique"] and sorted(index["columns"]) == sorted(columns)
            for index in self.row["indexes"]
        )

    def primary_key(self) -> list[str] | None:
        """Return the columns of the primary key."""
        for index in self.row["indexes"]:
            if index["primary"]:
                columns: list[str] = index["columns"]
                return columns
        return None

    def unique_keys(self) -> list[list[str]]:
        """Return the columns of every valid, immediate, whole unique index, the primary key first."""
        found = [index for index in self.row["indexes"] if index["unique"]]
        found.sort(key=lambda index: (not index["primary"], len(index["columns"])))
        return [index["columns"] for index in found]

    def is_indexed(self, columns: list[str], *, in_order: bool = False) -> bool:
        """Tell whether a usable index begins with these columns, the first in first place.

        ``in_order`` asks for one whose entries are sorted.
        """
        return any(
            index["usable"]
            and (index["ordered"] or not in_order)
            and index["columns"][:1] == columns[:1]
            and set(index["columns"][: len(columns)]) == set(columns)
            for index in self.row["indexes"]
        )


def inspected(connection: psycopg.Connection[Row], tables: Sequence[TableName]) -> list[Facts]:
    """Return the facts of tables, in their order, found or not.

    The transaction's search path must be pinned to ``pg_catalog``, so that names of types come
    qualified wherever they need to be. Raises ``psycopg.Error``.
    """
    asked = {
        "schemas": [table.schema for table in tables],
        "names": [table.name for table in tables],
    }
    rows = connection.execute(statement("shared.catalog", "inspect"), asked).fetchall()
    return [Facts(TableName(row["schema"], row["name"]), row) for row in rows]


def declared(column: dict[str, Any]) -> Column:
    """Return a column of the facts as a manifest says it."""
    labels = column["labels"]
    return Column(
        name=column["name"],
        type=column["type"],
        not_null=column["not_null"],
        generated=column["generated"],
        identity=column["identity"],
        collation=column["collation"],
        labels=tuple(labels) if labels is not None else None,
    )
