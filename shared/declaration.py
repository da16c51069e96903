"""What a kinds file asks of policies and plans: chosen, held against the node's own, and read."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from shared.archive import kinds as kinds_file
from shared.archive import survey
from shared.archive.retention import Retention
from shared.archive.source import SourceConnection
from shared.errors import Code, Refused
from shared.plans.applying import Asked, plan_as, policy_and_plan
from shared.plans.difference import Declared

if TYPE_CHECKING:
    from pathlib import Path

    from shared.archive.kinds import KindsFile
    from shared.archive.retention import Timed
    from shared.db.connect import Dsn
    from shared.plans.difference import Subject


def chosen(named: Path | None, own: Path | None) -> KindsFile:
    """Return the file that policies and plans shall be made of: the one named, else the node's own.

    Raises ``Refused``: KINDS_FILE_MISSING without either; KINDS_DIFFER where the node's own does not have a
    kind of the named one, or defines it otherwise, for ticks go by the node's; KINDS_INVALID.
    """
    path = named or own
    if path is None:
        raise Refused(Code.KINDS_FILE_MISSING)
    found = kinds_file.read(path)
    if own is not None:
        node = kinds_file.load(own)
        problems = [
            {
                "kind": each.name,
                "problem": "defined_differently" if each.name in node else "not_there",
            }
            for each in kinds_file.differing(found.kinds, node)
        ]
        if problems:
            raise Refused(Code.KINDS_DIFFER, file=str(path), node=str(own), problems=problems)
    return found


def declared(file: KindsFile, namespace: str, control: Dsn, storage_id: str | None) -> Declared:
    """Return what a kinds file asks of a namespace, on the volume of the node that asks.

    Raises ``Refused`` for a built-in kind that has a table in the file and none in the database yet.
    """
    asked = {
        each.name: each.kind for each in file.kinds if each.only_namespace in (None, namespace)
    } | _history(control, file)
    subjects: dict[Subject, dict[str, Any]] = {}
    for name, retention in asked.items():
        subjects |= policy_and_plan(name, _asked(retention))
    if file.scan is not None:
        subjects |= plan_as("scan", None, _asked(file.scan))
    if file.prune is not None:
        subjects |= plan_as("prune", None, _asked(file.prune))
    return Declared(subjects, storage_id)


def _history(control: Dsn, file: KindsFile) -> dict[str, Retention]:
    """Return what is said of the built-in kinds whose tables are there."""
    if not file.history_of:
        return {}
    ours = kinds_file.builtin()
    with closing(SourceConnection(control)) as connection:
        there = survey.roots_there(connection.open(), ours)
    for kind in ours:
        if kind.name in file.named and not there[kind.name]:
            raise Refused(Code.KIND_TABLE_MISSING, kind=kind.name, table=kind.kind.root)
    return {name: each for name, each in file.history_of.items() if there[name]}


def _asked(said: Timed) -> Asked:
    of_kind = said if isinstance(said, Retention) else None
    return Asked(
        after_days=of_kind.after_days if of_kind else None,
        interval_seconds=said.interval_seconds,
        batch_size=said.batch,
        max_bytes=said.budget,
        scope=of_kind.scope if of_kind else None,
        enabled=said.enabled,
    )
