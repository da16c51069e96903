"""A deployment with a past of its own: archived, and then pruned, on a stage of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from shared.archive import kinds as kinds_file
from shared.archive.kinds import builtin
from shared.jobs.model import Job, State
from tests.operations.stage import Stage, execute, jobs, plan, plans_due, stage, units
from tests.worlds import known, one, rows

NOTES = '[kinds.notes]\nroot = "public.note"\ntime = "at"\n'
DDL = (
    "CREATE TABLE note (id integer PRIMARY KEY, at date)",
    "INSERT INTO note SELECT i, '2020-01-01'::date + i FROM generate_series(1, 5) AS i",
)
RECEIPT = """
INSERT INTO tallystick.receipt (namespace_id, path, key, body_sha256, answer, created_at)
SELECT id, '/jobs', %s, repeat('a', 64), '{"of": "any \\\\ kind\\t"}', clock_timestamp() - interval '100 days'
FROM tallystick.namespace WHERE name = 'default'
"""
PRUNED = "operation = 'prune'"


def deployed(database: str, root: Path) -> Stage:
    """A node that knows an application's kind and the built-in ones."""
    here = stage(database, root, NOTES, *DDL)
    application = kinds_file.parse(NOTES, "kinds.toml", "application")
    return here.changed(kinds=known((*application, *builtin())))


def receipts(here: Stage, *keys: str) -> None:
    for key in keys:
        rows(here.control, RECEIPT, key)


def keys(here: Stage) -> list[str]:
    return [
        row["key"] for row in rows(here.control, "SELECT key FROM tallystick.receipt ORDER BY key")
    ]


def archive(here: Stage, kind: str, **changes: Any) -> Job:  # noqa: ANN401 - the members of PlanChange
    """Archive all there is of a kind, once, and return the job."""
    return _ran(here, lambda: plan(here, kind, days=0, **changes))


def scan(here: Stage) -> Job:
    return _ran(here, lambda: plan(here, None))


def prune(here: Stage, **changes: Any) -> Job:  # noqa: ANN401 - the members of PlanChange
    """Prune once, to the end, and return the job."""
    return _ran(here, lambda: plan(here, None, operation="prune", **changes))


def begin(here: Stage, **changes: Any) -> None:  # noqa: ANN401 - the members of PlanChange
    """Have a prune be due, and nothing else."""
    plan(here, None, operation="prune", **changes)
    execute(here.control, f"UPDATE tallystick.plan SET enabled = ({PRUNED})")
    plans_due(here)


def _ran(here: Stage, planned: Callable[[], None]) -> Job:
    before = {job.id for job in jobs(here)}
    execute(here.control, "UPDATE tallystick.plan SET enabled = false")
    planned()
    execute(
        here.control,
        "UPDATE tallystick.plan SET next_run_at = clock_timestamp() WHERE enabled",
    )
    here.until_idle()
    (job,) = [job for job in jobs(here) if job.id not in before]
    assert job.state is State.SUCCEEDED, job
    return job


def evidence(here: Stage, job: Job) -> list[dict[str, Any]]:
    return [unit["evidence"] for unit in units(here, job)]


def kept(here: Stage, job: Job) -> dict[str, dict[str, int]]:
    """Return what stayed, by table and reason, over all files of a job."""
    found: dict[str, dict[str, int]] = {}
    for each in evidence(here, job):
        for table, reasons in each["kept"].items():
            for reason, count in reasons.items():
                of_table = found.setdefault(table.removeprefix("tallystick."), {})
                of_table[reason] = of_table.get(reason, 0) + count
    return found


def is_there(here: Stage, job: Job) -> bool:
    return bool(one(here.control, "SELECT true FROM tallystick.job WHERE id = %s", job.id))
