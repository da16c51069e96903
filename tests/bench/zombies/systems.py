"""The systems that are tried, and what each one's tables say of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PROCRASTINATE = """
    SELECT status::text AS state,
           (SELECT string_agg(type::text, ' ' ORDER BY id) FROM procrastinate_events
            WHERE job_id = job.id) AS history
    FROM procrastinate_jobs AS job WHERE id = %s::bigint
"""
PGQUEUER = """
    SELECT coalesce((SELECT status::text FROM pgqueuer WHERE id = log.job_id),
                    (array_agg(status::text ORDER BY id DESC))[1]) AS state,
           string_agg(status::text, ' ' ORDER BY id) AS history
    FROM pgqueuer_log AS log WHERE job_id = %s::bigint GROUP BY job_id
"""
DBOS = """
    SELECT status AS state, 'taken ' || recovery_attempts || ', completed ' || coalesce(completed_at, 0)
           AS history
    FROM dbos.workflow_status WHERE workflow_uuid = %s
"""
TALLYSTICK = """
    SELECT state, 'attempts ' || attempts || ', generation ' || generation || ', units '
           || (SELECT count(*) FROM tallystick.unit WHERE job_id = job.id) AS history
    FROM tallystick.job WHERE id = %s::uuid
"""
# States in which a worker has the job, or will take it.
OPEN = {"todo", "doing", "queued", "picked", "ENQUEUED", "PENDING", "RUNNING", "PAUSED"}


@dataclass(frozen=True)
class Tried:
    """A system: the module that drives it, how to ask for a job's state, and its environment."""

    name: str
    module: str
    query: str
    ours: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


def _dbos(name: str, workflow: str) -> Tried:
    return Tried(name, "with_dbos", DBOS, settings={"BENCH_WORKFLOW": workflow})


SYSTEMS = (
    Tried("tallystick", "with_tallystick", TALLYSTICK, ours=True),
    Tried(
        "tallystick-unwatched",
        "with_tallystick",
        TALLYSTICK,
        ours=True,
        settings={"BENCH_UNWATCHED": "yes"},
    ),
    Tried("procrastinate", "with_procrastinate", PROCRASTINATE),
    Tried(
        "procrastinate-plain", "with_procrastinate", PROCRASTINATE, settings={"BENCH_PLAIN": "yes"}
    ),
    Tried("pgqueuer", "with_pgqueuer", PGQUEUER),
    _dbos("dbos-step", "step"),
    _dbos("dbos-steps", "steps"),
    _dbos("dbos-transaction", "transaction"),
)
