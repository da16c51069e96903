"""What can be wrong, brought about for real, each with the code that names it and the way it is mended."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared.db.migrate import migrations
from tests.doctor.ward import Ward

Found = dict[str, Any]
Mend = Callable[[Ward, Found], None]
WAIT_SECONDS = 60.0


def command(ward: Ward, found: Found) -> None:
    """Run the printed command."""
    ward.run(found["command"])


def sql(ward: Ward, found: Found) -> None:
    """Run the printed SQL as somebody who may."""
    ward.sql(*found["sql"])


def command_and_ticks(ward: Ward, found: Found) -> None:
    """Run the printed command, and let the schedule do the rest."""
    command(ward, found)
    ward.do("tick", "--until-idle")


def loop(ward: Ward, found: Found) -> None:
    """Run the printed command, a loop, until the doctor is content with it; then end it in good order."""
    running = subprocess.Popen(
        ["bash", "-c", f"exec {found['command']}"],
        env=ward.environment(),
        stdout=subprocess.DEVNULL,
    )
    try:
        ends = time.monotonic() + WAIT_SECONDS
        while ward.findings():
            assert running.poll() is None
            assert time.monotonic() < ends
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(WAIT_SECONDS) == 0


@dataclass(frozen=True)
class Fault:
    """How to bring a fault about, what the doctor then says, in order, and how each of it is mended.

    ``says`` are codes, with their cause after a slash where they have one. What is not mended by its own
    command is a consequence of what stands before it.
    """

    inject: Callable[[Ward], None]
    says: tuple[str, ...]
    mend: tuple[Mend, ...] = (command,)


def wrong_mode(ward: Ward) -> None:
    ward.root.chmod(0o755)


def lost_volume(ward: Ward) -> None:
    """The volume is gone, and what was restored in its place is a copy."""
    lost = ward.root.with_name("lost")
    ward.root.rename(lost)
    shutil.copytree(lost, ward.root)
    ward.root.chmod(0o700)


def older_volume(ward: Ward) -> None:
    """Another copy of the volume went on by itself, and got a file that this one lacks."""
    ward.sql("UPDATE tallystick.volume SET last_file = '000099.sql.zst'")


def disabled_plan(ward: Ward) -> None:
    ward.do("plan", "set", "orders", "--disable")


def disabled_scan(ward: Ward) -> None:
    ward.do("plan", "set", "--operation", "scan", "--disable")


def disabled_policy(ward: Ward) -> None:
    ward.do("policy", "set", "orders", "--disable")


def disabled_namespace(ward: Ward) -> None:
    ward.do("namespaces", "disable", "default", "--reason", "a test needs it")


def stale_policy(ward: Ward) -> None:
    ward.do("policy", "set", "orders", "--after", "400d")


def stopped_schedule(ward: Ward) -> None:
    ward.sql("UPDATE tallystick.last_tick SET ticked_at = now() - interval '3 days'")


def schedule_never_begun(ward: Ward) -> None:
    ward.sql(
        "DELETE FROM tallystick.last_tick WHERE operation = 'scan'",
        "UPDATE tallystick.plan SET updated_at = now() - interval '3 days'",
    )


def overdue_plan(ward: Ward) -> None:
    ward.sql(
        "UPDATE tallystick.plan SET next_run_at = now() - interval '1 hour' WHERE kind = 'orders'"
    )


def missing_grants(ward: Ward) -> None:
    ward.sql(
        f"REVOKE UPDATE ON tallystick.unit FROM {ward.role}",
        f"REVOKE ALL ON tallystick.migration, tallystick.plan FROM {ward.role}",
        f"REVOKE USAGE ON SCHEMA tallystick FROM {ward.role}",
    )


def missing_grants_of_pruning(ward: Ward) -> None:
    ward.do("plan", "set", "--operation", "prune", "--enable")
    ward.sql("UPDATE tallystick.plan SET next_run_at = now() + interval '1 h'")


def missing_grants_of_the_source(ward: Ward) -> None:
    ward.sql(
        f"REVOKE SELECT ON app.line FROM {ward.role}",
        f"REVOKE USAGE ON SCHEMA app FROM {ward.role}",
    )


def hidden_activity(ward: Ward) -> None:
    ward.sql(f"REVOKE pg_read_all_stats FROM {ward.role}")


def row_security(ward: Ward) -> None:
    ward.sql("ALTER TABLE app.line ENABLE ROW LEVEL SECURITY")


def missing_index(ward: Ward) -> None:
    ward.sql("DROP INDEX app.orders_placed_at_id_idx")


def old_schema(ward: Ward) -> None:
    """Put a database of the first release in place of this one."""
    # Who migrates owns the schema.
    ward.setenv(DATABASE_URL=ward.owner_dsn)
    first = migrations()[0]
    ward.sql(
        "DROP SCHEMA tallystick CASCADE",
        "CREATE SCHEMA tallystick",
        "CREATE TABLE tallystick.migration (version integer PRIMARY KEY, name text NOT NULL,"
        " digest text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())",
        first.text,
        f"INSERT INTO tallystick.migration VALUES (1, '{first.name}', '{first.digest}')",
    )


def command_and_plans(ward: Ward, found: Found) -> None:
    """Run the printed command, and set up in the new schema what was set up in the old one."""
    command(ward, found)
    ward.set_up()


def drifted_ledger(ward: Ward) -> None:
    ward.sql(
        "UPDATE tallystick.ledger SET bytes = bytes + 1000 WHERE directory <> ''",
        "UPDATE tallystick.volume SET used_bytes = used_bytes + 1000",
    )


def drifted_ledger_without_a_scan(ward: Ward) -> None:
    drifted_ledger(ward)
    ward.sql(
        "UPDATE tallystick.job SET plan_id = NULL WHERE operation = 'scan'",
        "DELETE FROM tallystick.plan WHERE operation = 'scan'",
    )


def drifted_sum(ward: Ward) -> None:
    ward.sql("UPDATE tallystick.volume SET used_bytes = used_bytes - 7")


# Text that hardly compresses: a page of twenty such rows takes more than a MiB.
NOISY_ROWS = """
INSERT INTO app.orders (customer, placed_at)
SELECT noise, timestamptz '2021-01-01 00:00:00+00' + n * interval '1 hour'
FROM generate_series(1, 25) AS n
CROSS JOIN LATERAL (SELECT string_agg(md5(random()::text || n || m), '') AS noise
                    FROM generate_series(1, 4000) AS m) AS made
"""


def full_budget(ward: Ward) -> None:
    ward.setenv(ARCHIVE_MAX_BYTES=1024**2)
    ward.sql(NOISY_ROWS, "UPDATE tallystick.plan SET next_run_at = now() WHERE kind = 'orders'")
    ward.do("tick", "archive", code=3)


def budget_nearly_full(ward: Ward) -> None:
    ward.setenv(ARCHIVE_MAX_BYTES=1024**2)
    ward.sql("UPDATE tallystick.ledger SET bytes = 1000000 WHERE directory = ''")
    ward.sql("UPDATE tallystick.volume SET used_bytes = (SELECT sum(bytes) FROM tallystick.ledger)")


def failed_job(ward: Ward) -> None:
    ward.job_begun()
    ward.sql(f"REVOKE SELECT ON app.line FROM {ward.role}")
    ward.do("tick", "archive", code=3)
    ward.sql(f"GRANT SELECT ON app.line TO {ward.role}")


def hopeless_job(ward: Ward) -> None:
    ward.job_begun()
    ward.sql("ALTER TABLE app.line ADD COLUMN colour text")
    ward.do("tick", "archive", code=3)


def job_over_its_budget(ward: Ward) -> None:
    ward.do("plan", "set", "orders", "--max-bytes", "1MiB")
    ward.sql(NOISY_ROWS, "UPDATE tallystick.plan SET next_run_at = now() WHERE kind = 'orders'")
    ward.do("tick", "archive", code=3)


def paused_job(ward: Ward) -> None:
    ward.do("jobs", "pause", ward.job_begun(), "--reason", "a test needs it")


def stuck_job(ward: Ward) -> None:
    ward.job_begun()
    ward.sql("UPDATE tallystick.job SET due_at = now() - interval '1 hour' WHERE state = 'PENDING'")


def late_rows(ward: Ward) -> None:
    ward.sql(
        "INSERT INTO app.orders (customer, placed_at) VALUES ('late', '2019-01-01')",
        "UPDATE tallystick.plan SET next_run_at = now() WHERE kind = 'orders'",
    )
    ward.do("tick", "--until-idle")


def moved_rows(ward: Ward) -> None:
    ward.job_begun()
    # Behind the place that the job has reached, and still in its window.
    ward.sql(
        "UPDATE app.orders SET placed_at = '2021-01-01 01:30Z' WHERE placed_at = '2021-01-02 21:00Z'"
    )
    ward.do("tick", "--until-idle")


FAULTS = {
    "wrong mode": Fault(wrong_mode, ("STORAGE_UNAVAILABLE/mode",)),
    "lost volume": Fault(lost_volume, ("STORAGE_UNAVAILABLE/copied",)),
    "older volume": Fault(older_volume, ("STORAGE_UNAVAILABLE/last-missing",)),
    "disabled plan": Fault(disabled_plan, ("PLAN_DISABLED",)),
    "disabled scan": Fault(disabled_scan, ("PLAN_DISABLED/scan",)),
    "disabled policy": Fault(disabled_policy, ("POLICY_DISABLED",)),
    "disabled namespace": Fault(disabled_namespace, ("NAMESPACE_DISABLED",) * 2),
    "stale policy": Fault(stale_policy, ("PLAN_STALE",)),
    "stopped schedule": Fault(stopped_schedule, ("NO_TICK",) * 2, (loop,)),
    "schedule never begun": Fault(schedule_never_begun, ("NO_TICK/never",), (loop,)),
    "overdue plan": Fault(overdue_plan, ("PLAN_OVERDUE",)),
    "missing grants": Fault(missing_grants, ("GRANT_MISSING/control",), (sql,)),
    "missing grants of pruning": Fault(missing_grants_of_pruning, ("GRANT_MISSING/prune",), (sql,)),
    "missing grants of the source": Fault(
        missing_grants_of_the_source, ("GRANT_MISSING/source",), (sql,)
    ),
    "hidden activity": Fault(hidden_activity, ("ACTIVITY_HIDDEN",), (sql,)),
    "row security": Fault(row_security, ("ROW_SECURITY",), (sql,)),
    "missing index": Fault(missing_index, ("NO_INDEX_FOR_ORDER",), (sql,)),
    "old schema": Fault(old_schema, ("SCHEMA_OLDER",), (command_and_plans,)),
    "drifted ledger": Fault(drifted_ledger, ("LEDGER_DRIFT",)),
    "drifted ledger without a scan": Fault(
        drifted_ledger_without_a_scan, ("LEDGER_DRIFT/no-scan",)
    ),
    "drifted sum": Fault(drifted_sum, ("LEDGER_DRIFT/sum",), (sql,)),
    "full budget": Fault(
        full_budget,
        ("STORAGE_LIMIT/volume-budget", "JOB_FAILED"),
        (command, command_and_ticks),
    ),
    "budget nearly full": Fault(budget_nearly_full, ("VOLUME_NEARLY_FULL/budget",)),
    "failed job": Fault(failed_job, ("JOB_FAILED",), (command_and_ticks,)),
    "hopeless job": Fault(hopeless_job, ("JOB_FAILED/hopeless",)),
    "job over its budget": Fault(job_over_its_budget, ("JOB_FAILED/budget",), (command_and_ticks,)),
    "paused job": Fault(paused_job, ("JOB_PAUSED",), (command_and_ticks,)),
    "stuck job": Fault(stuck_job, ("JOB_STUCK",)),
    "rows moved in mid-job": Fault(moved_rows, ("WINDOW_COUNT/missing",), (command_and_ticks,)),
    "late rows": Fault(late_rows, ("LATE_ROWS",), (command_and_ticks,)),
}
