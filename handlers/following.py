"""Ticks in a row on the platform: one that leaves work asks for the next, a few times."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from shared.errors import Code, Passing, Refused
from shared.loop import wants_more

if TYPE_CHECKING:
    from handlers.invocation import Context
    from shared.tick import Report

log = logging.getLogger("tallystick.following")

# In an event, how many ticks in a row followed the scheduled one, this one included.
COUNT = "follow_up"
# What asking takes at worst where the way to the API is one address: twice a connection and an answer.
ASKING_SECONDS = 9.0


def next_event(event: object, limit: int) -> dict[str, int] | None:
    """Return the event of the tick that is to follow the one of ``event``; None when there were enough."""
    count = event.get(COUNT) if isinstance(event, dict) else None
    so_far = count if type(count) is int and count > 0 else 0
    return {COUNT: so_far + 1} if so_far < limit else None


def follow_up(report: Report, event: object, context: Context, limit: int) -> None:
    """Ask the platform for one more tick where this one leaves work.

    What a tick did is recorded by now, so that it could not ask is told in a log line and nowhere else: the
    schedule comes by anyway.
    """
    following = next_event(event, limit)
    function = getattr(context, "invoked_function_arn", None)
    if following is None or function is None or not wants_more(report):
        return
    if context.get_remaining_time_in_millis() / 1000 < ASKING_SECONDS:
        _failed(Code.TOO_LITTLE_TIME, {})
        return
    from shared.aws.function import ask

    try:
        ask(function, following)
    except (Passing, Refused) as error:
        _failed(error.code, error.params)


def _failed(cause: Code, params: dict[str, Any]) -> None:
    found = {**params, "cause": str(cause)}
    log.warning("no follow-up", extra={"code": str(Code.FOLLOW_UP_FAILED), "params": found})
