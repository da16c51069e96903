"""How far ahead in time a page looks at once, so that the server plans a few partitions and not all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from shared.archive.shape import TimeSort

if TYPE_CHECKING:
    import psycopg

    from shared.archive.shape import Opening
    from shared.chain.manifest import Cursor
    from shared.db.connect import Row

# The parts of what is left of the window that a page looks at, one after the other, until it is full. Of
# thousands of partitions the first is a dozen; of a few, each further look costs a millisecond.
PARTS = (256, 64, 16, 4)
LATER = {
    TimeSort.INSTANT: "{after} + ({cutoff} - {after}) / {part}",
    TimeSort.LOCAL: "{after} + ({cutoff} - {after}) / {part}",
    TimeSort.DATE: "{after} + ({cutoff} - {after}) / {part}",
    # As numeric: the difference of two integers may be none.
    TimeSort.NUMBER: "trunc({after} + ({cutoff}::pg_catalog.numeric - {after}) / {part})",
}


@dataclass(frozen=True)
class Reach:
    """A span of time: from ``begins`` on, before ``ends``, as texts; None leaves that side open."""

    begins: str | None = None
    ends: str | None = None


WHOLE = Reach()


def reaches(
    connection: psycopg.Connection[Row], opening: Opening, after: Cursor | None
) -> tuple[Reach, ...]:
    """Cut what comes after a cursor into spans that grow, in order and without a gap.

    One span that is all of it where there is no cursor. Raises ``psycopg.Error``.
    """
    if after is None or "infinity" in after[0]:
        return (WHOLE,)
    cuts = between(connection, opening, (after[0], opening.cutoff), PARTS)
    return tuple(Reach(begin, end) for begin, end in zip([None, *cuts], [*cuts, None], strict=True))


def between(
    connection: psycopg.Connection[Row],
    opening: Opening,
    edges: tuple[str, str],
    parts: tuple[int, ...],
) -> list[str]:
    """Return the times that lie one part in so many after the first edge of a span, as texts.

    Raises ``psycopg.Error``.
    """
    type_of_time = sql.SQL(opening.shape.order[0].type)
    after, cutoff = (
        sql.SQL("CAST({} AS {})").format(sql.Literal(edge), type_of_time) for edge in edges
    )
    later = sql.SQL(LATER[opening.shape.time_sort])
    cuts = (later.format(after=after, cutoff=cutoff, part=sql.Literal(part)) for part in parts)
    listed = sql.SQL(", ").join(sql.SQL("({})::pg_catalog.text").format(cut) for cut in cuts)
    row = connection.execute(sql.SQL("SELECT ARRAY[{}] AS cuts").format(listed)).fetchone()
    assert row is not None  # noqa: S101 - the query has one row
    found: list[str] = row["cuts"]
    return found
