"""What archiving a kind would come to: counted where that is quick, estimated from a real page elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from psycopg import sql

from shared.archive.copying import copied
from shared.archive.describe import described_as
from shared.archive.examine import Finding, Problem
from shared.archive.explained import flattened, plan_of
from shared.archive.file import Reading, page_bytes
from shared.archive.opening import End, first_look
from shared.archive.page import (
    Page,
    cursor_of,
    edge_query,
    extent_query,
    related_select,
    root_query,
    root_select,
)
from shared.archive.places import places
from shared.archive.reach import WHOLE, Reach, between, reaches
from shared.archive.source import snapshot
from shared.archive.survey import survey
from shared.archive.window import HIDDEN_MARGIN_SECONDS
from shared.catalog.names import TableName
from shared.chain.batch import Header
from shared.chain.manifest import Namespace, encode_manifest
from shared.chain.verify import start, verify_batch
from shared.clock import Deadline
from shared.errors import Code, Passing, Refused, TooMuch

if TYPE_CHECKING:
    import psycopg

    from shared.archive.kinds import NamedKind
    from shared.archive.shape import Opening
    from shared.archive.source import SourceConnection
    from shared.chain.manifest import Cursor
    from shared.db.connect import Row

READER = "tallystick preview"
# Counting is exact where it takes no longer than this; a large table is estimated.
COUNT_SECONDS = 5.0
EDGE_SECONDS = 1.0
# Pages are sampled at so many places of a window.
PLACES = 5
NOBODY = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Sample:
    """Real pages from places all over the window, compressed into nothing.

    Their roots, rows by table and sizes together, and the time that one of them took.
    """

    roots: int
    rows: dict[str, int]
    raw_bytes: int
    bytes: int
    seconds: float
    pages: int = 1


@dataclass(frozen=True)
class Extent:
    """The roots in the window, and the oldest and newest time; ``exact`` unless they were estimated."""

    roots: int
    exact: bool
    oldest: str | None
    newest: str | None


@dataclass(frozen=True)
class PagePlan:
    """How the server would read a page: by which indexes, reading all of the root table, sorting it.

    ``related_read_all`` are the related tables for whose rows it would read all of some table.
    """

    indexes: tuple[str, ...]
    reads_all: bool
    sorts: bool
    related_read_all: tuple[str, ...]


@dataclass(frozen=True)
class Preview:
    """What archiving a kind up to ``cutoff`` would come to; None where nothing could be sampled."""

    cutoff: str
    batch_size: int
    extent: Extent
    plan: PagePlan
    sample: Sample | None
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]

    @property
    def batches(self) -> int:
        """Return the number of batches, each of which takes a tick."""
        return max(1, math.ceil(self.extent.roots / self.batch_size))

    def scaled(self, amount: int) -> int | None:
        """Return for all roots what was ``amount`` for those of the sample."""
        if self.sample is None or self.sample.roots == 0:
            return 0 if self.extent.roots == 0 else None
        return round(amount * self.extent.roots / self.sample.roots)


def preview(
    source: SourceConnection,
    kind: NamedKind,
    *,
    end: End,
    namespace: str,
    batch_size: int,
    deadline: Deadline,
    hidden_margin: int = HIDDEN_MARGIN_SECONDS,
) -> Preview:
    """Look at a kind without writing anything, all of it before ``deadline``.

    Raises ``Refused`` for a kind that cannot be archived, ``Trouble`` when the source does not answer.
    """
    found = survey(source, kind)
    for finding in found.findings:
        if finding.refuses:
            raise Refused(
                Code.KIND_REFUSED, kind=kind.name, cause=str(finding.problem), **finding.params
            )
    connection = source.open()
    opening = first_look(
        connection,
        kind.definition,
        end,
        namespace_value=namespace if kind.kind.namespace else None,
        name=READER,
        hidden_margin=hidden_margin,
    )
    extent = _extent(connection, opening, min(COUNT_SECONDS, deadline.left() / 3))
    plan = _page_plan(source.open(), opening, extent, batch_size)
    read_all = [opening.shape.tables[0].label] if plan.reads_all or plan.sorts else []
    findings = found.findings + tuple(
        Finding(Problem.PAGE_READS_ALL, {"table": table})
        for table in (*read_all, *plan.related_read_all)
    )
    sample = _sample(source, kind, opening, batch_size, Deadline.after(deadline.left() / 2))
    if sample is not None and 0 < sample.roots < extent.roots:
        sample = _spread(source, kind, opening, extent, sample, deadline)
    return Preview(
        cutoff=opening.cutoff,
        batch_size=batch_size,
        extent=extent,
        plan=plan,
        sample=sample,
        findings=findings,
        notes=found.notes,
    )


def _extent(connection: psycopg.Connection[Row], opening: Opening, seconds: float) -> Extent:
    query = extent_query(opening)
    try:
        with snapshot(connection, [], name=READER, seconds=seconds, lock=False):
            row = connection.execute(query).fetchone()
    except (TooMuch, Passing):
        oldest, newest = _edges(connection, opening)
        return Extent(estimated(connection, query), exact=False, oldest=oldest, newest=newest)
    assert row is not None  # noqa: S101 - an aggregate has one row
    return Extent(row["roots"], exact=True, oldest=row["oldest"], newest=row["newest"])


def _edges(connection: psycopg.Connection[Row], opening: Opening) -> tuple[str | None, str | None]:
    """Return the oldest and the newest time, which an index gives at once; unknown where none does."""
    try:
        with snapshot(connection, [], name=READER, seconds=EDGE_SECONDS, lock=False):
            row = connection.execute(edge_query(opening)).fetchone()
    except (TooMuch, Passing):
        return None, None
    assert row is not None  # noqa: S101 - an aggregate has one row
    return row["oldest"], row["newest"]


def estimated(
    connection: psycopg.Connection[Row], query: sql.Composed, seconds: float = COUNT_SECONDS
) -> int:
    """Return the planner's guess at what a count would give, which is as good as the last ANALYZE."""
    top = plan_of(connection, query, seconds)
    # The aggregate has one row; what it is made of is below.
    return max((round(node["Plan Rows"]) for node in top.get("Plans", ())), default=0)


def _page_plan(
    connection: psycopg.Connection[Row], opening: Opening, extent: Extent, batch_size: int
) -> PagePlan:
    """Ask how a page in the middle of the window would be read, as most of them are.

    The first page has no lower bound: the server may plan it well, and all others badly.
    """
    place, last, span = _middle(connection, opening, extent, batch_size)
    asked = [root_select(opening, place, batch_size, span)]
    if last is not None:
        related = range(1, len(opening.shape.relations))
        asked += [related_select(opening, each, place, last, batch_size) for each in related]
    plans = [list(flattened(plan_of(connection, each, COUNT_SECONDS))) for each in asked]
    scanning = [any(node["Node Type"] == "Seq Scan" for node in nodes) for nodes in plans]
    names = (node.get("Index Name") for nodes in plans for node in nodes)
    tables = zip(opening.shape.tables[1:], scanning[1:], strict=False)
    return PagePlan(
        indexes=tuple(dict.fromkeys(name for name in names if name)),
        reads_all=scanning[0],
        sorts=any(node["Node Type"] == "Sort" for node in plans[0]),
        related_read_all=tuple(table.label for table, scans in tables if scans),
    )


def _middle(
    connection: psycopg.Connection[Row], opening: Opening, extent: Extent, batch_size: int
) -> tuple[Cursor | None, Cursor | None, Reach]:
    """Return the places before and at the end of a page in the middle of the window, and what it looks at.

    No places where the window is empty, or reading a page takes too long.
    """
    if (
        extent.oldest is None
        or extent.newest is None
        or "infinity" in extent.oldest + extent.newest
    ):
        return None, None, WHOLE
    table = opening.shape.tables[0]
    root = TableName(table.schema, table.name)
    place = last = None
    try:
        with snapshot(connection, [root], name=READER, seconds=COUNT_SECONDS, lock=False) as facts:
            (middle,) = between(connection, opening, (extent.oldest, extent.newest), (2,))
            for line in copied(
                connection, root_query(opening, None, batch_size, Reach(middle, None))
            ):
                place, last = place or cursor_of(opening.shape, line), line
            partitioned = facts[0].row["kind"] == "p"
            spans = reaches(connection, opening, place) if partitioned else (WHOLE,)
    except (TooMuch, Passing):
        return None, None, WHOLE
    return place, cursor_of(opening.shape, last) if last else None, spans[0]


def _sample(
    source: SourceConnection,
    kind: NamedKind,
    opening: Opening,
    size: int,
    deadline: Deadline,
) -> Sample | None:
    """Read the first page as a tick would, and halve it until it fits; None when one root does not."""
    while deadline.left() > 1:
        try:
            # Half of what is left, so that a page too large for it leaves time for a smaller one.
            return _page(source.open(), kind, opening, size, Deadline.after(deadline.left() / 2))
        except TooMuch:
            if size == 1:
                break
            size //= 2
    return None


def _spread(
    source: SourceConnection,
    kind: NamedKind,
    opening: Opening,
    extent: Extent,
    first: Sample,
    deadline: Deadline,
) -> Sample:
    """Add pages from later places of the window: the oldest rows are often not like the others."""
    pages, connection = [first], source.open()
    count = min(PLACES, math.ceil(extent.roots / first.roots))
    for place in places(connection, opening, extent, count):
        # A page that is larger than the first may take longer; what there is by then has to do.
        if deadline.left() < 2 * first.seconds + 1:
            break
        later = replace(opening, after=place)
        try:
            page = _page(connection, kind, later, first.roots, Deadline.after(deadline.left() / 2))
        except TooMuch:
            continue
        if page.roots:
            pages.append(page)
    return Sample(
        roots=sum(page.roots for page in pages),
        rows={label: sum(page.rows.get(label, 0) for page in pages) for label in first.rows},
        raw_bytes=sum(page.raw_bytes for page in pages),
        bytes=sum(page.bytes for page in pages),
        seconds=sum(page.seconds for page in pages) / len(pages),
        pages=len(pages),
    )


def _page(
    connection: psycopg.Connection[Row],
    kind: NamedKind,
    opening: Opening,
    size: int,
    deadline: Deadline,
) -> Sample:
    manifest = described_as(
        opening,
        job=NOBODY,
        namespace=Namespace(NOBODY, "preview"),
        kind=kind.name,
        definition=kind.definition,
        batch_size=size,
    )
    _, position = start(encode_manifest(manifest))
    header = Header(NOBODY, 1, position.tail, position.after, READER)
    reading = Reading(kind.definition, opening, READER)
    before = deadline.spent()
    # Verified as it streams by, which counts it: the time is that of reading and proving one batch.
    proof, _ = verify_batch(
        manifest, position, page_bytes(connection, reading, Page(header, size, deadline))
    )
    return Sample(
        roots=proof.end.roots,
        rows=dict(proof.end.rows),
        raw_bytes=proof.end.raw_bytes,
        bytes=proof.bytes,
        seconds=deadline.spent() - before,
    )
