"""Where a window may end, so that no row comes to lie before its end afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.archive.shape import TimeSort
from shared.db.statement import statement
from shared.errors import Code, Waits

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from shared.archive.shape import Shape
    from shared.catalog.names import TableName
    from shared.db.connect import Row

PER_SECOND = {None: 1, "s": 1, "ms": 1000, "us": 1_000_000}
# So long before the source's clock a window ends at the latest, in seconds. An instant before it would do
# for times that the server sets; clients set theirs by clocks that may be a few seconds behind.
MARGIN_SECONDS = 10
# The same where transactions that are running cannot be seen: none may have been running for longer.
HIDDEN_MARGIN_SECONDS = 86_400


@dataclass(frozen=True)
class Ending:
    """The end of a window, as text of the time column's type, and what was found out on the way.

    ``margin_seconds`` is set where transactions that were running could not be seen: how long before the
    source's clock the window ends at the latest. ``held_back`` says why it ends earlier than asked:
    ``running``, ``hidden``, ``standby`` or ``clock``; None where it does not.
    """

    cutoff: str
    database: str
    encoding: str
    margin_seconds: int | None
    held_back: str | None


def ending(
    connection: psycopg.Connection[Row],
    shape: Shape,
    definition: dict[str, Any],
    cutoff_at: str,
    hidden_margin: int,
) -> tuple[Ending, str]:
    """Return where the window ends, and the same as an instant the server can read."""
    params = {
        "cutoff_at": cutoff_at,
        "time_zone": definition["time_zone"],
        "per_second": PER_SECOND[definition["time_unit"]],
        "margin": MARGIN_SECONDS,
        "hidden_margin": max(hidden_margin, MARGIN_SECONDS),
    }
    row = connection.execute(statement("shared.archive", "window"), params).fetchone()
    assert row is not None  # noqa: S101 - the query has one row
    found = Ending(
        cutoff=_cutoff(shape, row),
        database=row["database"],
        encoding=row["encoding"],
        margin_seconds=params["hidden_margin"] if row["hidden"] else None,
        held_back=row["held_back"],
    )
    return found, row["instant"]


def require_settled(
    connection: psycopg.Connection[Row], tables: Sequence[TableName], instant: str
) -> None:
    """Raise ``Waits`` while rows before ``instant`` may still appear in the tables.

    Called after ``ending``, never before it: a transaction is either still running when that looks, or
    prepared when this does.
    """
    if holding := prepared(connection, tables):
        oldest = holding[0]
        raise Waits(
            Code.EXPORT_FAILED,
            cause="prepared-transaction",
            transaction=oldest["transaction"],
            since=oldest["since"],
            table=oldest["table"],
        )
    place = standby(connection, instant)
    if not place["reached"]:
        cause = "standby-hidden" if place["hidden"] else "standby-behind"
        raise Waits(Code.EXPORT_FAILED, cause=cause)


def prepared(connection: psycopg.Connection[Row], tables: Sequence[TableName]) -> list[Row]:
    """Return the prepared transactions that may bring rows into these tables, the oldest first."""
    asked = {
        "schemas": [table.schema for table in tables],
        "names": [table.name for table in tables],
    }
    return connection.execute(statement("shared.archive", "prepared"), asked).fetchall()


def standby(connection: psycopg.Connection[Row], instant: str | None) -> Row:
    """Return how far a standby has come: whether up to ``instant``, and by how many seconds it is behind.

    A server that is no standby has reached everything.
    """
    row = connection.execute(statement("shared.archive", "standby"), {"ends": instant}).fetchone()
    assert row is not None  # noqa: S101 - the query has one row
    return row


def _cutoff(shape: Shape, row: Row) -> str:
    columns = {
        TimeSort.INSTANT: "instant",
        TimeSort.LOCAL: "local",
        TimeSort.DATE: "date",
        TimeSort.NUMBER: "number",
    }
    text: str = row[columns[shape.time_sort]]
    return text
