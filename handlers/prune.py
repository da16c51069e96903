"""A scheduled invocation: one prune tick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handlers.invocation import in_words, one_tick
from shared.operations.prune import PRUNE

if TYPE_CHECKING:
    from handlers.invocation import Context


@in_words
def handler(_event: object, context: Context) -> dict[str, Any]:
    """Remove the rows of the next file; what the event says does not matter."""
    return one_tick(PRUNE.name, context)
