"""What archiving a kind would come to: counted where that is quick, estimated from a real page elsewhere."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from shared.archive.describe import described_as
from shared.archive.examine import Finding, Problem
from shared.archive.file import Reading, page_bytes
from shared.archive.opening import End, first_look
from shared.archive.page import Page, edge_query, extent_query, root_select
from shared.archive.source import snapshot
from shared.archive.survey import survey
from shared.archive.window import HIDDEN_MARGIN_SECONDS
from shared.chain.batch import Header
from shared.chain.manifest import Namespace, encode_manifest
from shared.chain.verify import start, verify_batch
from shared.clock import Deadline
from shared.errors import Code, Passing, Refused, TooMuch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from shared.archive.kinds import NamedKind
    from shared.archive.shape import Opening
    from shared.archive.source import SourceConnection
    from shared.db.connect import Row

READER = "tallystick preview"
# Counting is exact where it takes no longer than this; a large table is estimated.
COUNT_SECONDS = 5.0
EDGE_SECONDS = 1.0
NOBODY = "00000000-0000-0000-0000-000000000000"
# The root's alias in the query of a page, and those the server makes of it for partitions.
ROOT_ALIAS = re.compile(r"r(_\d+)?")


@dataclass(frozen=True)
class Sample:
    """One real page, compressed into nothing: its roots, rows by table, sizes and the time it took."""

    roots: int
    rows: dict[str, int]
    raw_bytes: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Extent:
    """The roots in the window, and the oldest and newest time; ``exact`` unless they were estimated."""

    roots: int
    exact: bool
    oldest: str | None
    newest: str | None


@dataclass(frozen=True)
class PagePlan:
    """How the server would find the roots of a page: by which indexes, reading everything, sorting it."""

    indexes: tuple[str, ...]
    reads_all: bool
    sorts: bool


@dataclass(frozen=True)
class Preview:
    """What archiving a kind up to ``cutoff`` would come to; None where nothing could be sampled."""

    cutoff: str
    batch_size: int
    extent: Extent
    plan: PagePlan
    sample: Sample | None
    findings: tuple[Finding, ...]

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
    plan = _page_plan(connection, opening, batch_size)
    findings = found.findings
    if plan.reads_all or plan.sorts:
        table = opening.shape.tables[0].label
        findings += (Finding(Problem.PAGE_READS_ALL, {"table": table}),)
    return Preview(
        cutoff=opening.cutoff,
        batch_size=batch_size,
        extent=_extent(connection, opening, min(COUNT_SECONDS, deadline.left() / 3)),
        plan=plan,
        sample=_sample(source, kind, opening, batch_size, deadline),
        findings=findings,
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
    top = _explained(connection, query, seconds)
    # The aggregate has one row; what it is made of is below.
    return max((round(node["Plan Rows"]) for node in top.get("Plans", ())), default=0)


def _page_plan(connection: psycopg.Connection[Row], opening: Opening, batch_size: int) -> PagePlan:
    nodes = list(_flattened(_explained(connection, root_select(opening, None, batch_size + 1))))
    of_root = [node for node in nodes if ROOT_ALIAS.fullmatch(node.get("Alias", ""))]
    bitmaps = [node for node in nodes if node["Node Type"] == "Bitmap Index Scan"]
    indexes = (node.get("Index Name") for node in of_root + bitmaps)
    return PagePlan(
        indexes=tuple(dict.fromkeys(index for index in indexes if index)),
        reads_all=any(node["Node Type"] == "Seq Scan" for node in of_root),
        sorts=any(node["Node Type"] == "Sort" for node in nodes),
    )


def _explained(
    connection: psycopg.Connection[Row], query: sql.Composed, seconds: float = COUNT_SECONDS
) -> dict[str, Any]:
    with snapshot(connection, [], name=READER, seconds=seconds, lock=False):
        # Workers would divide the numbers of rows among them.
        connection.execute("SET LOCAL max_parallel_workers_per_gather = 0")
        row = connection.execute(sql.SQL("EXPLAIN (FORMAT JSON) ") + query).fetchone()
    assert row is not None  # noqa: S101 - a plan has one row
    found = row["QUERY PLAN"]
    top: dict[str, Any] = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return top


def _flattened(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _flattened(child)


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
