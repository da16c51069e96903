"""What an invocation on the platform begins with: a node built once per process, and one tick."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from handlers import observing, shape
from shared import wiring
from shared.settings import load
from shared.tick import Wanted, tick

if TYPE_CHECKING:
    from shared.tick import Node


class Context(Protocol):
    """What the platform says of an invocation."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until the platform ends this invocation."""


@cache
def node() -> Node:
    """Return this node, built and its schema checked once per process.

    Raises ``Refused`` without a database (nothing is embedded here), or without what log lines and
    metrics need. An error is not remembered.
    """
    observing.require()
    settings = load()
    control = wiring.control_dsn(settings)
    wiring.require_schema(control)
    return wiring.node(settings, control)


def one_tick(operation: str | None, context: Context) -> dict[str, Any]:
    """Do one unit of an operation (or of any), and return its report as JSON can hold it."""
    seconds_left = context.get_remaining_time_in_millis() / 1000
    report = tick(node(), Wanted(operation, seconds_left=seconds_left))
    observing.observed(report, context)
    return shape.report(report)
