"""Whether a table of ours in somebody else's database can be believed, before anything is read from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from shared.db.statement import statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from shared.db.connect import Row


class Fault(StrEnum):
    """Why a table of ours cannot be believed."""

    OWNER = "owner"
    NOT_PLAIN = "not-plain"
    COLUMNS = "columns"
    TRIGGERS = "triggers"
    RULES = "rules"
    POLICIES = "policies"


@dataclass(frozen=True)
class Doubt:
    """One reason for not believing a table, and the names it comes from."""

    fault: Fault
    names: tuple[str, ...]


def doubts(
    connection: psycopg.Connection[Row], schema: str, name: str, columns: Sequence[str]
) -> tuple[Doubt, ...]:
    """Return every reason for not believing ``schema.name``; none where it is not there yet.

    ``columns`` are those it was made with: name, type, and NOT NULL where they have it. Only the catalog
    is read, so nothing of a stranger's runs. The owners of table and schema must be this user or a
    superuser: anybody else could have filled the table, or change it between two statements.
    """
    row = connection.execute(
        statement("shared.db", "own_table"), {"schema": schema, "name": name}
    ).fetchone()
    if row is None:
        return ()
    named = [(Fault.OWNER, row["strangers"])]
    if row["there"]:
        named += [
            (Fault.NOT_PLAIN, [] if row["plain"] else [f"{schema}.{name}"]),
            (Fault.COLUMNS, [] if row["columns"] == list(columns) else row["columns"]),
            (Fault.TRIGGERS, row["triggers"]),
            (Fault.RULES, row["rules"]),
            (Fault.POLICIES, row["policies"]),
        ]
    return tuple(Doubt(fault, tuple(names)) for fault, names in named if names)
