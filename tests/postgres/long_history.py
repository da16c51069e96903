"""Our own tables after years: many closed jobs with all that belongs to them, and a few open ones."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from shared.db.connect import connect
from tests import worlds
from tests.worlds import one, rows

# Kinds whose plans have an open job in some state; the plan of `idle` has none and is due.
STATES = {"failed": "FAILED", "paused": "PAUSED", "running": "RUNNING", "pending": "PENDING"}
KINDS = (*STATES, "idle")
OWNER = UUID("00000000-0000-4000-8000-000000000001")

# Nothing but the filling would wait for them: a reference is looked up for every row.
WITHOUT_REFERENCES = """
DO $$ DECLARE reference record; BEGIN
    FOR reference IN SELECT conrelid::regclass AS place, conname FROM pg_constraint
                     WHERE conrelid IN ('tallystick.job'::regclass, 'tallystick.unit'::regclass)
                       AND contype = 'f' LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', reference.place, reference.conname);
    END LOOP;
END $$"""
# One job in ten is a scan; of the archives one in twenty was abandoned before it wrote anything, and one in a
# hundred holds rows of our own tables. A second apart, the newest last.
CLOSED = """
INSERT INTO tallystick.job (operation, namespace_id, kind, plan_id, storage_id, batch_size, page_size,
                            max_bytes, input, opening, checkpoint, state, attempts, batches, roots, bytes,
                            last_sha256, due_at, created_at, updated_at, closed_at)
SELECT plan.operation, plan.namespace_id, plan.kind, plan.id, plan.storage_id, 10, 10, 1048576,
       jsonb_build_object('definition', jsonb_build_object(
           'source', CASE WHEN n %% 100 = 1 THEN 'control' ELSE 'source' END, 'root', 'tallystick.job')),
       '{"late_rows": 0}', '{"cursor": ["2020-01-01", "1"]}',
       CASE WHEN n %% 20 = 7 THEN 'ABANDONED' ELSE 'SUCCEEDED' END,
       1, (n %% 20 <> 7)::integer, 10, 1000,
       CASE WHEN n %% 20 <> 7 AND plan.operation = 'archive' THEN repeat(md5(n::text), 2) END,
       made.at, made.at, made.at, made.at
FROM generate_series(1, %(closed)s) AS n,
     LATERAL (SELECT now() - interval '1 hour' - make_interval(secs => %(closed)s - n) AS at) AS made,
     LATERAL (SELECT CASE WHEN n %% 10 = 3 THEN 6 ELSE 1 + n / 10 %% 5 END AS place) AS chosen
JOIN (SELECT *, row_number() OVER (ORDER BY operation, kind) AS place
      FROM tallystick.plan WHERE operation IN ('archive', 'scan')) AS plan USING (place)"""
UNITS = """
INSERT INTO tallystick.unit (job_id, seq, generation, owner, sha256, bytes, roots, evidence, settled_at)
SELECT id, 1, 1, gen_random_uuid(), last_sha256, bytes, roots, '{}', closed_at
FROM tallystick.job WHERE batches = 1 AND closed_at IS NOT NULL"""
DIRECTORIES = """
INSERT INTO tallystick.ledger (storage_id, directory, bytes)
SELECT storage_id, namespace_id || '-' || id, bytes
FROM tallystick.job WHERE operation = 'archive' AND last_sha256 IS NOT NULL"""
EVENTS = """
INSERT INTO tallystick.recovery_event (occurred_at, type, severity, source, done, namespace_id, job_id,
                                       operation, checkpoint, attempt, reason_code)
SELECT closed_at, 'job-reclaimed-after-restart', CASE WHEN batches = 0 THEN 'error' ELSE 'warning' END,
       'tick', true, namespace_id, id, operation, checkpoint, 1, 'SOURCE_UNAVAILABLE'
FROM tallystick.job WHERE closed_at IS NOT NULL"""
REFUSALS = """
INSERT INTO tallystick.security_event (occurred_at, type)
SELECT closed_at, 'refused' FROM tallystick.job WHERE closed_at IS NOT NULL"""
AUDIT = """
INSERT INTO tallystick.audit_entry (occurred_at, namespace_id, actor, action, subject, subject_id, reason)
SELECT closed_at, namespace_id, 'tester', 'retry', 'job', id::text, 'a test needs it'
FROM tallystick.job WHERE closed_at IS NOT NULL"""
OPEN = """
INSERT INTO tallystick.job (operation, namespace_id, kind, plan_id, storage_id, batch_size, page_size,
                            max_bytes, input, checkpoint, state, owner, generation, due_at, lease_until,
                            batches, last_sha256, error_code, error_params)
SELECT 'archive', plan.namespace_id, plan.kind, plan.id, plan.storage_id, 10, 10, 1048576,
       '{"definition": {"source": "source"}}', '{"cursor": ["2020-01-01", "1"]}', %(state)s,
       CASE WHEN %(state)s = 'RUNNING' THEN %(owner)s END, 1,
       now() + CASE WHEN %(state)s = 'RUNNING' THEN interval '1 hour' ELSE interval '-1 hour' END,
       CASE WHEN %(state)s = 'RUNNING' THEN now() + interval '1 hour' END, 1, repeat('a', 64),
       CASE WHEN %(state)s IN ('FAILED', 'PAUSED') THEN 'STORAGE_UNAVAILABLE' END, '{}'
FROM tallystick.plan WHERE plan.kind = %(kind)s"""


@dataclass(frozen=True)
class History:
    """A filled database, and what its statements may be asked about."""

    dsn: str
    storage_id: str
    namespace_id: UUID
    other_namespace_id: UUID
    running: UUID
    failed: UUID
    closed: UUID
    plan_id: UUID
    scan_plan: UUID
    event: UUID


def filled(dsn: str, closed: int, root: Path | None = None) -> History:
    """Fill a migrated database with so many closed jobs, and one open job of each state.

    Their volume is made at ``root``, if there is one; there are no files on it.
    """
    with closing(worlds.control(dsn, seconds=3600)) as control:
        storage_id = worlds.a_volume(control, root) if root else worlds.a_storage_id(control)
        for kind in KINDS:
            worlds.a_plan(control, kind, storage_id)
        worlds.a_plan(control, None, storage_id)
        worlds.a_plan(control, None, storage_id, operation="prune")
    with connect(dsn) as connection:
        connection.execute("SET statement_timeout = 0")
        connection.execute(WITHOUT_REFERENCES.encode())
        connection.execute("INSERT INTO tallystick.namespace (name) VALUES ('empty')")
        connection.execute(CLOSED.encode(), {"closed": closed})
        for fill in (UNITS, DIRECTORIES, EVENTS, REFUSALS, AUDIT):
            connection.execute(fill.encode())
        for kind, state in STATES.items():
            connection.execute(OPEN.encode(), {"kind": kind, "state": state, "owner": OWNER})
        connection.execute(
            "UPDATE tallystick.plan SET next_run_at = now() - interval '1 day' WHERE enabled"
        )
        connection.execute("VACUUM ANALYZE")
    return _about(dsn, storage_id)


def _about(dsn: str, storage_id: str) -> History:
    def asked(query: str) -> Any:  # noqa: ANN401 - whatever was asked for
        return one(dsn, query)

    still_open = "SELECT kind, id FROM tallystick.job WHERE closed_at IS NULL"
    jobs = {row["kind"]: row["id"] for row in rows(dsn, still_open)}
    middle = "LIMIT 1 OFFSET (SELECT count(*) / 2 FROM tallystick.job)"
    return History(
        dsn=dsn,
        storage_id=storage_id,
        namespace_id=asked("SELECT id FROM tallystick.namespace WHERE name = 'default'"),
        other_namespace_id=asked("SELECT id FROM tallystick.namespace WHERE name = 'empty'"),
        running=jobs["running"],
        failed=jobs["failed"],
        closed=asked(f"SELECT id FROM tallystick.job ORDER BY created_at {middle}"),
        plan_id=asked("SELECT id FROM tallystick.plan WHERE kind = 'idle'"),
        scan_plan=asked("SELECT id FROM tallystick.plan WHERE operation = 'scan'"),
        event=asked(f"SELECT id FROM tallystick.recovery_event ORDER BY occurred_at {middle}"),
    )
