"""A scheduled invocation: one archive tick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handlers.invocation import in_words, scheduled_tick
from shared.operations.archive import ARCHIVE

if TYPE_CHECKING:
    from handlers.invocation import Context


@in_words
def handler(event: object, context: Context) -> dict[str, Any]:
    """Move one batch of whatever is due; of the event only the count of follow-ups matters."""
    return scheduled_tick(ARCHIVE.name, event, context)
