"""A scheduled invocation: one scan tick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handlers.invocation import in_words, one_tick
from shared.operations.scan import SCAN

if TYPE_CHECKING:
    from handlers.invocation import Context


@in_words
def handler(_event: object, context: Context) -> dict[str, Any]:
    """Walk on through the volume; what the event says does not matter."""
    return one_tick(SCAN.name, context)
