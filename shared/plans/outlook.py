"""Why nothing is happening: how a plan and its open job stand, and the one reason that matters most."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from shared.db.statement import statement
from shared.errors import Code
from shared.jobs import rules
from shared.jobs.model import State

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from shared.db.connect import Database, Row

# A schedule that sends no tick in this time has stopped: fifteen times the minute of the cloud.
QUIET_SECONDS = 15 * 60.0
# The present pace is that of this many units, and of no more than this time.
PACE_UNITS = 100
PACE_SECONDS = 15 * 60.0


class Standing(StrEnum):
    """What keeps a plan or job from moving, where no code of an error says it already."""

    AT_WORK = "AT_WORK"
    BACKING_OFF = "BACKING_OFF"
    DUE = "DUE"
    JOB_FAILED = "JOB_FAILED"
    JOB_PAUSED = "JOB_PAUSED"
    NAMESPACE_DISABLED = "NAMESPACE_DISABLED"
    NEXT_RUN_LATER = "NEXT_RUN_LATER"
    NOTHING_OLD_ENOUGH = "NOTHING_OLD_ENOUGH"
    NO_TICK = "NO_TICK"
    OTHER_VOLUME = "OTHER_VOLUME"
    PLAN_STALE = "PLAN_STALE"


# With these all is well: time will do it.
CALM = frozenset(
    {
        Standing.AT_WORK,
        Standing.BACKING_OFF,
        Standing.DUE,
        Standing.NEXT_RUN_LATER,
        Standing.NOTHING_OLD_ENOUGH,
    }
)


@dataclass(frozen=True)
class Reason:
    """One reason, as a code with parameters; its words are in ``shared.messages``."""

    code: Code | Standing
    params: dict[str, object]

    @property
    def attention(self) -> bool:
        """Tell whether somebody must do something, or nothing will ever happen."""
        return self.code not in CALM


@dataclass(frozen=True)
class Here:
    """What this node brings along: the kinds it knows, its volume, how long a silent schedule is usual.

    ``kinds`` gives of each kind the one namespace it belongs to, None where its rows name their own.
    ``quiet_seconds`` is the age from which a last tick means that the schedule has stopped.
    """

    kinds: Mapping[str, str | None]
    storage_id: str | None
    quiet_seconds: float = QUIET_SECONDS


@dataclass(frozen=True)
class Situation:
    """How a plan stands with its open job, or a job with its plan, as the database has it.

    Without a plan what begins with ``plan_`` is None, without an open job what begins with ``job_``,
    but for ``job_bytes_left``, which then is the budget of the next one. ``last_`` speaks of the plan's
    last succeeded job. Durations are in seconds by the database's clock: ``next_run_in`` and
    ``job_due_in`` from now, ``ticked_ago`` and ``job_unmoved`` until now. ``paced_roots`` were settled
    in ``paced_seconds``. ``volume_bytes`` counts what is used and what is set aside.
    """

    plan_id: UUID | None
    job_id: UUID | None
    operation: str
    kind: str | None
    storage_id: str | None
    namespace_id: UUID
    namespace: str
    namespace_enabled: bool
    plan_enabled: bool | None
    plan_policy_revision: int | None
    plan_scope: str | None
    next_run_in: float | None
    policy_now: int | None
    policy_enabled: bool | None
    after_days: int | None
    batch_size: int
    job_bytes_left: int
    volume_bytes: int | None
    job_state: State | None
    job_code: str | None
    job_attempts: int | None
    job_policy_revision: int | None
    job_due_in: float | None
    job_unmoved: float | None
    job_definition: dict[str, Any] | None
    job_cursor: list[str] | None
    job_time_sort: str | None
    last_roots: int | None
    last_definition: dict[str, Any] | None
    last_cursor: list[str] | None
    last_cutoff: str | None
    last_time_sort: str | None
    asked_at: datetime
    ticked_at: datetime | None
    ticked_ago: float | None
    paced_roots: int | None
    paced_seconds: float | None

    @classmethod
    def from_row(cls, row: Row) -> Situation:
        """Build it from a row of ``situations``."""
        values = {each.name: row[each.name] for each in fields(cls)}
        return cls(**values | {"job_state": State(row["job_state"]) if row["job_state"] else None})

    @property
    def name(self) -> str:
        """Return what people call it: the kind, or the operation that has none."""
        return self.kind or self.operation


def of_plans(control: Database, namespace_id: UUID | None = None) -> list[Situation]:
    """Return how every plan stands, of one namespace or of all, in the order of the list of plans."""
    return _situations(control, namespace_id=namespace_id)


def of_job(control: Database, job_id: UUID) -> Situation | None:
    """Return how a job stands, with its plan if it has one; None for a job that is not there."""
    found = _situations(control, job_id=job_id)
    return found[0] if found else None


def why(now: Situation, here: Here) -> Reason:
    """Say why nothing is happening, or that something is; what must be mended first comes first."""
    return _stuck(now) or _switched_off(now) or _waiting(now) or _unattended(now, here) or _due(now)


def _stuck(now: Situation) -> Reason | None:
    """Return that an open job waits for an operator, or for something that is missing."""
    if now.job_state is State.FAILED:
        return _of_job(Standing.JOB_FAILED, now)
    if now.job_state is State.PAUSED:
        # A pause that an operator asked for carries no code.
        return _of_job(Standing.JOB_PAUSED, now, cause="missing" if now.job_code else None)
    return None


def _switched_off(now: Situation) -> Reason | None:
    """Return the switch that keeps a plan from making jobs, or an open job from exporting."""
    if not now.namespace_enabled:
        return _reason(Standing.NAMESPACE_DISABLED, now, namespace=now.namespace)
    policy = (now.policy_now, now.policy_enabled)
    if now.job_id is not None:
        bound = now.job_policy_revision
        barred = bound is not None and policy != (bound, True)
        return _of_job(Code.POLICY_CHANGED, now) if barred else None
    if not now.plan_enabled:
        return _reason(Code.PLAN_DISABLED, now, cause=_by_operation(now))
    if now.plan_policy_revision is None:
        return None
    if not now.policy_enabled:
        return _reason(Code.POLICY_DISABLED, now)
    if now.policy_now != now.plan_policy_revision:
        params = {"bound": now.plan_policy_revision, "current": now.policy_now}
        return _reason(Standing.PLAN_STALE, now, **params)
    return None


def _waiting(now: Situation) -> Reason | None:
    """Return that all is well and the time has not come yet, or that a process is at it."""
    if now.job_due_in is not None:
        if not 0 < now.job_due_in <= rules.FARTHEST_JOB_SECONDS:
            return None
        if now.job_state is State.RUNNING:
            return _of_job(Standing.AT_WORK, now, seconds=now.job_due_in)
        # Given back by an operator, a job waits for the end of the lease that was taken.
        cause = None if now.job_code else "lease"
        return _of_job(Standing.BACKING_OFF, now, cause=cause, seconds=now.job_due_in)
    run_in = now.next_run_in
    if run_in is None or not 0 < run_in <= rules.FARTHEST_PLAN_SECONDS:
        return None
    if now.last_roots == 0 and now.after_days is not None:
        return _reason(Standing.NOTHING_OLD_ENOUGH, now, days=now.after_days, seconds=run_in)
    return _reason(Standing.NEXT_RUN_LATER, now, cause=_by_operation(now), seconds=run_in)


def _unattended(now: Situation, here: Here) -> Reason | None:
    """Return why nobody takes what is due: no tick comes by, or this node could not do it."""
    ago = now.ticked_ago
    if ago is not None and ago > here.quiet_seconds:
        return _reason(Standing.NO_TICK, now, operation=now.operation, seconds=ago)
    moved = now.job_attempts and (now.job_unmoved or 0.0) <= here.quiet_seconds
    # Another node may do what this one cannot: then its job moves.
    if not moved and (missing := _missing_here(now, here)):
        return missing
    if ago is None:
        return _reason(Standing.NO_TICK, now, cause="never", operation=now.operation)
    return None


def _missing_here(now: Situation, here: Here) -> Reason | None:
    if now.storage_id is not None and here.storage_id is None:
        return _reason(Code.VOLUME_NOT_CONFIGURED, now)
    if now.storage_id is not None and now.storage_id != here.storage_id:
        params = {"storage_id": now.storage_id, "here": here.storage_id}
        return _reason(Standing.OTHER_VOLUME, now, **params)
    if now.kind is None or now.job_id is not None:
        # A job carries the definition of its kind along.
        return None
    if now.kind not in here.kinds:
        return _reason(Code.KIND_UNKNOWN, now, known=sorted(here.kinds))
    owner = here.kinds[now.kind]
    if owner not in (None, now.namespace):
        return _reason(Code.NAMESPACE_MISMATCH, now, namespace=now.namespace, belongs_to=owner)
    return None


def _due(now: Situation) -> Reason:
    if now.job_id is None:
        return _reason(Standing.DUE, now, seconds=now.ticked_ago)
    takeover = "takeover" if now.job_state is State.RUNNING else "job"
    return _of_job(Standing.DUE, now, cause=takeover, seconds=now.ticked_ago)


def _by_operation(now: Situation) -> str | None:
    """Return the cause that has words for a plan without a kind."""
    return now.operation if now.kind is None else None


def _of_job(code: Code | Standing, now: Situation, /, **params: object) -> Reason:
    return _reason(code, now, job=str(now.job_id), code=now.job_code, **params)


def _reason(code: Code | Standing, now: Situation, /, **params: object) -> Reason:
    given = {name: value for name, value in params.items() if value is not None}
    return Reason(code, {"kind": now.name} | given)


def _situations(
    control: Database, *, namespace_id: UUID | None = None, job_id: UUID | None = None
) -> list[Situation]:
    params = {
        "namespace_id": namespace_id,
        "job_id": job_id,
        "pace_units": PACE_UNITS,
        "pace_seconds": PACE_SECONDS,
    }
    rows = control.transact(statement("shared.plans", "situations"), params, repeatable=True)
    return [Situation.from_row(row) for row in rows]
