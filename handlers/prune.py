"""A scheduled invocation: one prune tick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handlers.invocation import in_words, scheduled_tick
from shared.operations.prune import PRUNE

if TYPE_CHECKING:
    from handlers.invocation import Context


@in_words
def handler(event: object, context: Context) -> dict[str, Any]:
    """Remove the rows of the next file; of the event only the count of follow-ups matters."""
    return scheduled_tick(PRUNE.name, event, context)
