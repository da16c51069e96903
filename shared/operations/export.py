"""One archive now: the same files that ticks write, without a control database, plan or job.

The directory is the only memory. Whatever moment it is interrupted at, it holds a chain that verifies, and
the same command goes on after its last file.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from shared.archive.count import WindowRows, compared, roots_at_start
from shared.archive.describe import described_as
from shared.archive.file import Reading, page_bytes, proof_of, proof_of_temp
from shared.archive.opening import End, first_look
from shared.archive.page import Page
from shared.archive.window import HIDDEN_MARGIN_SECONDS
from shared.chain.batch import Header, file_name
from shared.chain.manifest import (
    MANIFEST_NAME,
    MANIFEST_READ_BYTES,
    Manifest,
    Namespace,
    encode_manifest,
    parse_manifest,
)
from shared.chain.verdict import Broken, Reason
from shared.chain.verify import Position, start, verify_chain
from shared.clock import Deadline
from shared.errors import Code, Passing, Refused, TooMuch, Trouble, Verdict
from shared.volume import publish
from shared.volume.beside import opened_beside
from shared.volume.directory import BatchFile, batch_numbers
from shared.volume.files import read_whole, storage_errors
from shared.volume.listing import listed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shared.archive.count import Count
    from shared.archive.kinds import NamedKind
    from shared.archive.shape import Opening
    from shared.archive.source import SourceConnection
    from shared.chain.verify import BatchProof
    from shared.volume.beside import Place

READER = "tallystick export"
# What passes by itself is tried again so often for one batch, a little later each time.
TRIES = 5
PAUSE_SECONDS = 1.0
# Where no database knows namespaces, one has a name and no id.
NO_ID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Order:
    """What shall be archived, up to when, and where to.

    ``seconds`` bounds each batch as a tick's deadline would; ``expected`` is the tail somebody kept of an
    unfinished export, None where nobody did; ``hidden_margin`` is as for ``opened``.
    """

    kind: NamedKind
    namespace: str
    end: End
    directory: Path
    batch_size: int
    writer: str
    seconds: float
    expected: str | None = None
    hidden_margin: int = HIDDEN_MARGIN_SECONDS


@dataclass(frozen=True)
class Progress:
    """How far an export has come; ``trouble`` is what the next try is to get past, if anything."""

    manifest: Manifest
    position: Position
    trouble: Trouble | None = None


@dataclass(frozen=True)
class Exported:
    """A finished export; ``resumed_after`` counts the batches that were there before.

    ``cutoff_asked`` is the end of the window as this command would have it; the one in the manifest holds.
    ``held_back`` says why that end is earlier than asked, as ``window.Ending`` does. ``counts`` compare the
    archive with the window as its final batch found it, None when an earlier run wrote that batch.
    ``roots_at_start`` were in the window when it was begun, None when that is not known.
    """

    manifest: Manifest
    position: Position
    resumed_after: int | None
    cutoff_asked: str
    held_back: str | None
    counts: tuple[Count, ...] | None
    roots_at_start: int | None


@dataclass(frozen=True)
class _Chain:
    place: Place
    manifest: Manifest
    reading: Reading
    # Rows archived so far by the label of their table, and the window as the final batch found it.
    tables: Counter[str] = field(default_factory=Counter)
    window: list[WindowRows] = field(default_factory=list)

    def add(self, proof: BatchProof) -> None:
        """Count the rows of one more batch."""
        self.tables.update(dict(proof.end.rows))

    def counts(self, position: Position) -> tuple[Count, ...]:
        """Compare what was archived with what the window held when its final batch was read."""
        archived = {table.label: self.tables[table.label] for table in self.manifest.tables}
        if position.seq == 1:
            # All of it came from one snapshot: what was there is what was archived.
            return compared(archived, WindowRows(archived))
        return compared(archived, self.window[-1] if self.window else WindowRows({}, "adopted"))


def export(source: SourceConnection, order: Order, told: Callable[[Progress], None]) -> Exported:
    """Archive everything in the window, or what an interrupted export left undone.

    Raises ``Refused`` when the directory holds anything else, and ``Trouble`` when the source or the
    storage fails; what was published until then stays and verifies.
    """
    with opened_beside(order.directory) as place:
        found = _found(place, order)
        asked = first_look(
            source.open(),
            order.kind.definition,
            order.end,
            namespace_value=order.namespace if order.kind.kind.namespace else None,
            name=READER,
            hidden_margin=order.hidden_margin,
            # The window of an export that was begun is fixed: what may still come belongs to the next one.
            settled=found is None,
        )
        manifest = _described(order, asked, found)
        opening = replace(asked, after=manifest.window.after, cutoff=manifest.window.cutoff)
        reading = Reading(order.kind.definition, opening, READER)
        chain = _Chain(place, manifest, reading)
        position = _walked(chain, order) if found else _begun(chain, order)
        before = position.seq if found else None
        at_start = None
        if not found:
            at_start = roots_at_start(source.open(), opening, READER, order.seconds)
        told(Progress(manifest, position))
        there_already = position.final
        size = manifest.batch_size
        while not position.final:
            position, size = _next(source, chain, order, position, size, told)
            told(Progress(manifest, position))
    counts = None if there_already else chain.counts(position)
    return Exported(manifest, position, before, asked.cutoff, asked.held_back, counts, at_start)


def _found(place: Place, order: Order) -> Manifest | None:
    """Return the manifest of an export that was begun here; None for an empty directory."""
    with storage_errors():
        there = listed(place.directory)
    if not there.has_manifest:
        if not (there.numbers or there.foreign or there.irregular):
            return None
        raise _refused(order, "not-empty")
    try:
        with storage_errors(file=MANIFEST_NAME):
            content, _ = read_whole(place.directory, MANIFEST_NAME, MANIFEST_READ_BYTES)
        return parse_manifest(content)
    except Broken as broken:
        raise _broken(broken, MANIFEST_NAME) from broken


def _described(order: Order, opening: Opening, found: Manifest | None) -> Manifest:
    """Return the manifest of this export, which must be the one found here, its window aside."""
    by_id = order.kind.kind.namespace and order.kind.kind.namespace_by == "id"
    ours = described_as(
        opening,
        job=found.job if found else str(uuid4()),
        namespace=Namespace(order.namespace if by_id else NO_ID, order.namespace),
        kind=order.kind.name,
        definition=order.kind.definition,
        batch_size=found.batch_size if found else order.batch_size,
    )
    if found is None:
        return ours
    ours = replace(ours, window=found.window)
    if replace(found, tables=ours.tables, source=ours.source) != ours:
        raise _refused(order, "other-kind", kind=found.kind)
    if found.source != ours.source:
        raise _refused(order, "other-source", database=found.source.database)
    if found.tables != ours.tables:
        raise Verdict(Code.SCHEMA_CHANGED, cause="manifest", table=ours.root.label)
    return ours


def _begun(chain: _Chain, order: Order) -> Position:
    """Publish the manifest, which fixes the window for every run to come."""
    if order.expected is not None:
        raise _refused(order, "expected", expected=order.expected)
    volume, directory = chain.place.work, chain.place.directory
    content = encode_manifest(chain.manifest)
    temp = publish.write_temp(volume, [content])
    try:
        if not publish.publish(volume, temp, directory, MANIFEST_NAME):
            raise _refused(order, "not-empty")
        publish.make_durable(directory)
    finally:
        publish.discard(volume, temp)
    return start(content)[1]


def _walked(chain: _Chain, order: Order) -> Position:
    """Verify every file that is there, from the first byte on, and return where the chain stands."""
    directory = chain.place.directory
    try:
        with storage_errors():
            numbers = batch_numbers(listed(directory))
            batches = ((seq, BatchFile(directory, seq)) for seq in numbers)
            report = verify_chain(
                encode_manifest(chain.manifest),
                batches,
                expected_sha256=order.expected,
                passed=chain.add,
            )
    except Broken as broken:
        raise _broken(broken, MANIFEST_NAME) from broken
    if report.reason is Reason.TAIL_NOT_FOUND:
        raise _refused(order, "expected", expected=order.expected, tail=report.params["tail"])
    if report.reason is not None:
        raise _broken(Broken(report.reason, **report.params), MANIFEST_NAME)
    position = report.position
    assert position is not None  # noqa: S101 - only a broken chain has none
    file = file_name(position.seq)
    # A run that was killed may have given a file its name and not made the name durable.
    publish.make_durable(directory, file if position.seq else None)
    return position


def _next(
    source: SourceConnection,
    chain: _Chain,
    order: Order,
    position: Position,
    size: int,
    told: Callable[[Progress], None],
) -> tuple[Position, int]:
    """Publish the next batch and return where the chain then stands, and the size of the page after it."""
    tries = 0
    while True:
        try:
            after = _published(source, chain, order, position, size)
        except TooMuch as too_much:
            if size == 1:
                raise Verdict(Code.BATCH_TOO_LARGE, **too_much.params) from too_much
            size //= 2
            told(Progress(chain.manifest, position, too_much))
        except Passing as passing:
            tries += 1
            if tries == TRIES:
                raise
            told(Progress(chain.manifest, position, passing))
            time.sleep(PAUSE_SECONDS * tries)
        else:
            return after, min(chain.manifest.batch_size, size * 2)


def _published(
    source: SourceConnection, chain: _Chain, order: Order, position: Position, size: int
) -> Position:
    volume, directory = chain.place.work, chain.place.directory
    seq = position.seq + 1
    header = Header(chain.manifest.job, seq, position.tail, position.after, order.writer)
    page = Page(header, size, Deadline.after(order.seconds).for_reading())
    reading = replace(chain.reading, counted=chain.window.append if seq > 1 else None)
    with closing(page_bytes(source.open(), reading, page)) as chunks:
        temp = publish.write_temp(volume, chunks)
    try:
        proof, after = proof_of_temp(volume, chain.manifest, position, temp)
        ours = publish.publish(volume, temp, directory, file_name(seq))
        if not ours:
            # Somebody else's file under the name: it is part of the chain, or nothing goes on here.
            with publish.published(directory, file_name(seq)) as fd:
                proof, after = proof_of(chain.manifest, position, fd)
            chain.window.clear()
        publish.make_durable(directory, adopted=None if ours else file_name(seq))
    finally:
        publish.discard(volume, temp)
    chain.add(proof)
    return after


def _broken(broken: Broken, file: str) -> Verdict:
    params = {"file": file, **broken.params}
    return Verdict(Code.FILE_CHECK_FAILED, cause=str(broken.reason), **params)


def _refused(order: Order, cause: str, **params: object) -> Refused:
    return Refused(Code.EXPORT_DIRECTORY, directory=str(order.directory), cause=cause, **params)
