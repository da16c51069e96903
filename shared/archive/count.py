"""The rows in the window of a job, counted at its start and at its end, compared with what it archived.

A job reads one page per snapshot. A row that changes its place in the order between two pages is archived
twice or not at all, and every file verifies. Only a count can find out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from shared.archive.page import window_count_query
from shared.archive.source import snapshot, trouble_of
from shared.errors import Code, Passing, TooMuch, Trouble
from shared.jobs.model import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from psycopg import sql

    from shared.archive.shape import Opening
    from shared.db.connect import Row

# A count never takes longer than this, nor more than this share of the time that is left: it must not
# cost the unit that it belongs to.
COUNT_SECONDS = 15.0
COUNT_SHARE = 0.5
START_SECONDS = 5.0
UNKNOWN = "unknown"
# What means that rows are in no file; the others mean that nothing is lost, or that nobody knows.
LOST = frozenset({"missing", "unread"})


@dataclass(frozen=True)
class Count:
    """The rows of one table: how many the archive has, and how many were in the window at its end.

    ``there`` is None where they could not be counted; ``why`` then says what kept them from it.
    """

    table: str
    archived: int
    there: int | None
    why: str | None = None


@dataclass(frozen=True)
class WindowRows:
    """The rows that were in the window when the final batch was read, by the label of their table.

    A table that is missing could not be counted; ``why`` says what kept it from being counted.
    """

    rows: Mapping[str, int]
    why: str | None = None


def window_rows(
    connection: psycopg.Connection[Row], opening: Opening, seconds: float
) -> WindowRows:
    """Count the window in the open snapshot, table by table, root first.

    It is the last use of the snapshot: after an error nothing more can be asked of it.
    """
    ends = time.monotonic() + min(COUNT_SECONDS, seconds * COUNT_SHARE)
    rows: dict[str, int] = {}
    for index, table in enumerate(opening.shape.tables):
        query = window_count_query(opening, index)
        try:
            rows[table.label] = _counted(connection, query, ends - time.monotonic())
        except Trouble as trouble:
            return WindowRows(rows, _why(trouble))
    return WindowRows(rows)


def roots_at_start(
    connection: psycopg.Connection[Row], opening: Opening, name: str, seconds: float
) -> int | None:
    """Count the roots in the window before the first page is read; None if that does not succeed in time.

    Raises ``Verdict`` for what would stop the first page, too.
    """
    limit = min(START_SECONDS, seconds * COUNT_SHARE)
    try:
        with snapshot(connection, [], name=name, seconds=limit, lock=False):
            return _counted(connection, window_count_query(opening, 0), limit)
    except (TooMuch, Passing):
        return None


def compared(archived: Mapping[str, int], found: WindowRows) -> tuple[Count, ...]:
    """Put beside what was archived of each table what was counted of it."""
    return tuple(
        Count(label, rows, found.rows.get(label), None if label in found.rows else found.why)
        for label, rows in archived.items()
    )


def findings(counts: Iterable[Count], at_start: int | None) -> list[dict[str, Any]]:
    """Return what a comparison shows, as parameters of WINDOW_COUNT; nothing where all is equal.

    The first table is the root. Its rows ``at_start`` tell of those that left the window unread.
    """
    found: list[dict[str, Any]] = []
    for place, count in enumerate(counts):
        about = {"table": count.table, "archived": count.archived}
        if count.there is None:
            found.append({"cause": UNKNOWN, **about, "why": count.why})
            continue
        if count.there != count.archived:
            cause = "missing" if count.there > count.archived else "fewer"
            rows = abs(count.there - count.archived)
            found.append({"cause": cause, **about, "there": count.there, "rows": rows})
        if place == 0 and at_start is not None and at_start > max(count.archived, count.there):
            rows = at_start - max(count.archived, count.there)
            found.append({"cause": "unread", **about, "there": at_start, "rows": rows})
    return found


def events(counts: Iterable[Count], at_start: int | None, kind: str | None) -> list[Event]:
    """Return the events that tell what a comparison shows."""
    return [
        Event(
            "window-not-counted" if found["cause"] == UNKNOWN else "window-count-differs",
            "warning" if found["cause"] in LOST else "info",
            done=False,
            reason_code=Code.WINDOW_COUNT,
            reason_params={**found, "kind": kind},
        )
        for found in findings(counts, at_start)
    ]


def _counted(connection: psycopg.Connection[Row], query: sql.Composed, seconds: float) -> int:
    milliseconds = int(seconds * 1000)
    if milliseconds <= 0:
        # A timeout of 0 would be none at all.
        raise TooMuch(Code.EXPORT_FAILED, cause="timeout")
    try:
        connection.execute(f"SET LOCAL statement_timeout = {milliseconds}")
        row = connection.execute(query).fetchone()
    except psycopg.Error as error:
        raise trouble_of(error) from error
    assert row is not None  # noqa: S101 - a count has one row
    return int(row["rows"])


def _why(trouble: Trouble) -> str:
    return str(trouble.params.get("cause", trouble.code))
