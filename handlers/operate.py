"""An invocation by hand: retry, abandon, pause or resume a job, or tick now."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from handlers import shape
from handlers.invocation import node, one_tick
from shared.clock import Deadline
from shared.db.audit import Signature
from shared.db.connect import Database
from shared.errors import Code, Refused
from shared.jobs import reading, steer
from shared.jobs.rules import Action

if TYPE_CHECKING:
    from handlers.invocation import Context

ACTIONS = ("tick", *Action)


def handler(event: dict[str, Any], context: Context) -> dict[str, Any]:
    """Carry out ``event["action"]``: on ``job`` with ``reason``, or a tick of ``operation`` or any.

    ``actor``, ``revision`` and ``max_bytes`` (of a retry) may be left out. Returns the job after it, or
    the report of the tick; raises ``Refused`` for what cannot be done.
    """
    action = str(event.get("action", ""))
    if action not in ACTIONS:
        raise Refused(
            Code.ACTION_NOT_ALLOWED, action=action, cause="unknown", allowed=sorted(ACTIONS)
        )
    if action == "tick":
        return one_tick(event.get("operation"), context)
    revision = event.get("revision")
    signature = Signature(
        str(event.get("actor", "operate")),
        str(event.get("reason", "")),
        int(revision) if revision is not None else None,
    )
    here = node()
    deadline = Deadline.after(here.deadline_seconds)
    with closing(Database(here.control_dsn, deadline, here.database_retries)) as control:
        job_id = reading.find(control, str(event.get("job", "")))
        job = steer.act(
            control, job_id, Action(action), signature, max_bytes=event.get("max_bytes")
        )
    return shape.job(job)
