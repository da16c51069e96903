"""What an invocation on the platform begins with: a node built once per process, and one tick."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Protocol

from handlers import following, observing, shape
from shared import wiring
from shared.clock import Deadline
from shared.db.connect import Database
from shared.errors import Code, TallystickError
from shared.settings import load
from shared.tick import Wanted, tick

if TYPE_CHECKING:
    from shared.settings import Settings
    from shared.tick import Node, Report


Handler = Callable[[Any, Any], dict[str, Any]]


def in_words(handler: Handler) -> Handler:
    """Give errors of ours their words on the way out: the platform passes on type and text alone."""

    @wraps(handler)
    def answered(event: object, context: object) -> dict[str, Any]:
        try:
            return handler(event, context)
        except TallystickError as error:
            told = shape.error(error)
            error.words = " ".join(filter(None, (f"{error.code}:", told["message"], told["next"])))
            raise

    return answered


class Context(Protocol):
    """What the platform says of an invocation."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until the platform ends this invocation."""


@cache
def configured() -> Settings:
    """Return the settings in force, read once per process; an error is not remembered."""
    return load()


@cache
def node() -> Node:
    """Return this node, built and its schema checked once per process.

    Raises ``Refused`` without a database (nothing is embedded here), or without what log lines and
    metrics need. An error is not remembered.
    """
    observing.require()
    settings = configured()
    control = wiring.control_dsn(settings)
    wiring.require_schema(control)
    return wiring.node(settings, control)


@contextmanager
def control_database() -> Iterator[Database]:
    """Open the database that keeps the jobs for this invocation."""
    here = node()
    deadline = Deadline.after(here.deadline_seconds)
    with closing(Database(here.control_dsn, deadline, here.database_retries)) as control:
        yield control


def tick_by_hand(operation: str | None, context: Context) -> dict[str, Any]:
    """Do one unit of an operation (or of any), and return its report as JSON can hold it.

    ``only_stuck`` beside it: whether nothing was done because all that is open is paused or failed.
    """
    from shared.jobs import reading

    report = shape.report(_ticked(operation, {}, context))
    only_stuck = False
    if report["job"] is None and report["code"] != Code.DATABASE_UNAVAILABLE:
        with control_database() as control:
            only_stuck = reading.open_jobs(control).only_stuck
    return report | {"only_stuck": only_stuck}


def scheduled_tick(operation: str, event: object, context: Context) -> dict[str, Any]:
    """Do one unit of an operation, ask for one more tick where it leaves work, and return its report.

    Of the event, only how many ticks in a row were asked for so far matters; when it was meant to come is
    logged.
    """
    report = _ticked(operation, event, context)
    following.follow_up(report, event, context, configured().follow_up_ticks)
    return shape.report(report)


def _ticked(operation: str | None, event: object, context: Context) -> Report:
    seconds_left = context.get_remaining_time_in_millis() / 1000
    report = tick(node(), Wanted(operation, seconds_left=seconds_left))
    observing.observed(report, event, context)
    return report
