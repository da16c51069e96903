"""A scheduled invocation: one archive tick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handlers.invocation import in_words, one_tick
from shared.operations.archive import ARCHIVE

if TYPE_CHECKING:
    from handlers.invocation import Context


@in_words
def handler(_event: object, context: Context) -> dict[str, Any]:
    """Move one batch of whatever is due; what the event says does not matter."""
    return one_tick(ARCHIVE.name, context)
