"""Plans: how often and how a kind is archived, a volume scanned, or history pruned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.db.audit import Change, Signature, record
from shared.db.statement import statement
from shared.errors import Code, Refused
from shared.jobs import rules
from shared.plans import namespaces, policies

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

    from shared.db.connect import Database, Row

DEFAULTS = {
    "enabled": False,
    "scope": "new",
    "interval_seconds": 24 * 3600,
    "batch_size": 1000,
    "max_bytes": 1024 * rules.MEBIBYTE,
}


@dataclass(frozen=True)
class PlanChange:
    """What a plan shall be; None leaves a value as it is or takes the default.

    ``kind`` is None for a scan, which has one plan per volume, and for a prune, which has one per
    namespace. ``storage_id`` is the volume of the node that asks; an existing plan keeps its own when None.
    """

    operation: str
    kind: str | None
    storage_id: str | None
    enabled: bool | None = None
    scope: str | None = None
    interval_seconds: int | None = None
    batch_size: int | None = None
    max_bytes: int | None = None


def listed(control: Database, namespace_id: UUID | None = None) -> list[Row]:
    """Return plans with their open job, and the present revision of their policy."""
    params = {"namespace_id": namespace_id}
    return control.transact(statement("shared.plans", "plans"), params, repeatable=True)


def put(control: Database, namespace: str, wanted: PlanChange, signature: Signature) -> Row:
    """Create or change a plan and bind it to its policy's present revision.

    Enabling needs a volume and, for an archive, an enabled policy; disabling needs neither and only
    stops new jobs. Raises ``Refused`` for a stale revision, a value out of range, a missing policy or
    volume, or another volume while a job is open.
    """
    with control.transaction() as connection:
        owner = namespaces.lock(connection, namespace)
        return change(connection, owner, wanted, signature)


def change(
    connection: psycopg.Connection[Row],
    owner: Row,
    wanted: PlanChange,
    signature: Signature,
    action: str = "set",
) -> Row:
    """Do what ``put`` does within a transaction that has locked the namespace ``owner``."""
    before = locked(connection, owner["id"], wanted)
    namespaces.seen(before, signature)
    params = _values(before, wanted)
    _require_volume(connection, params["storage_id"])
    params |= {"namespace_id": owner["id"], "reason": signature.reason}
    params |= {"policy_revision": _policy_revision(connection, owner["id"], wanted, params)}
    name = "update_plan" if before else "insert_plan"
    if before:
        params["plan_id"] = before["id"]
    after = connection.execute(statement("shared.plans", name), params).fetchone()
    assert after is not None  # noqa: S101 - the row is locked or new
    record(
        connection, signature, Change(action, "plan", str(after["id"]), owner["id"], before, after)
    )
    return after


def locked(
    connection: psycopg.Connection[Row], namespace_id: UUID, wanted: PlanChange
) -> Row | None:
    """Lock the plan that is meant, and return it with whether it has an open job; None for none."""
    params = {
        "operation": wanted.operation,
        "namespace_id": namespace_id,
        "kind": wanted.kind,
        "storage_id": wanted.storage_id,
    }
    # Locked first and looked at in a statement of its own: one that waited for scheduling to let go of
    # the plan would not see the job that scheduling has made.
    connection.execute(statement("shared.plans", "lock_plan"), params)
    return connection.execute(statement("shared.plans", "find_plan"), params).fetchone()


def _values(before: Row | None, wanted: PlanChange) -> dict[str, object]:
    values: dict[str, object] = {"operation": wanted.operation, "kind": wanted.kind}
    for name, default in DEFAULTS.items():
        asked = getattr(wanted, name)
        values[name] = asked if asked is not None else (before or DEFAULTS).get(name, default)
    rules.within(
        int(str(values["interval_seconds"])),
        rules.INTERVAL_MIN_SECONDS,
        rules.INTERVAL_MAX_SECONDS,
        "interval_seconds",
    )
    rules.within(int(str(values["batch_size"])), 1, rules.BATCH_MAX, "batch_size")
    rules.within(int(str(values["max_bytes"])), rules.BUDGET_MIN, rules.BUDGET_MAX, "max_bytes")
    values["storage_id"] = wanted.storage_id or (before["storage_id"] if before else None)
    if values["storage_id"] is None:
        raise Refused(Code.VOLUME_NOT_CONFIGURED)
    if before and before["has_open_job"] and before["storage_id"] != values["storage_id"]:
        raise Refused(Code.JOB_OPEN, storage_id=before["storage_id"], asked=values["storage_id"])
    return values


def _require_volume(connection: psycopg.Connection[Row], storage_id: object) -> None:
    known = connection.execute(
        statement("shared.plans", "known_volume"), {"storage_id": storage_id}
    ).fetchone()
    if known is None:
        raise Refused(Code.VOLUME_UNKNOWN, storage_id=storage_id)


def _policy_revision(
    connection: psycopg.Connection[Row],
    namespace_id: UUID,
    wanted: PlanChange,
    values: dict[str, object],
) -> int | None:
    if wanted.kind is None:
        return None
    policy = policies.current(connection, namespace_id, wanted.kind)
    if policy is None:
        raise Refused(Code.POLICY_MISSING, kind=wanted.kind)
    if values["enabled"] and not policy["enabled"]:
        raise Refused(Code.POLICY_DISABLED, kind=wanted.kind)
    revision: int = policy["revision"]
    return revision
