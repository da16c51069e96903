"""One job over everything, once and now: a whole window again, with what came late, or a whole volume."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from shared.db.audit import Change, Signature, record
from shared.db.statement import statement
from shared.errors import Code, Refused
from shared.plans import namespaces, planning, policies
from shared.plans.schedule import asked

if TYPE_CHECKING:
    import psycopg

    from shared.db.connect import Database, Row
    from shared.plans.schedule import KnownKind

# Before every other slot, so that the one plan meant is the first that scheduling takes.
FIRST = datetime(2000, 1, 1, tzinfo=UTC)


def sweep(control: Database, namespace: str, kind: KnownKind, signature: Signature) -> UUID:
    """Make one job with the scope ``all`` for a plan, now, and return its id.

    The plan keeps its scope and its slot, and its next job goes on where this one ends. Raises ``Refused``
    without an enabled plan and policy, while a job is open, or for a stale revision.
    """
    wanted = planning.PlanChange("archive", kind.kind, storage_id=None)
    return _swept(control, namespace, wanted, [kind], signature)


def sweep_volume(control: Database, namespace: str, storage_id: str, signature: Signature) -> UUID:
    """Make one job that scans a volume from its first name to its last, now, and return its id.

    Raises ``Refused`` as ``sweep`` does.
    """
    wanted = planning.PlanChange("scan", None, storage_id)
    return _swept(control, namespace, wanted, [], signature)


def _swept(
    control: Database,
    namespace: str,
    wanted: planning.PlanChange,
    kinds: list[KnownKind],
    signature: Signature,
) -> UUID:
    with control.transaction() as connection:
        owner = namespaces.lock(connection, namespace)
        plan = planning.locked(connection, owner["id"], wanted)
        _check(connection, owner, wanted.kind, plan, signature)
        assert plan is not None  # noqa: S101 - checked
        job = _scheduled(connection, plan, kinds)
        change = Change("sweep", "plan", str(plan["id"]), owner["id"], plan, {"job": str(job)})
        record(connection, signature, change)
    return job


def _check(
    connection: psycopg.Connection[Row],
    owner: Row,
    kind: str | None,
    plan: Row | None,
    signature: Signature,
) -> None:
    """Refuse by name whatever scheduling would pass over in silence; a scan has no kind and no policy."""
    if plan is None:
        raise (
            Refused(Code.PLAN_MISSING, kind=kind)
            if kind
            else Refused(Code.PLAN_MISSING, cause="scan")
        )
    namespaces.seen(plan, signature)
    if plan["has_open_job"]:
        raise Refused(Code.JOB_OPEN, cause="sweep", kind=kind or plan["operation"])
    if not plan["enabled"]:
        if kind is None:
            raise Refused(Code.PLAN_DISABLED, cause="scan")
        raise Refused(Code.PLAN_DISABLED, kind=kind)
    if not owner["enabled"]:
        about = kind or plan["operation"]
        raise Refused(Code.PLAN_DISABLED, cause="namespace", kind=about, namespace=owner["name"])
    if kind is None:
        return
    policy = policies.current(connection, owner["id"], kind)
    if policy is None or not policy["enabled"]:
        raise Refused(Code.POLICY_DISABLED, kind=kind)
    if policy["revision"] != plan["policy_revision"]:
        raise Refused(Code.PLAN_DISABLED, cause="policy-moved", kind=kind)


def _scheduled(connection: psycopg.Connection[Row], plan: Row, kinds: list[KnownKind]) -> UUID:
    """Have scheduling make the job, as if the plan were due and had the scope ``all``.

    Nobody else ever sees it so: it is lent and given back in one transaction, under the plan's lock.
    """
    borrow = statement("shared.plans", "borrow_plan")
    connection.execute(borrow, {"plan_id": plan["id"], "scope": "all", "next_run_at": FIRST})
    params = asked(kinds, [plan["operation"]], plans_max=1)
    row = connection.execute(statement("shared.plans", "schedule"), params).fetchone()
    own = {name: plan[name] for name in ("scope", "next_run_at")}
    connection.execute(borrow, {"plan_id": plan["id"], **own})
    if row is None or row["id"] is None:
        raise Refused(Code.PLAN_DISABLED, kind=plan["kind"] or plan["operation"])
    found: UUID = row["id"]
    return found
