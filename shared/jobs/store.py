"""The statements of the jobs table, one function each; every write of a holder carries the fence."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from shared.db.statement import statement
from shared.errors import Code, Passing, Refused, Stale, Uncertain
from shared.jobs import rules
from shared.jobs.model import Claim, Event, Job, State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shared.db.connect import Database, Row
    from shared.jobs.model import Fence, Json, Progress

LOOK_BACKS = 2


def _sql(name: str) -> str:
    return statement("shared.jobs", name)


def _claim(row: Row) -> Claim:
    job = Job.from_row(row)
    policy_now = (row["policy_now"], row["policy_enabled"])
    return Claim(
        job,
        reclaimed=row["reclaimed"],
        barred=rules.barred(job, policy_now, namespace_enabled=row["namespace_enabled"]),
    )


@dataclass(frozen=True)
class Search:
    """What a claim looks for: operations, the volume that is locked (or none), one job (or any)."""

    operations: tuple[str, ...]
    storage_id: str | None
    lease_seconds: float
    job_id: UUID | None = None


def claim(control: Database, search: Search) -> Claim | Job | None:
    """Claim one due job: a claim, a job that this claim found in a crash loop and failed, or nothing.

    When the answer is lost the claim is looked up by its random owner. Raises ``Uncertain`` when it is
    not found: it may still be on its way, and whether anything was due is not known either.
    """
    owner = uuid4()
    try:
        rows = control.transact(
            _sql("claim"),
            {
                "operations": list(search.operations),
                "storage_id": search.storage_id,
                "job_id": search.job_id,
                "owner": owner,
                "lease_seconds": search.lease_seconds,
                "farthest_seconds": rules.FARTHEST_JOB_SECONDS,
                "takeovers_max": rules.TAKEOVERS_MAX,
                "errors_kept": rules.ERRORS_KEPT,
            },
        )
    except Uncertain as uncertain:
        try:
            rows = control.transact(_sql("find_claim"), {"owner": owner}, repeatable=True)
        except Passing:
            raise uncertain from None
        if not rows:
            raise
    if not rows:
        return None
    claimed = _claim(rows[0])
    return claimed if claimed.job.state is State.RUNNING else claimed.job


def open_job(control: Database, claim: Claim, opening: Json) -> Claim:
    """Fix what the first unit found out, and return the claim with it.

    Raises ``Stale`` when the claim was lost and ``Uncertain`` when that cannot be found out.
    """
    params = claim.fence.params() | {"opening": Jsonb(opening)}
    lost = False
    for _ in range(LOOK_BACKS + 1):
        try:
            rows = control.transact(_sql("open_job"), params)
        except Uncertain:
            lost, rows = True, []
        # Without an answer it may have been done, or not: what is still ours and not opened is opened again.
        if lost and not rows:
            rows = _look_back(control, claim, seq=0)
        if not rows or not _still_held(rows[0], claim):
            raise Stale(Code.CLAIM_LOST, job=str(claim.job.id))
        if rows[0]["opening"] is not None:
            return replace(claim, job=Job.from_row(rows[0]))
    raise Uncertain(Code.OUTCOME_UNKNOWN, job=str(claim.job.id))


def reserve(control: Database, fence: Fence, size: int, volume_max: int) -> Row:
    """Check the claim and both budgets for ``size`` more bytes, and set them aside.

    Returns ``job_bytes``, ``job_max``, ``volume_used`` and whether they were ``reserved``. Doing it
    twice is doing it once. Raises ``Stale`` when the claim was lost.
    """
    params = fence.params() | {"size": size, "volume_max": volume_max}
    rows = control.transact(_sql("reserve"), params, repeatable=True, first=(_sql("lock_account"),))
    if not rows:
        raise Stale(Code.CLAIM_LOST, job=str(fence.job_id))
    return rows[0]


def settle(control: Database, claim: Claim, progress: Progress) -> Job:
    """Record a verified unit and give the claim back.

    Raises ``Stale`` when the claim was lost and ``Uncertain`` when that cannot be found out; nothing
    of this unit was recorded by the first, and the lease decides after the second.
    """
    # Taking over an expired lease was an event; how it ended is one too.
    recovered = (Event("unit-settled-after-restart", "info", done=True),) if claim.reclaimed else ()
    params = claim.fence.params() | {
        "final": progress.final,
        "page_size": rules.grown(claim.job),
        "checkpoint": Jsonb(progress.checkpoint),
        "unit_seq": progress.seq,
        "unit_sha256": progress.sha256,
        "unit_bytes": progress.bytes,
        "unit_roots": progress.roots,
        "evidence": Jsonb(progress.evidence),
        "new_tail": progress.tail,
        "ledger": Jsonb([asdict(entry) for entry in progress.ledger]),
        "released": list(progress.released),
        "published_directory": progress.published and progress.published.directory,
        "published_file": progress.published and progress.published.file,
        "events": Jsonb([asdict(event) for event in progress.events + recovered]),
        "reclaimed": claim.reclaimed,
    }
    return _given_back(
        control,
        claim,
        "settle",
        params,
        progress.seq,
        partial(_unit_is_ours, progress=progress),
        first=(_sql("lock_account"),),
    )


def set_back(control: Database, claim: Claim, setback: rules.Setback) -> Job:
    """Record that a unit could not be done and give the claim back; raises ``Stale`` for a lost claim."""
    params = claim.fence.params() | {
        "new_state": str(setback.state),
        "delay_seconds": setback.delay_seconds,
        "failures": setback.failures,
        "page_size": setback.page_size,
        "code": str(setback.code),
        "params": Jsonb(setback.params),
        "errors_kept": rules.ERRORS_KEPT,
        "event_type": None if setback.said else setback.event.type,
        "severity": setback.event.severity,
        "done": setback.event.done,
        "reclaimed": claim.reclaimed,
    }
    return _given_back(control, claim, "set_back", params, claim.fence.seq, _was_set_back)


def get(control: Database, job_id: UUID) -> Job:
    """Return one job; raises ``Refused`` when there is none of that id."""
    rows = control.transact(_sql("get_job"), {"job_id": job_id}, repeatable=True)
    if not rows:
        raise Refused(Code.JOB_UNKNOWN, job=str(job_id))
    return Job.from_row(rows[0])


def newest(
    control: Database, *, namespace_id: UUID | None, before: UUID | None = None, limit: int = 20
) -> list[Job]:
    """Return jobs by creation time and id, newest first, from after ``before``."""
    params = {"namespace_id": namespace_id, "before": before, "limit": limit}
    return [
        Job.from_row(row) for row in control.transact(_sql("list_jobs"), params, repeatable=True)
    ]


def units(control: Database, job_id: UUID, limit: int = 20) -> list[Row]:
    """Return the newest settled units of a job, newest first."""
    return control.transact(_sql("list_units"), {"job_id": job_id, "limit": limit}, repeatable=True)


def pause_overdue(control: Database, storage_id: str, params: Mapping[str, object]) -> list[UUID]:
    """Pause the jobs of a volume that does not answer once they are long overdue; return their ids."""
    rows = control.transact(
        _sql("pause_overdue"),
        {
            "storage_id": storage_id,
            "params": Jsonb(dict(params)),
            "overdue_seconds": rules.OVERDUE_SECONDS,
            "errors_kept": rules.ERRORS_KEPT,
        },
        repeatable=True,
    )
    return [row["id"] for row in rows]


def resume_cured(control: Database, code: Code, storage_id: str) -> list[UUID]:
    """Resume the jobs of a volume that were paused for ``code``, now that its cause is gone."""
    rows = control.transact(
        _sql("resume_cured"), {"code": str(code), "storage_id": storage_id}, repeatable=True
    )
    return [row["id"] for row in rows]


def _given_back(
    control: Database,
    claim: Claim,
    name: str,
    params: Mapping[str, Any],
    seq: int,
    is_done: Callable[[Row, Claim], bool],
    first: Sequence[str] = (),
) -> Job:
    """Run a statement that ends a claim, and find out what became of it when it does not say."""
    for _ in range(LOOK_BACKS + 1):
        try:
            if rows := control.transact(_sql(name), params, first=first):
                return Job.from_row(rows[0])
        except Uncertain:
            pass
        # No row, or no answer. A transaction of ours may still be open on a server that was slow to
        # notice, so what is still ours is given back again: the fence lets only one of the two through.
        found = _look_back(control, claim, seq)
        if found and is_done(found[0], claim):
            return Job.from_row(found[0])
        if not found or not _still_held(found[0], claim):
            raise Stale(Code.CLAIM_LOST, job=str(claim.job.id))
    raise Uncertain(Code.OUTCOME_UNKNOWN, job=str(claim.job.id))


def _look_back(control: Database, claim: Claim, seq: int) -> list[Row]:
    params = {"job_id": claim.job.id, "unit_seq": seq}
    try:
        return control.transact(_sql("look_back"), params, repeatable=True)
    except Passing as passing:
        # Nobody can be asked what became of the write: that is not the same as knowing it was not done.
        raise Uncertain(Code.OUTCOME_UNKNOWN, job=str(claim.job.id)) from passing


def _unit_is_ours(row: Row, claim: Claim, progress: Progress) -> bool:
    # An owner is random and of one claim only; a generation may be handed out again after a failover.
    recorded = (row["unit_owner"], row["unit_sha256"])
    return recorded == (claim.fence.owner, progress.sha256)


def _was_set_back(row: Row, claim: Claim) -> bool:
    """Tell whether the job was given back as it was claimed: an operator's action moves the generation."""
    fence = claim.fence
    found = (row["owner"], row["generation"], row["batches"], row["last_sha256"])
    return found == (None, fence.generation, fence.seq, fence.tail)


def _still_held(row: Row, claim: Claim) -> bool:
    held = (row["owner"], row["generation"], row["batches"], row["last_sha256"])
    fence = claim.fence
    return held == (fence.owner, fence.generation, fence.seq, fence.tail)
