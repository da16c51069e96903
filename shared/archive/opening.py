"""The first look of a job at its source: which tables, how far the window reaches, what came late."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg

from shared.archive.count import roots_at_start
from shared.archive.examine import examine, tables_of
from shared.archive.page import count_query
from shared.archive.shape import Opening, Shape
from shared.archive.source import snapshot, trouble_of
from shared.archive.timeless import clock_readers
from shared.archive.window import HIDDEN_MARGIN_SECONDS, ending, require_settled
from shared.db.statement import statement
from shared.errors import Code, Passing, TooMuch, Verdict

if TYPE_CHECKING:
    from uuid import UUID

    from shared.catalog.facts import Facts
    from shared.chain.manifest import Cursor
    from shared.db.connect import Row
    from shared.jobs.model import Job

# Counting late rows is a courtesy: on a table too large to count in this time it is left unknown.
COUNT_SECONDS = 5.0
LOOK_SECONDS = 10.0


@dataclass(frozen=True)
class End:
    """Where a window shall end: at an instant as the server reads it, else so many seconds ago."""

    until: str | None = None
    seconds: float = 0.0


def prepare(
    connection: psycopg.Connection[Row],
    job: Job,
    *,
    name: str,
    seconds: float,
    hidden_margin: int = HIDDEN_MARGIN_SECONDS,
) -> Opening:
    """Fit the job's kind to its source and fix the end of its window, in one snapshot.

    Raises ``Verdict`` when the kind cannot be archived from these tables, ``Waits`` as ``opened`` does.
    """
    definition = job.input["definition"]
    tables = tables_of(definition)
    with snapshot(connection, tables, name=name, seconds=seconds, lock=False) as facts:
        opening = opened(
            connection,
            fitted(definition, facts),
            definition,
            cutoff_at=job.input["cutoff_at"],
            namespace_value=namespace_value(definition, job.namespace_id, job.input["namespace"]),
            hidden_margin=hidden_margin,
        )
    _require_timeless(connection, opening.shape, name, seconds)
    if job.input["after"] is not None:
        opening = replace(opening, after=tuple(job.input["after"]))
    found = roots_at_start(connection, opening, name, seconds)
    return _with_late_rows(connection, replace(opening, roots_at_start=found), job, name)


def first_look(
    connection: psycopg.Connection[Row],
    definition: dict[str, Any],
    end: End,
    *,
    namespace_value: str | None,
    name: str,
    seconds: float = LOOK_SECONDS,
    hidden_margin: int = HIDDEN_MARGIN_SECONDS,
    settled: bool = False,
) -> Opening:
    """Fit a definition that no job has to its source, for a window from the oldest row to ``end``.

    ``seconds`` bounds each statement. Only who archives the rows asks for a window that is ``settled``.
    """
    tables = tables_of(definition)
    with snapshot(connection, tables, name=name, seconds=seconds, lock=False) as facts:
        shape = fitted(definition, facts)
        asked = {"until": end.until, "seconds": end.seconds}
        row = connection.execute(statement("shared.archive", "cutoff"), asked).fetchone()
        assert row is not None  # noqa: S101 - the query has one row
        opening = opened(
            connection,
            shape,
            definition,
            cutoff_at=row["cutoff_at"],
            namespace_value=namespace_value,
            hidden_margin=hidden_margin,
            settled=settled,
        )
    if settled:
        _require_timeless(connection, shape, name, seconds)
    return opening


def opened(
    connection: psycopg.Connection[Row],
    shape: Shape,
    definition: dict[str, Any],
    *,
    cutoff_at: str,
    namespace_value: str | None,
    hidden_margin: int = HIDDEN_MARGIN_SECONDS,
    settled: bool = True,
) -> Opening:
    """Fix the end of a window that begins with the oldest row, in the open snapshot.

    ``cutoff_at`` is an instant as the server reads it, ``hidden_margin`` how many seconds before its clock
    the window ends at the latest where running transactions cannot be seen. Raises ``Waits``, if ``settled``,
    while a prepared transaction may bring in rows, or a standby has not yet replayed as far.
    """
    found, instant = ending(connection, shape, definition, cutoff_at, hidden_margin)
    if settled:
        require_settled(connection, tables_of(definition), instant)
    return Opening(
        shape=shape,
        after=None,
        cutoff=found.cutoff,
        namespace_value=namespace_value,
        database=found.database,
        encoding=found.encoding,
        late_rows=None,
        margin_seconds=found.margin_seconds,
        held_back=found.held_back,
    )


def fitted(definition: dict[str, Any], facts: list[Facts]) -> Shape:
    """Return the shape of a kind; raises ``Verdict`` with the first finding that refuses it."""
    shape, findings = examine(definition, facts)
    if shape is None:
        refusing = next(finding for finding in findings if finding.refuses)
        raise Verdict(Code.EXPORT_FAILED, cause=str(refusing.problem), **refusing.params)
    return shape


def _require_timeless(
    connection: psycopg.Connection[Row], shape: Shape, name: str, seconds: float
) -> None:
    """Raise ``Verdict`` for a condition that reads the clock: what it lets in later would be skipped."""
    for table, calls in clock_readers(connection, shape, name=name, seconds=seconds):
        raise Verdict(Code.EXPORT_FAILED, cause="WHERE_READS_CLOCK", table=table.label, calls=calls)


def namespace_value(definition: dict[str, Any], namespace_id: UUID, namespace: str) -> str | None:
    """Return what the namespace column of a kind's rows must say; None where there is no such column."""
    if definition["namespace"] is None:
        return None
    return str(namespace_id) if definition["namespace_by"] == "id" else namespace


def _with_late_rows(
    connection: psycopg.Connection[Row], opening: Opening, job: Job, name: str
) -> Opening:
    """Count the rows below the window that no job has archived: they came after the job that passed them."""
    if opening.after is None:
        return replace(opening, late_rows=0)
    try:
        there = _rows_up_to(connection, opening, opening.after, name)
    except (TooMuch, Passing):
        return replace(opening, late_unknown={"cause": "timeout"})
    late, unknown = late_rows(there, job.input["archived_before"])
    return replace(opening, late_rows=late, late_unknown=unknown)


def late_rows(there: int, archived: int) -> tuple[int | None, dict[str, Any] | None]:
    """Return how many rows came late, at least, or why that is not known.

    A row that was deleted hides one that came late. Where fewer are there than were archived some were
    deleted, and the difference says nothing about the others.
    """
    if there < archived:
        return None, {"cause": "fewer", "there": there, "archived": archived}
    return there - archived, None


def _rows_up_to(
    connection: psycopg.Connection[Row], opening: Opening, last: Cursor, name: str
) -> int:
    with snapshot(connection, [], name=name, seconds=COUNT_SECONDS, lock=False):
        try:
            row = connection.execute(count_query(opening, last)).fetchone()
        except psycopg.Error as error:
            raise trouble_of(error) from error
    return int(row["rows"]) if row else 0
