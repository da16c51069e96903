"""How much of a kind is left to archive: roots to go, and the instant that the archive reaches to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from shared.archive.opening import End, first_look
from shared.archive.page import bounded_count_query, extent_query
from shared.archive.preview import estimated
from shared.archive.shape import TimeSort
from shared.archive.source import snapshot
from shared.archive.window import PER_SECOND
from shared.errors import Passing, TooMuch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.archive.source import SourceConnection

READER = "tallystick backlog"
# Up to here roots are counted, where an index makes that quick; beyond, the planner's guess will do.
COUNT_MAX = 10_000
COUNT_SECONDS = 0.5
DAY_SECONDS = 86400


@dataclass(frozen=True)
class Stretch:
    """What is left of a kind: after a cursor (from the oldest row without one), up to so many days ago.

    ``namespace_value`` is what the rows' namespace column must say, None where there is no such column.
    """

    definition: dict[str, Any]
    after: Sequence[str] | None
    after_days: int
    namespace_value: str | None


@dataclass(frozen=True)
class Backlog:
    """The roots that are left; ``exact`` unless they were estimated."""

    roots: int
    exact: bool


def backlog(source: SourceConnection, stretch: Stretch, seconds: float) -> Backlog:
    """Ask the source what is left; each of its few statements is bounded by ``seconds``.

    Raises ``Trouble`` when the source does not answer, or the kind no longer fits it.
    """
    connection = source.open()
    opening = first_look(
        connection,
        stretch.definition,
        End(seconds=float(stretch.after_days * DAY_SECONDS)),
        namespace_value=stretch.namespace_value,
        name=READER,
        seconds=seconds,
    )
    if stretch.after is not None:
        opening = replace(opening, after=tuple(stretch.after))
    query = bounded_count_query(opening, COUNT_MAX + 1)
    try:
        with snapshot(connection, [], name=READER, seconds=min(seconds, COUNT_SECONDS), lock=False):
            row = connection.execute(query).fetchone()
        if row is not None and row["roots"] <= COUNT_MAX:
            return Backlog(row["roots"], exact=True)
    except (TooMuch, Passing):
        # Too many to count in the time there is for it: the estimate is below.
        connection = source.open()
    return Backlog(estimated(connection, extent_query(opening), seconds), exact=False)


def instant(text: str, sort: str, definition: dict[str, Any]) -> datetime | None:
    """Return the instant of a root's time, given as the server's text; None for one beyond all calendars.

    ``sort`` says how the kind stores its times, as ``TimeSort`` does.
    """
    try:
        if sort == TimeSort.NUMBER:
            seconds = int(text) / PER_SECOND[definition["time_unit"]]
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        found = datetime.fromisoformat(text)
        if sort == TimeSort.INSTANT:
            return found.astimezone(UTC)
        return found.replace(tzinfo=ZoneInfo(definition["time_zone"])).astimezone(UTC)
    except (ValueError, OverflowError, KeyError):
        # infinity, a year before Christ, a zone that only the server knows.
        return None
