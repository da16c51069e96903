"""Archive: the next page of rows becomes the next file of a chain."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from shared.archive import count
from shared.archive import opening as first_look
from shared.archive.describe import manifest_difference, manifest_of
from shared.archive.file import Reading, page_bytes, proof_of, proof_of_temp
from shared.archive.page import Page
from shared.archive.shape import Opening, opening_json, parse_opening
from shared.archive.source import reader_name, terminate_older
from shared.chain.batch import Header, file_name
from shared.chain.canonical import sha256_hex
from shared.chain.manifest import MANIFEST_NAME, MANIFEST_READ_BYTES, Manifest, encode_manifest
from shared.chain.verify import BatchProof, Position
from shared.errors import Code, Verdict
from shared.jobs import store
from shared.jobs.model import Claim, Event, LedgerEntry, Progress, Published
from shared.operations.work import Operation, Work
from shared.volume import publish

if TYPE_CHECKING:
    import psycopg

    from shared.archive.count import WindowRows
    from shared.db.connect import Row
    from shared.jobs.model import Job
    from shared.volume.publish import Temp


@dataclass(frozen=True)
class Batch:
    """The next batch of a job: where the chain stands, and whether its file may be there already.

    ``tables`` are the rows archived so far, by the label of their table.
    """

    claim: Claim
    opening: Opening
    manifest: Manifest
    manifest_bytes: bytes
    position: Position
    found: bool
    tables: dict[str, int]

    @property
    def seq(self) -> int:
        """Return the number of this batch, from 1."""
        return self.position.seq + 1

    @property
    def directory(self) -> str:
        """Return the name of the job's directory."""
        return self.claim.job.directory


@dataclass(frozen=True)
class Landed:
    """A batch that has its name on the volume.

    ``proof`` was read from the very file that was linked; None when another writer's file was found
    under the name, which must be judged before it is adopted. ``window`` was counted in the snapshot of
    the final batch.
    """

    proof: BatchProof | None
    window: WindowRows | None = None


@dataclass(frozen=True)
class Proven:
    """A batch as it lies on the volume, durable and verified."""

    proof: BatchProof
    adopted: bool
    window: WindowRows | None = None


def next_batch(work: Work, claim: Claim) -> Batch:
    """Find where the chain stands, and check that the volume has what the database confirmed."""
    volume = work.storage.volume
    found = bool(claim.job.reserved) and _is_there(work, claim.job)
    # What landed is confirmed whatever has changed since: it is durable, and its bytes are spent.
    if not found:
        _check_allowed(work, claim)
    claim, opening = _opened(work, claim)
    manifest = manifest_of(claim.job, opening)
    content = encode_manifest(manifest)
    position = _position(claim.job, opening, content)
    with publish.job_directory(volume, claim.job.directory, create=position.seq == 0) as directory:
        if position.seq > 0:
            _check_manifest(directory, content)
            _check_tail(directory, position)
    tables = (claim.job.checkpoint or {}).get("tables", {})
    return Batch(claim, opening, manifest, content, position, found, tables)


def export(work: Work, unit: Batch) -> Landed:
    """Read the page, write it, prove it, and give it its name, unless its file is there already."""
    volume = work.storage.volume
    if unit.found:
        return Landed(proof=None)
    temp, window = _written(work, unit)
    try:
        proof, _ = proof_of_temp(volume, unit.manifest, unit.position, temp)
        _reserve(work, unit, temp)
        with publish.job_directory(volume, unit.directory, create=False) as directory:
            if unit.seq == 1:
                _publish_manifest(work, unit, directory)
            ours = publish.publish(volume, temp, directory, file_name(unit.seq))
    finally:
        publish.discard(volume, temp)
    # A file that is not ours was read in another snapshot than the one that was counted.
    return Landed(proof, window) if ours else Landed(None)


def prove(work: Work, unit: Batch, landed: Landed) -> Proven:
    """Prove what lies under the name, whoever wrote it, and make it durable before anybody is told.

    What is settled comes from the bytes that were published: after adopting another writer's file,
    the cursor of one's own page would skip rows or take them twice.
    """
    name = file_name(unit.seq)
    with publish.job_directory(work.storage.volume, unit.directory, create=False) as directory:
        proof = landed.proof
        if proof is None:
            with publish.published(directory, name) as fd:
                proof, _ = proof_of(unit.manifest, unit.position, fd)
        publish.make_durable(directory, adopted=name if landed.proof is None else None)
    return Proven(proof, adopted=landed.proof is None, window=landed.window)


def progress_of(unit: Batch, proven: Proven) -> Progress:
    """Say what the settle shall record."""
    proof, job = proven.proof, unit.claim.job
    last = list(proof.end.last) if proof.end.last is not None else None
    rows = unit.position.rows + sum(number for _, number in proof.end.rows)
    added = dict(proof.end.rows)
    labels = [table.label for table in unit.manifest.tables]
    tables = {label: unit.tables.get(label, 0) + added[label] for label in labels}
    counts = _counts(unit, proven, tables)
    checkpoint: dict[str, object] = {"cursor": last, "rows": rows, "tables": tables}
    if proof.end.final:
        checkpoint["window"] = [asdict(each) for each in counts]
    return Progress(
        seq=unit.seq,
        sha256=proof.sha256,
        bytes=proof.bytes,
        roots=proof.end.roots,
        evidence={
            "rows": dict(proof.end.rows),
            "raw_bytes": proof.end.raw_bytes,
            "last": last,
            "final": proof.end.final,
            "adopted": proven.adopted,
        },
        checkpoint=checkpoint,
        tail=proof.sha256,
        final=proof.end.final,
        ledger=(LedgerEntry(unit.directory, len(unit.manifest_bytes) + job.bytes + proof.bytes),),
        events=(
            *_events(unit, proven),
            *count.events(counts, unit.opening.roots_at_start, job.kind),
        ),
        published=Published(unit.directory, file_name(unit.seq)),
    )


def _counts(unit: Batch, proven: Proven, tables: dict[str, int]) -> tuple[count.Count, ...]:
    """Compare what was archived with what the window held when the final batch was read."""
    if not proven.proof.end.final:
        return ()
    if unit.seq == 1:
        # All of it came from one snapshot: what was there is what was archived.
        return count.compared(tables, count.WindowRows(tables))
    return count.compared(tables, proven.window or count.WindowRows({}, "adopted"))


def _events(unit: Batch, proven: Proven) -> tuple[Event, ...]:
    events = []
    held_back = unit.opening.held_back
    # The clock alone holds back by seconds, and does so whenever everything up to now is asked for.
    if unit.seq == 1 and held_back not in {None, "clock"}:
        params = {
            "cause": held_back,
            "kind": unit.claim.job.kind,
            "cutoff": unit.opening.cutoff,
            "margin": unit.opening.margin_seconds,
        }
        code = Code.WINDOW_HELD_BACK
        events.append(
            Event("window-held-back", "info", done=True, reason_code=code, reason_params=params)
        )
    late, unknown = unit.opening.late_rows, unit.opening.late_unknown
    if unit.seq == 1 and (late or unknown):
        params = {**(unknown or {"rows": late}), "kind": unit.claim.job.kind}
        kind, severity = ("late-rows", "warning") if late else ("late-rows-unknown", "info")
        events.append(
            Event(kind, severity, done=False, reason_code=Code.LATE_ROWS, reason_params=params)
        )
    if proven.adopted:
        events.append(Event("batch-adopted", "info", done=True, reason_params={"seq": unit.seq}))
    return tuple(events)


def _is_there(work: Work, job: Job) -> bool:
    """Ask whether an earlier holder, who had bytes reserved, got as far as giving the file its name."""
    name = file_name(job.batches + 1)
    try:
        with publish.job_directory(work.storage.volume, job.directory, create=False) as directory:
            return publish.is_listed(directory, name)
    except Verdict:
        # No directory: the holder did not get that far, and the normal path will say so if it should.
        return False


def _check_allowed(work: Work, claim: Claim) -> None:
    """Stop before reading when nothing more may be exported, or a budget is used up already.

    The exact check of the budgets comes before publishing, when the size is known.
    """
    job, ledger = claim.job, work.storage.ledger
    if claim.barred is not None:
        raise Verdict(claim.barred, kind=job.kind)
    volume_used = ledger.taken_bytes - job.reserved
    if job.bytes >= job.max_bytes:
        raise Verdict(Code.STORAGE_LIMIT, cause="job-budget", used=job.bytes, limit=job.max_bytes)
    if volume_used >= work.volume_max_bytes:
        raise Verdict(
            Code.STORAGE_LIMIT,
            cause="volume-budget",
            used=volume_used,
            limit=work.volume_max_bytes,
        )


def _opened(work: Work, claim: Claim) -> tuple[Claim, Opening]:
    """Return what the first unit fixed, fixing it if this is the first."""
    if claim.job.opening is None:
        connection = _source(work, claim)
        found = first_look.prepare(
            connection,
            claim.job,
            name=reader_name(str(claim.job.id), claim.job.generation),
            seconds=work.deadline.for_reading().left(),
            hidden_margin=work.hidden_margin_seconds,
        )
        claim = store.open_job(work.control, claim, opening_json(found))
    assert claim.job.opening is not None  # noqa: S101 - open_job returns the job with it
    return claim, parse_opening(claim.job.opening)


def _source(work: Work, claim: Claim) -> psycopg.Connection[Row]:
    job = claim.job
    connection = work.sources[job.input["definition"]["source"]].open()
    # A holder frozen in the middle of a read keeps its snapshot against every timeout.
    if claim.reclaimed or job.generation > job.attempts:
        terminate_older(connection, str(job.id), job.generation)
    return connection


def _position(job: Job, opening: Opening, manifest_bytes: bytes) -> Position:
    """Return where the chain stands according to what the database confirmed."""
    checkpoint = job.checkpoint or {"cursor": opening.after, "rows": 0}
    cursor = checkpoint["cursor"]
    return Position(
        seq=job.batches,
        tail=job.last_sha256 or sha256_hex(manifest_bytes),
        after=tuple(cursor) if cursor is not None else None,
        roots=job.roots,
        rows=checkpoint["rows"],
        bytes=job.bytes,
        final=False,
    )


def _check_manifest(directory: int, expected: bytes) -> None:
    found = publish.read_published(directory, MANIFEST_NAME, MANIFEST_READ_BYTES)
    if found != expected:
        raise manifest_difference(found, expected)


def _check_tail(directory: int, position: Position) -> None:
    """Check the file before this one: a volume restored from a backup is older than the database."""
    name = file_name(position.seq)
    with publish.published(directory, name) as fd:
        digest = publish.sha256_of(fd)
    if digest != position.tail:
        raise Verdict(
            Code.FILE_CHECK_FAILED, file=name, cause="digest", expected=position.tail, found=digest
        )


def _written(work: Work, unit: Batch) -> tuple[Temp, WindowRows | None]:
    """Read the page from one snapshot of the source straight into a temporary file.

    With the final batch, the rows in the window are counted in the same snapshot.
    """
    job = unit.claim.job
    counted: list[WindowRows] = []
    header = Header(
        job=str(job.id),
        seq=unit.seq,
        prev=unit.position.tail,
        after=unit.position.after,
        writer=work.writer,
    )
    page = Page(header, job.page_size, work.deadline.for_reading())
    reading = Reading(
        job.input["definition"],
        unit.opening,
        reader_name(str(job.id), job.generation),
        counted.append if unit.seq > 1 else None,
    )
    with closing(page_bytes(_source(work, unit.claim), reading, page)) as chunks:
        temp = publish.write_temp(work.storage.volume, chunks)
    return temp, counted[0] if counted else None


def _reserve(work: Work, unit: Batch, temp: Temp) -> None:
    """Check the claim and the budgets for the last time, and set the bytes aside."""
    size = temp.size + (len(unit.manifest_bytes) if unit.seq == 1 else 0)
    account = store.reserve(work.control, unit.claim.fence, size, work.volume_max_bytes)
    if account["reserved"]:
        return
    if account["job_bytes"] + size > account["job_max"]:
        cause, used, limit = "job-budget", account["job_bytes"], account["job_max"]
    else:
        cause, used, limit = "volume-budget", account["volume_used"], work.volume_max_bytes
    raise Verdict(Code.STORAGE_LIMIT, cause=cause, used=used, limit=limit, needed=size)


def _publish_manifest(work: Work, unit: Batch, directory: int) -> None:
    """Publish the manifest, or accept the same one from a holder that died before it was confirmed.

    Its name is durable before the first batch has one: a power cut may keep the younger of two names and
    lose the older, and a batch that is adopted without its manifest belongs to no chain.
    """
    volume = work.storage.volume
    temp = publish.write_temp(volume, [unit.manifest_bytes])
    try:
        if not publish.publish(volume, temp, directory, MANIFEST_NAME):
            _check_manifest(directory, unit.manifest_bytes)
        publish.make_durable(directory)
    finally:
        publish.discard(volume, temp)


ARCHIVE = Operation[Batch, Landed, Proven](
    name="archive",
    needs_volume=True,
    next_unit=next_batch,
    do=export,
    verify=prove,
    record=progress_of,
)
