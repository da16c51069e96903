"""Operators' actions on jobs: retry, abandon, pause, resume, each signed and audited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.db.audit import Change, Signature, record
from shared.db.statement import statement
from shared.errors import Code, Refused
from shared.jobs import rules
from shared.jobs.model import Job

if TYPE_CHECKING:
    from uuid import UUID

    from shared.db.connect import Database


def act(
    control: Database,
    job_id: UUID,
    action: rules.Action,
    signature: Signature,
    *,
    max_bytes: int | None = None,
) -> Job:
    """Carry out an action and return the job after it.

    ``max_bytes`` may raise the byte budget of a retried job. Raises ``Refused`` when there is no such
    job, its state does not allow the action, or the operator saw another revision.
    """
    with control.transaction() as connection:
        row = connection.execute(
            statement("shared.jobs", "get_job_locked"), {"job_id": job_id}
        ).fetchone()
        if row is None:
            raise Refused(Code.JOB_UNKNOWN, job=str(job_id))
        job = Job.from_row(row)
        state = rules.act(job, action, revision=signature.revision, max_bytes=max_bytes)
        params = {"job_id": job_id, "new_state": str(state), "max_bytes": max_bytes}
        after = connection.execute(statement("shared.jobs", "act"), params).fetchone()
        change = Change(str(action), "job", str(job_id), job.namespace_id, row, after)
        record(connection, signature, change)
    assert after is not None  # noqa: S101 - the row is locked, so the update found it
    return Job.from_row(after)
