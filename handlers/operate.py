"""An invocation by hand: retry, abandon, pause or resume a job, or tick now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handlers import shape
from handlers.asking import TICK, asked
from handlers.invocation import control_database, in_words, tick_by_hand
from shared.db.audit import Signature
from shared.jobs import reading, steer
from shared.jobs.rules import Action
from shared.operations import registry

if TYPE_CHECKING:
    from handlers.invocation import Context


@in_words
def handler(event: object, context: Context) -> dict[str, Any]:
    """Carry out the event's ``action``: on ``job`` with ``reason``, or a tick of ``operation`` or any.

    ``actor``, ``revision`` and ``max_bytes`` (of a retry) may be left out. Returns the job after it, or
    the report of the tick with ``only_stuck``: whether it did nothing because all that is open is paused or
    failed. Raises ``Refused`` for what cannot be done.
    """
    wanted = asked(event)
    if wanted.action == TICK:
        registry.require(wanted.operation)
        return tick_by_hand(wanted.operation, context)
    signature = Signature(wanted.actor, wanted.reason, wanted.revision)
    with control_database() as control:
        job_id = reading.find(control, wanted.job)
        action, max_bytes = Action(wanted.action), wanted.max_bytes
        return shape.job(steer.act(control, job_id, action, signature, max_bytes=max_bytes))
