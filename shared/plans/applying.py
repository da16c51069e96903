"""Policies and plans made what a kinds file says: the difference looked at, then applied as it was shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

from shared.db.audit import Change, Signature, record
from shared.db.statement import statement
from shared.errors import Code, Refused
from shared.plans import namespaces, planning, policies
from shared.plans.difference import (
    Action,
    Declared,
    Difference,
    Drift,
    Present,
    Step,
    Subject,
    difference,
    plan_of,
    policy_of,
    present_of,
)
from shared.plans.planning import PlanChange
from shared.plans.policies import PolicyChange

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from pathlib import Path

    import psycopg

    from shared.db.connect import Database, Row

# Further back nobody looks for who set a value.
ENTRIES_MAX = 20


@dataclass(frozen=True)
class Asked:
    """How old and how often, as a file says it of one kind; None is what it leaves out."""

    after_days: int | None = None
    interval_seconds: int | None = None
    batch_size: int | None = None
    max_bytes: int | None = None
    scope: str | None = None
    enabled: bool = True


@dataclass(frozen=True)
class SetByHand:
    """Who set a value, when and why; None where the audit no longer has it."""

    actor: str
    occurred_at: datetime
    reason: str


def policy_and_plan(kind: str, asked: Asked) -> dict[Subject, dict[str, Any]]:
    """Return what a file asks of one kind: a policy where it says how old, a plan where it says how often."""
    found: dict[Subject, dict[str, Any]] = {}
    if asked.after_days is not None:
        found[policy_of(kind)] = {"after_days": asked.after_days, "enabled": True}
    if asked.interval_seconds is not None:
        found |= plan_as("archive", kind, asked)
    return found


def plan_as(operation: str, kind: str | None, asked: Asked) -> dict[Subject, dict[str, Any]]:
    """Return the plan a file asks for; what it leaves out is as in a new plan, so a file has one meaning."""
    values = {
        name: default if (said := getattr(asked, name)) is None else said
        for name, default in planning.DEFAULTS.items()
    }
    return {plan_of(operation, kind): values}


def reason_of(path: Path, sha256: str) -> str:
    """Return the reason of changes that nobody gave one for: the file, and the digest of its text."""
    return f"apply {path.name if path.name.isprintable() else 'kinds file'} (sha256 {sha256})"


def compare(control: Database, declared: Declared, namespace: str) -> Difference:
    """Return in what the policies and plans of a namespace are not what a file says; nothing is changed.

    Raises ``Refused`` when there is no such namespace.
    """
    owner = namespaces.find(control, namespace)
    rows = policies.listed(control, owner["id"]), planning.listed(control)
    return difference(declared.subjects, present_of(*rows, owner, declared.storage_id))


def apply(
    control: Database,
    declared: Declared,
    namespace: str,
    shown: Difference,
    signature: Signature,
) -> bool:
    """Make policies and plans what a file says, in one transaction; return whether anything was left to do.

    ``shown`` is the difference that was seen. Raises ``Refused`` (DIFFERENCE_STALE) when there is another
    one by now, and whatever changing a policy or a plan raises: then nothing was changed.
    """
    with control.transaction() as connection:
        owner = namespaces.lock(connection, namespace)
        present = _locked(connection, owner, declared.storage_id)
        now = difference(declared.subjects, present)
        if not now.steps:
            return False
        if _essence(now) != _essence(shown):
            raise Refused(Code.DIFFERENCE_STALE, namespace=namespace)
        # Policies first: a plan is bound to its policy as it then is.
        for step in sorted(now.steps, key=lambda step: not step.subject.is_policy):
            _take(connection, owner, step, present.get(step.subject), declared, signature)
    return True


def hands(control: Database, drift: Iterable[Drift]) -> dict[Drift, SetByHand | None]:
    """Return who last set each value that drifted, as far as the audit still knows."""
    drift = tuple(drift)
    subjects = [{"subject": _subject(each.subject), "subject_id": each.id} for each in drift]
    params = {"subjects": Jsonb(subjects), "entries_max": ENTRIES_MAX}
    rows = control.transact(statement("shared.plans", "set_by_hand"), params, repeatable=True)
    return {each: _hand(each, rows) for each in drift}


def _hand(drift: Drift, rows: Iterable[Row]) -> SetByHand | None:
    for row in rows:
        if (row["subject"], row["subject_id"]) != (_subject(drift.subject), drift.id):
            continue
        if (row["before"] or {}).get(drift.name) != row["after"][drift.name]:
            return SetByHand(row["actor"], row["occurred_at"], row["reason"])
    return None


def _subject(subject: Subject) -> str:
    return "policy" if subject.is_policy else "plan"


def _essence(found: Difference) -> tuple[object, ...]:
    """Return what must not change between looking and applying; jobs come and go by themselves."""
    return tuple((step.subject, step.action, step.values, step.rebinds) for step in found.steps)


def _locked(
    connection: psycopg.Connection[Row], owner: Row, storage_id: str | None
) -> dict[Subject, Present]:
    """Lock every plan that may be meant, and return what is there: nobody changes it before the commit."""
    params = {"namespace_id": owner["id"], "storage_id": storage_id, "kind": None}
    # Looked at in statements of their own, for what scheduling did while we waited for its locks.
    connection.execute(statement("shared.plans", "lock_plans"), params)
    found = connection.execute(statement("shared.plans", "policies"), params).fetchall()
    plans = connection.execute(statement("shared.plans", "plans"), {"namespace_id": None})
    return present_of(found, plans.fetchall(), owner, storage_id)


def _take(
    connection: psycopg.Connection[Row],
    owner: Row,
    step: Step,
    found: Present | None,
    declared: Declared,
    signature: Signature,
) -> None:
    """Make one change, and keep what it leaves of the values, so that whatever is set later shows."""
    subject = step.subject
    wanted = {value.name: value.after for value in step.values}
    row_id = found.id if found else ""
    if step.action is not Action.ADOPT and subject.is_policy:
        change = PolicyChange(subject.name, **wanted)
        policies.change(connection, owner, change, signature, "apply")
    elif step.action is not Action.ADOPT:
        storage_id = found.storage_id if found else declared.storage_id
        of_plan = PlanChange(str(subject.operation), subject.kind, storage_id, **wanted)
        row_id = planning.change(connection, owner, of_plan, signature, "apply")["id"]
    left = {**found.values, **wanted} if step.gone and found else declared.subjects.get(subject)
    if left is None:
        return
    name = "policy_applied" if subject.is_policy else "plan_applied"
    params = {"namespace_id": owner["id"], "kind": subject.kind, "plan_id": row_id}
    params["applied"] = Jsonb(dict(left))
    connection.execute(statement("shared.plans", name), params)
    if step.action is Action.ADOPT and found is not None:
        before, after = {"applied": found.applied}, {"applied": left}
        adopted = Change("apply", _subject(subject), found.id, owner["id"], before, after)
        record(connection, signature, adopted)
