"""Namespaces: administrative domains that own policies, plans and jobs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.db.audit import Change, Signature, record
from shared.db.statement import statement
from shared.errors import Code, Refused

if TYPE_CHECKING:
    import psycopg

    from shared.db.connect import Database, Row

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def _sql(name: str) -> str:
    return statement("shared.plans", name)


def listed(control: Database) -> list[Row]:
    """Return all namespaces by name."""
    return control.transact(_sql("namespaces"), {"name": None}, repeatable=True)


def find(control: Database, name: str | None) -> Row:
    """Return the namespace of that name, or the only one when no name is given.

    Raises ``Refused`` when there is none of that name, or several and no name was given.
    """
    rows = control.transact(_sql("namespaces"), {"name": name}, repeatable=True)
    if len(rows) == 1:
        return rows[0]
    if name is None:
        raise Refused(Code.NAMESPACE_AMBIGUOUS, names=[row["name"] for row in rows])
    raise Refused(Code.NAMESPACE_UNKNOWN, name=name)


def lock(connection: psycopg.Connection[Row], name: str) -> Row:
    """Lock a namespace until the transaction ends, so that changes within it take turns."""
    row = connection.execute(_sql("lock_namespace"), {"name": name}).fetchone()
    if row is None:
        raise Refused(Code.NAMESPACE_UNKNOWN, name=name)
    return row


def create(control: Database, name: str, signature: Signature) -> Row:
    """Create an enabled namespace; raises ``Refused`` for a name that is taken or malformed."""
    if not NAME.fullmatch(name):
        raise Refused(Code.NAME_INVALID, name=name, pattern=NAME.pattern)
    with control.transaction() as connection:
        row = connection.execute(_sql("create_namespace"), {"name": name}).fetchone()
        if row is None:
            raise Refused(Code.NAMESPACE_EXISTS, name=name)
        change = Change("create", "namespace", str(row["id"]), row["id"], None, row)
        record(connection, signature, change)
    return row


def switch(control: Database, name: str, signature: Signature, *, enabled: bool) -> Row:
    """Enable or disable a namespace; its jobs export nothing while it is disabled."""
    with control.transaction() as connection:
        before = lock(connection, name)
        seen(before, signature)
        params = {"namespace_id": before["id"], "enabled": enabled}
        after = connection.execute(_sql("switch_namespace"), params).fetchone()
        action = "enable" if enabled else "disable"
        change = Change(action, "namespace", str(before["id"]), before["id"], before, after)
        record(connection, signature, change)
    assert after is not None  # noqa: S101 - the row is locked, so the update found it
    return after


def seen(row: Row | None, signature: Signature) -> None:
    """Raise ``Refused`` when the signature names another revision than the row has (0: no row yet)."""
    current = row["revision"] if row else 0
    if signature.revision is not None and signature.revision != current:
        raise Refused(Code.REVISION_STALE, seen=signature.revision, current=current)
