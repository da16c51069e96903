"""An invocation by hand: retry, abandon, pause or resume a job, or tick now."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from handlers import shape
from handlers.asking import TICK, asked
from handlers.invocation import in_words, node, one_tick
from shared.clock import Deadline
from shared.db.audit import Signature
from shared.db.connect import Database
from shared.jobs import reading, steer
from shared.jobs.rules import Action
from shared.operations import registry

if TYPE_CHECKING:
    from handlers.invocation import Context


@in_words
def handler(event: object, context: Context) -> dict[str, Any]:
    """Carry out the event's ``action``: on ``job`` with ``reason``, or a tick of ``operation`` or any.

    ``actor``, ``revision`` and ``max_bytes`` (of a retry) may be left out. Returns the job after it, or
    the report of the tick; raises ``Refused`` for what cannot be done.
    """
    wanted = asked(event)
    if wanted.action == TICK:
        registry.require(wanted.operation)
        return one_tick(wanted.operation, context)
    signature = Signature(wanted.actor, wanted.reason, wanted.revision)
    here = node()
    deadline = Deadline.after(here.deadline_seconds)
    with closing(Database(here.control_dsn, deadline, here.database_retries)) as control:
        job_id = reading.find(control, wanted.job)
        action, max_bytes = Action(wanted.action), wanted.max_bytes
        return shape.job(steer.act(control, job_id, action, signature, max_bytes=max_bytes))
