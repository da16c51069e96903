"""Tallystick's own history: the built-in kinds archive it like anybody's rows."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.worlds import a_plan, a_volume, control, node, rows, until_idle

EVENT = (
    "INSERT INTO tallystick.recovery_event (type, severity, source, done, namespace_id)"
    " SELECT 'page-halved', 'info', 'tick', true, id FROM tallystick.namespace"
)
SETTLED = (
    "SELECT job.kind, job.state, job.roots, unit.evidence -> 'rows' AS rows"
    " FROM tallystick.job JOIN tallystick.unit ON unit.job_id = job.id"
)


def test_closed_jobs_events_and_audit_archive_themselves(database: str, volume_root: Path) -> None:
    with closing(control(database)) as db:
        storage_id = a_volume(db, volume_root)
        here = node(database, volume_root, storage_id)
        a_plan(db, "audit", storage_id)
        until_idle(here)
        rows(database, EVENT)
        for kind in ("tasks", "events", "idempotency"):
            a_plan(db, kind, storage_id)
        until_idle(here)
    settled = {row["kind"]: row for row in rows(database, SETTLED)}
    assert {row["state"] for row in settled.values()} == {"SUCCEEDED"}
    # The policy and the plan of the audit itself were its first entries; its job was the first task.
    assert settled["audit"]["rows"] == {"tallystick.audit_entry": 2}
    assert settled["tasks"]["rows"] == {"tallystick.job": 1, "tallystick.unit": 1}
    assert settled["events"]["rows"] == {"tallystick.recovery_event": 1}
    assert settled["idempotency"]["rows"] == {"tallystick.receipt": 0}
