"""One tick, from top to bottom: at most one unit of work, done, proven, and recorded."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import UUID

from shared.archive.source import SourceConnection
from shared.archive.window import HIDDEN_MARGIN_SECONDS
from shared.clock import Deadline, Stopwatch
from shared.db.connect import Database, Dsn
from shared.errors import (
    Busy,
    Code,
    Missing,
    Passing,
    Refused,
    Stale,
    TallystickError,
    Trouble,
    Uncertain,
)
from shared.jobs import rules, store
from shared.jobs.model import Claim, Ending, Job, Outcome, Progress, State
from shared.operations.registry import OPERATIONS, operation
from shared.operations.work import Held, Work
from shared.plans.schedule import KnownKind, schedule
from shared.recovery import evidence
from shared.volume import current, identity, ledger, lock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

log = logging.getLogger("tallystick.tick")

# The parts of a tick, in their order. To do a unit is its heart; to read is to find where it stands.
PHASES = ("prepare", "schedule", "claim", "read", "do", "verify", "settle")

# With less time than this nothing worth a claim can be done.
LEAST_SECONDS = 20.0
# Kept back from what the runtime has left: its kill comes without a word.
SPARE_SECONDS = 5.0


@dataclass(frozen=True)
class Node:
    """What one node works with; built from settings by ``shared.wiring``.

    ``sources`` are databases by the name that kinds use for them. Durations are in seconds,
    sizes in bytes.
    """

    control_dsn: Dsn
    sources: Mapping[str, Dsn]
    kinds: tuple[KnownKind, ...]
    root: Path | None
    storage_id: str | None
    volume_max_bytes: int
    deadline_seconds: float
    lease_seconds: float
    writer: str
    database_retries: int = 4
    hidden_margin_seconds: int = HIDDEN_MARGIN_SECONDS


@dataclass(frozen=True)
class Wanted:
    """What a tick is asked for: any operation or one, any job or one, and the time there is for it."""

    operation: str | None = None
    job_id: UUID | None = None
    seconds_left: float | None = None


@dataclass(frozen=True)
class Report:
    """The one result of a tick, and what it was about.

    ``note`` is what kept the tick from looking at work that needs the volume; ``job`` the job as it
    stands afterwards, None when none was claimed. ``oldest_due_seconds`` says how long the oldest due
    job had waited (0 when none was due), ``volume_used_bytes`` what the volume held with all that was
    set aside, both as the tick began and None when that was not found out. ``seconds`` is the time the
    tick took, ``phases`` the parts of it.
    """

    outcome: Outcome
    scheduled: int = 0
    job: Job | None = None
    seq: int | None = None
    reclaimed: bool = False
    note: TallystickError | None = None
    oldest_due_seconds: float | None = None
    volume_used_bytes: int | None = None
    volume_max_bytes: int | None = None
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)


def tick(node: Node, wanted: Wanted) -> Report:
    """Do one unit of whatever is due, and return what became of it.

    Raises ``Refused`` when the database will not have us or its schema is not ours.
    """
    if wanted.seconds_left is not None and wanted.seconds_left < LEAST_SECONDS:
        return Report(Outcome(Ending.WAITING, Code.TOO_LITTLE_TIME, wait_seconds=0.0))
    left = float("inf") if wanted.seconds_left is None else wanted.seconds_left - SPARE_SECONDS
    deadline = Deadline.after(min(node.deadline_seconds, left))
    control = Database(node.control_dsn, deadline, node.database_retries)
    sources = {name: SourceConnection(dsn) for name, dsn in node.sources.items()}
    watch = Stopwatch()
    try:
        report = _tick(node, wanted, control, sources, deadline, watch)
    except Trouble as trouble:
        # Nothing was claimed: what becomes of the claimed is recorded where it happens.
        report = Report(Outcome(Ending.WAITING, trouble.code, trouble.params))
    except Uncertain as uncertain:
        # Perhaps something was claimed; if so, its lease decides.
        report = Report(Outcome(Ending.UNCERTAIN, uncertain.code, uncertain.params))
    finally:
        control.close()
        for source in sources.values():
            source.close()
    return replace(report, seconds=round(deadline.spent(), 3), phases=watch.phases())


def _tick(
    node: Node,
    wanted: Wanted,
    control: Database,
    sources: Mapping[str, SourceConnection],
    deadline: Deadline,
    watch: Stopwatch,
) -> Report:
    # The lock comes before the claim: a volume in use costs no attempt and leaves no lease behind.
    with ExitStack() as stack:
        watch.begin("prepare")
        held, note = _take_volume(stack, node, control)
        _recover(control, sources, held)
        watch.begin("schedule")
        known = _searched(wanted, held)
        # Even a tick that can do nothing is noted: that the schedule runs is worth knowing by itself.
        made = schedule(control, node.kinds, known, _came_for(wanted))
        report = Report(
            _idle(note),
            scheduled=len(made.jobs),
            note=note,
            oldest_due_seconds=made.oldest_due_seconds,
            volume_used_bytes=held.ledger.taken_bytes if held else None,
            volume_max_bytes=node.volume_max_bytes if held else None,
        )
        if not known:
            return report
        watch.begin("claim")
        search = store.Search(
            operations=known,
            storage_id=held.volume.storage_id if held else None,
            lease_seconds=node.lease_seconds,
            job_id=wanted.job_id,
        )
        claim = store.claim(control, search)
        if claim is None:
            return report
        if isinstance(claim, Job):
            outcome = Outcome(Ending.FAILED, Code.CRASH_LOOP, claim.error_params or {})
            return replace(report, outcome=outcome, job=claim)
        work = Work(
            control,
            sources,
            held,
            deadline,
            node.volume_max_bytes,
            node.writer,
            node.hidden_margin_seconds,
        )
        outcome, job = _one_unit(work, claim, watch)
        seq = claim.job.batches + 1
        return replace(report, outcome=outcome, job=job, seq=seq, reclaimed=claim.reclaimed)


def _one_unit(work: Work, claim: Claim, watch: Stopwatch) -> tuple[Outcome, Job]:
    """Do the claimed unit and settle it: with what was proven, or with what went wrong."""
    try:
        try:
            progress = _proven(work, claim, watch)
        except Trouble as trouble:
            watch.begin("settle")
            return _set_back(work, claim, trouble)
        watch.begin("settle")
        # THE COMMIT POINT. A crash before it costs this unit, which is done again and found done; a
        # crash after it costs nothing.
        job = store.settle(work.control, claim, progress)
    except Stale as stale:
        return Outcome(Ending.STALE, stale.code, stale.params), claim.job
    except (Uncertain, Passing) as error:
        return _unknown(work, claim, error)
    ending = Ending.FINISHED if job.state.closed else Ending.PROGRESSED
    # By table: an archive moved them, a prune held them against the file. A scan counts no rows.
    rows = sum(progress.evidence.get("rows", {}).values())
    params = {
        "roots": progress.roots,
        "rows": rows,
        "bytes": progress.bytes,
        "evidence": progress.evidence,
    }
    return Outcome(ending, params=params), job


def _proven(work: Work, claim: Claim, watch: Stopwatch) -> Progress:
    """Do one unit and prove it; nothing is recorded yet."""
    steps = operation(claim.job.operation)
    try:
        watch.begin("read")
        if work.held is not None and steps.needs_volume and claim.job.batches == 0:
            # Later units find what their job settled before; the first one has nothing of its own.
            current.check(work.held.volume, work.held.ledger.last, content=True)
        unit = steps.next_unit(work, claim)
        watch.begin("do")
        done = steps.do(work, unit)
        watch.begin("verify")
        proof = steps.verify(work, unit, done)
        return steps.record(unit, proof)
    except TallystickError:
        raise
    except Exception as error:
        # A fault of ours. It is tried again like any other, in case one unit's data set it off together
        # with something passing; twelve times in a row make it a failed job.
        log.exception("a unit of job %s ended with a fault", claim.job.id)
        raise Passing(Code.INTERNAL_ERROR, type=type(error).__name__) from error


def _set_back(work: Work, claim: Claim, trouble: Trouble) -> tuple[Outcome, Job]:
    """Record that the unit could not be done, and say what becomes of the job."""
    decided = rules.setback(claim.job, trouble)
    job = store.set_back(work.control, claim, decided)
    ending = {
        State.PENDING: Ending.WAITING,
        State.PAUSED: Ending.PAUSED,
        State.FAILED: Ending.FAILED,
    }[decided.state]
    wait = decided.delay_seconds if ending is Ending.WAITING else None
    return Outcome(ending, decided.code, decided.params, wait), job


def _unknown(work: Work, claim: Claim, error: TallystickError) -> tuple[Outcome, Job]:
    """Leave the claim to its lease; the evidence goes beside the data, since the database is away."""
    if work.held is not None:
        try:
            event = evidence.unrecorded(claim, error.code, error.params)
            evidence.keep(work.held.volume, [event])
        except Trouble as trouble:
            log.warning("evidence of job %s could not be kept: %s", claim.job.id, trouble)
    return Outcome(Ending.UNCERTAIN, error.code, error.params), claim.job


def _take_volume(
    stack: ExitStack, node: Node, control: Database
) -> tuple[Held | None, TallystickError | None]:
    """Probe, open and lock this node's volume; without one, say why, and work that needs it rests."""
    if node.root is None or node.storage_id is None:
        return None, Refused(Code.VOLUME_NOT_CONFIGURED)
    try:
        identity.probe(node.root, node.storage_id)
        volume = stack.enter_context(identity.opened(node.root, node.storage_id))
        stack.enter_context(lock.held(volume))
        account = ledger.visit(control, volume)
        lock.prepare(volume)
    except Busy as busy:
        return None, busy
    except Trouble as trouble:
        if trouble.code is Code.DATABASE_UNAVAILABLE:
            raise
        if isinstance(trouble, Missing):
            store.pause_overdue(control, node.storage_id, trouble.params)
        return None, trouble
    return Held(volume, account), None


def _recover(control: Database, sources: Mapping[str, SourceConnection], held: Held | None) -> None:
    """Before new work: bring in evidence left on the volume, and resume what can go on again."""
    if held is None:
        return
    evidence.bring_in(control, held.volume)
    storage_id = held.volume.storage_id
    if held.ledger.waiting_jobs:
        store.resume_cured(control, Code.STORAGE_UNAVAILABLE, storage_id)
    if held.ledger.uncredentialed_jobs and _all_open(sources):
        store.resume_cured(control, Code.CREDENTIAL_MISSING, storage_id)


def _all_open(sources: Mapping[str, SourceConnection]) -> bool:
    try:
        for source in sources.values():
            source.open()
    except Trouble:
        return False
    return True


def _came_for(wanted: Wanted) -> tuple[str, ...]:
    return tuple(name for name in OPERATIONS if wanted.operation in (None, name))


def _searched(wanted: Wanted, held: Held | None) -> tuple[str, ...]:
    return tuple(
        name for name in _came_for(wanted) if held is not None or not operation(name).needs_volume
    )


def _idle(note: TallystickError | None) -> Outcome:
    """Nothing was due that could be looked at; what kept the rest away is the reason to wait."""
    if note is None or isinstance(note, Refused):
        return Outcome(Ending.IDLE, note.code if note else None)
    return Outcome(Ending.WAITING, note.code, note.params)
