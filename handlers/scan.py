"""A scheduled invocation: one scan tick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handlers.invocation import in_words, scheduled_tick
from shared.operations.scan import SCAN

if TYPE_CHECKING:
    from handlers.invocation import Context


@in_words
def handler(event: object, context: Context) -> dict[str, Any]:
    """Walk on through the volume; of the event only the count of follow-ups matters."""
    return scheduled_tick(SCAN.name, event, context)
