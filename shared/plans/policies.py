"""Retention policies: how old rows of a kind must be before they are archived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.db.audit import Change, Signature, record
from shared.db.statement import statement
from shared.jobs import rules
from shared.plans import namespaces

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

    from shared.db.connect import Database, Row

DEFAULTS: dict[str, Any] = {"after_days": 365, "enabled": True}


@dataclass(frozen=True)
class PolicyChange:
    """What a policy shall be; None leaves a value as it is (a new policy is enabled)."""

    kind: str
    after_days: int | None = None
    enabled: bool | None = None


def listed(control: Database, namespace_id: UUID | None = None) -> list[Row]:
    """Return the policies of one namespace, or of all."""
    params = {"namespace_id": namespace_id, "kind": None}
    return control.transact(statement("shared.plans", "policies"), params, repeatable=True)


def current(connection: psycopg.Connection[Row], namespace_id: UUID, kind: str) -> Row | None:
    """Return a policy within a transaction, or None."""
    params = {"namespace_id": namespace_id, "kind": kind}
    return connection.execute(statement("shared.plans", "policies"), params).fetchone()


def put(control: Database, namespace: str, wanted: PolicyChange, signature: Signature) -> Row:
    """Create or change a policy, moving its revision; plans bound to the old one stop making jobs.

    Raises ``Refused`` for a stale revision or a value out of range.
    """
    with control.transaction() as connection:
        owner = namespaces.lock(connection, namespace)
        return change(connection, owner, wanted, signature)


def change(
    connection: psycopg.Connection[Row],
    owner: Row,
    wanted: PolicyChange,
    signature: Signature,
    action: str = "set",
) -> Row:
    """Do what ``put`` does within a transaction that has locked the namespace ``owner``."""
    before = current(connection, owner["id"], wanted.kind)
    namespaces.seen(before, signature)
    kept = before or DEFAULTS
    days = kept["after_days"] if wanted.after_days is None else wanted.after_days
    enabled = kept["enabled"] if wanted.enabled is None else wanted.enabled
    params = {
        "namespace_id": owner["id"],
        "kind": wanted.kind,
        "after_days": rules.within(days, 0, rules.AFTER_MAX_DAYS, "after_days"),
        "enabled": enabled,
    }
    after = connection.execute(statement("shared.plans", "set_policy"), params).fetchone()
    subject = f"{owner['name']}/{wanted.kind}"
    record(connection, signature, Change(action, "policy", subject, owner["id"], before, after))
    assert after is not None  # noqa: S101 - an upsert returns its row
    return after
