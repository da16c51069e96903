"""One page of rows as the bytes of a batch: roots in order, then the rows that belong to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from shared.archive.copying import copied, pieces
from shared.archive.fragments import (
    cast,
    columns_of,
    condition,
    in_order,
    joined,
    ordered,
    table_of,
    time_bounds,
)
from shared.archive.reach import WHOLE, Reach, reaches
from shared.chain.batch import (
    END_OF_ROWS,
    PREAMBLE,
    End,
    Header,
    begin_lines,
    commit_line,
    copy_line,
    done_line,
    end_line,
    header_line,
    unescape,
)
from shared.chain.frame import MAX_RAW_BYTES, compressor
from shared.errors import Code, TooMuch, Verdict

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from shared.archive.shape import Opening, Shape
    from shared.chain.manifest import Cursor
    from shared.clock import Deadline
    from shared.db.connect import Row

# A page of more than one root stays below this, so that verifying and publishing it is a matter of
# seconds. One root alone may be as large as the format allows.
RAW_MAX_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True)
class Page:
    """Which page to read: where it begins, at most how many roots, and by when reading must end."""

    header: Header
    size: int
    deadline: Deadline


@dataclass
class _Tally:
    """What has gone by while a page streams through."""

    rows: dict[str, int] = field(default_factory=dict)
    roots: int = 0
    raw_bytes: int = 0
    last_line: bytes = b""
    final: bool = False


def batch(
    connection: psycopg.Connection[Row], opening: Opening, page: Page, *, partitioned: bool = False
) -> Generator[bytes, None, bool]:
    """Yield the bytes of one batch, as stored, reading from the open snapshot of ``connection``.

    Returns whether the batch is the last of its job. ``partitioned`` says that the root table is; then a
    page looks at a few partitions at a time. Memory stays flat: one row and a few pieces at a time. Raises
    ``TooMuch`` when the page does not
    fit the deadline or the size limit, and what ``trouble_of`` makes of the source's errors.
    """
    frame, tally = compressor(), _Tally()
    try:
        after = page.header.after
        spans = reaches(connection, opening, after) if partitioned else (WHOLE,)
        for piece in _raw(connection, opening, page, tally, spans):
            if stored := frame.compress(piece):
                yield stored
    except TooMuch as too_much:
        if tally.roots == 1:
            too_much.params["key"] = list(cursor_of(opening.shape, tally.last_line)[1:])
        raise
    yield frame.flush()
    return tally.final


def _raw(
    connection: psycopg.Connection[Row],
    opening: Opening,
    page: Page,
    tally: _Tally,
    spans: tuple[Reach, ...],
) -> Iterator[bytes]:
    shape = opening.shape
    job, seq = page.header.job, page.header.seq
    yield header_line(page.header) + PREAMBLE + begin_lines(job, seq) + copy_line(shape.tables[0])
    for place, span in enumerate(spans):
        query = root_query(opening, page.header.after, page.size - tally.roots, span)
        yield from _root_rows(connection, query, page, tally, shape.tables[0].label)
        if tally.roots == page.size:
            # The last root lies in this span; what comes after it begins there.
            spans = (Reach(None, span.ends), *spans[place + 1 :])
            break
    yield END_OF_ROWS
    last = cursor_of(shape, tally.last_line) if tally.roots else page.header.after
    # Asked and not read: a root that cannot be printed must not stop the page before it.
    more = tally.roots == page.size and any(
        _is_more(connection, opening, last, span) for span in spans
    )
    for index in range(1, len(shape.relations)):
        yield copy_line(shape.tables[index])
        if tally.roots:
            query = related_query(opening, index, page.header.after, last, tally.roots)
            yield from _related_rows(connection, query, page, tally, shape.tables[index].label)
        yield END_OF_ROWS
    yield done_line(job, seq, final=not more) + commit_line(final=not more)
    yield end_line(
        End(
            roots=tally.roots,
            rows=tuple((table.label, tally.rows.get(table.label, 0)) for table in shape.tables),
            raw_bytes=tally.raw_bytes,
            last=last,
            final=not more,
        )
    )
    tally.final = not more


def _root_rows(
    connection: psycopg.Connection[Row], query: sql.Composed, page: Page, tally: _Tally, label: str
) -> Iterator[bytes]:
    for lines in pieces(copied(connection, query)):
        tally.roots += len(lines)
        tally.last_line = lines[-1]
        yield _counted(lines, page, tally, label)


def _related_rows(
    connection: psycopg.Connection[Row], query: sql.Composed, page: Page, tally: _Tally, label: str
) -> Iterator[bytes]:
    for lines in pieces(copied(connection, query)):
        yield _counted(lines, page, tally, label)


def _is_more(
    connection: psycopg.Connection[Row], opening: Opening, last: Cursor | None, span: Reach
) -> bool:
    found = connection.execute(more_query(opening, last, span)).fetchone()
    return bool(found and found["more"])


def _counted(lines: list[bytes], page: Page, tally: _Tally, label: str) -> bytes:
    piece = b"".join(lines)
    tally.rows[label] = tally.rows.get(label, 0) + len(lines)
    tally.raw_bytes += len(piece)
    limit = RAW_MAX_BYTES if tally.roots > 1 else MAX_RAW_BYTES
    if tally.raw_bytes > limit:
        raise TooMuch(Code.BATCH_TOO_LARGE, cause="size", limit=limit, roots=tally.roots)
    if page.deadline.passed():
        raise TooMuch(Code.BATCH_TOO_LARGE, cause="deadline", roots=tally.roots)
    return piece


def root_query(
    opening: Opening, after: Cursor | None, limit: int, span: Reach = WHOLE
) -> sql.Composed:
    """Return the COPY of the roots after a cursor within a span of time, in order, at most ``limit``."""
    return _copy(root_select(opening, after, limit, span))


def related_query(
    opening: Opening,
    index: int,
    after: Cursor | None,
    last: Cursor | None,
    roots: int | None = None,
) -> sql.Composed:
    """Return the COPY of one related table's rows, for the roots after a cursor up to ``last``.

    ``roots`` is how many roots there are between the two, where that is known.
    """
    return _copy(related_select(opening, index, after, last, roots))


def root_select(
    opening: Opening, after: Cursor | None, limit: int, span: Reach = WHOLE
) -> sql.Composed:
    """Return the query whose rows ``root_query`` copies."""
    shape = opening.shape
    return sql.SQL("SELECT {} FROM {} AS r WHERE {} ORDER BY {} LIMIT {}").format(
        columns_of("r", shape.relations[0]),
        table_of(shape.relations[0]),
        _candidates(opening, after, None, span),
        in_order(shape),
        sql.Literal(limit),
    )


def related_select(
    opening: Opening,
    index: int,
    after: Cursor | None,
    last: Cursor | None,
    roots: int | None = None,
) -> sql.Composed:
    """Return the query whose rows ``related_query`` copies."""
    shape = opening.shape
    inner = sql.SQL("SELECT r.* FROM {} AS r WHERE {}").format(
        table_of(shape.relations[0]), _candidates(opening, after, last)
    )
    if roots is not None:
        # It leaves nothing out. It tells the planner how few roots there are, which it cannot estimate
        # where many of them share one time; then it looks up their children instead of reading them all.
        inner = sql.SQL("{} ORDER BY {} LIMIT {}").format(
            inner, in_order(shape), sql.Literal(roots)
        )
    path, place = [], index
    while place:
        path.append(place)
        place = shape.tables[place].parent or 0
    # From the root outwards, each table is joined to what its parent has been narrowed to.
    time: str | None = shape.order[0].name
    for place in reversed(path):
        relation = shape.relations[place]
        # A foreign key may hold the root's time. Then the table's own partitions, and rows, are bounded too.
        keyed = dict(zip(relation.table.references, relation.table.foreign_key, strict=True))
        time = keyed.get(time) if time is not None else None
        bounds = [] if time is None else time_bounds("c", time, shape.order[0], after, last)
        own = sql.SQL("SELECT c.* FROM {} AS c WHERE {}").format(
            table_of(relation), sql.SQL(" AND ").join([*bounds, condition(relation.where)])
        )
        inner = sql.SQL("SELECT c.* FROM ({}) AS c JOIN ({}) AS p ON {}").format(
            own, inner, joined(relation)
        )
    return sql.SQL("SELECT {} FROM ({}) AS r").format(
        columns_of("r", shape.relations[index]), inner
    )


def count_query(opening: Opening, last: Cursor) -> sql.Composed:
    """Return the query that counts the roots up to a cursor."""
    return sql.SQL("SELECT count(*) AS rows FROM {} AS r WHERE {}").format(
        table_of(opening.shape.relations[0]), _candidates(opening, None, last)
    )


def window_count_query(opening: Opening, index: int) -> sql.Composed:
    """Return the query that counts the rows of one table that belong to roots in the window."""
    rows = (
        sql.SQL("SELECT FROM {} AS r WHERE {}").format(
            table_of(opening.shape.relations[0]), _candidates(opening, opening.after, None)
        )
        if index == 0
        else related_select(opening, index, opening.after, None)
    )
    return sql.SQL("SELECT count(*) AS rows FROM ({}) AS found").format(rows)


def extent_query(opening: Opening) -> sql.Composed:
    """Return the query for the number of roots in the window, their oldest time and their newest."""
    return sql.SQL("SELECT count(*) AS roots, {} FROM {} AS r WHERE {}").format(*_extent(opening))


def bounded_count_query(opening: Opening, limit: int) -> sql.Composed:
    """Return the query that counts the roots after the beginning of the window, and stops at ``limit``."""
    return sql.SQL(
        "SELECT count(*) AS roots FROM (SELECT FROM {} AS r WHERE {} ORDER BY {} LIMIT {}) AS found"
    ).format(
        table_of(opening.shape.relations[0]),
        _candidates(opening, opening.after, None),
        in_order(opening.shape),
        sql.Literal(limit),
    )


def edge_query(opening: Opening) -> sql.Composed:
    """Return the query for the oldest and newest time alone, which an index can answer."""
    return sql.SQL("SELECT {} FROM {} AS r WHERE {}").format(*_extent(opening))


def _extent(opening: Opening) -> tuple[sql.Composable, sql.Composable, sql.Composable]:
    time = sql.Identifier("r", opening.shape.order[0].name)
    edges = sql.SQL("min({0})::text AS oldest, max({0})::text AS newest").format(time)
    table = table_of(opening.shape.relations[0])
    return edges, table, _candidates(opening, opening.after, None)


def cursor_of(shape: Shape, line: bytes) -> Cursor:
    """Return the place of a root in the order, from its line of COPY text.

    Raises ``Verdict`` for a root whose key is NULL: what comes after it could not be told.
    """
    fields = line.removesuffix(b"\n").split(b"\t")
    copied_columns = shape.tables[0].copied
    texts = [unescape(fields[copied_columns.index(column.name)]) for column in shape.order]
    if nulls := [
        column.name for column, text in zip(shape.order, texts, strict=True) if text is None
    ]:
        params = {"table": shape.tables[0].label, "columns": nulls}
        raise Verdict(Code.EXPORT_FAILED, cause="KEY_NULLABLE", **params)
    return tuple(text for text in texts if text is not None)


def first_key_query(opening: Opening, after: Cursor | None) -> sql.Composed:
    """Return the query for the key of the first root after a cursor, as texts, and nothing else of it."""
    shape = opening.shape
    key = sql.SQL(", ").join(
        sql.SQL("{}::pg_catalog.text").format(sql.Identifier("r", column.name))
        for column in shape.order[1:]
    )
    return sql.SQL("SELECT ARRAY[{}] AS key FROM {} AS r WHERE {} ORDER BY {} LIMIT 1").format(
        key,
        table_of(shape.relations[0]),
        _candidates(opening, after, None),
        in_order(shape),
    )


def more_query(opening: Opening, after: Cursor | None, span: Reach = WHOLE) -> sql.Composed:
    """Return the query that tells whether there is a root after a cursor within a span of time."""
    # Not EXISTS: there the planner drops the order, and reads the table from its beginning.
    return sql.SQL(
        "SELECT (SELECT true FROM {} AS r WHERE {} ORDER BY {} LIMIT 1) IS NOT NULL AS more"
    ).format(
        table_of(opening.shape.relations[0]),
        _candidates(opening, after, None, span),
        in_order(opening.shape),
    )


def _copy(select: sql.Composed) -> sql.Composed:
    return sql.SQL("COPY ({}) TO STDOUT").format(select)


def _candidates(
    opening: Opening, after: Cursor | None, last: Cursor | None, span: Reach = WHOLE
) -> sql.Composed:
    """Return the condition on ``r``: old enough, of the namespace, between two cursors, as the kind says."""
    shape = opening.shape
    time = shape.order[0]
    parts: list[sql.Composable] = [
        sql.SQL("{} < {}").format(ordered("r", time), cast(opening.cutoff, time))
    ]
    # The time alone says nothing new beside the comparison of rows. But the planner takes two of these for
    # one range, which it does not with comparisons of rows, and leaves out the partitions beyond them.
    parts += time_bounds("r", time.name, time, after, last)
    for bound, operator in ((span.begins, ">="), (span.ends, "<")):
        if bound is not None:
            parts.append(
                sql.SQL("{} {} {}").format(ordered("r", time), sql.SQL(operator), cast(bound, time))
            )
    for cursor, operator in ((after, ">"), (last, "<=")):
        if cursor is not None:
            parts.append(
                sql.SQL("({}) {} ({})").format(
                    sql.SQL(", ").join(ordered("r", column) for column in shape.order),
                    sql.SQL(operator),
                    sql.SQL(", ").join(map(cast, cursor, shape.order)),
                )
            )
    if shape.namespace is not None:
        parts.append(
            sql.SQL('{}::pg_catalog.text COLLATE "C" = {}').format(
                sql.Identifier("r", shape.namespace), sql.Literal(opening.namespace_value)
            )
        )
    parts.append(condition(shape.relations[0].where))
    return sql.SQL(" AND ").join(parts)
