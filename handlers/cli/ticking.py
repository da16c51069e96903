"""``tick`` and ``run``: one unit of what is due, or one after the other."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from handlers.cli.answer import (
    GOOD,
    NOT_GOOD,
    NOTHING_DONE,
    Answer,
    JsonOption,
    answering,
    json_items,
)
from handlers.cli.options import RemoteOption
from handlers.cli.remote import operated
from handlers.cli.values import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from handlers.cli.session import Session
    from handlers.shape import Json
    from shared.tick import Node, Report, Wanted

# What a unit of an operation is called, and what its number counts.
COUNTED = {
    "archive": ("batch", "roots"),
    "scan": ("step", "files"),
    "prune": ("file", "rows removed"),
}
COLOURS = {"failed": "red", "paused": "yellow", "waiting": "yellow", "finished": "green"}


@answering
def tick(
    operation: Annotated[
        str | None,
        typer.Argument(metavar="OPERATION", help="archive, scan or prune; any when left out."),
    ] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Go on until nothing is due.")
    ] = False,
    remote: RemoteOption = False,
    as_json: JsonOption = False,
) -> Answer:
    """Do one unit of what is due.

    Exit code 3: nothing was done, because everything that is open is paused or failed. Exit code 1: the
    unit could not be done and will be tried again.
    """
    if remote:
        if until_idle:
            problem = "ticks on AWS follow one another by themselves: leave out --until-idle"
            raise typer.BadParameter(problem)
        item = operated("tick", operation=operation)
        # What only the database knows was asked there; a stack of an earlier release does not tell.
        only_stuck = item.pop("only_stuck", False)
        return Answer(item, lambda _: show(item), _code(item, lambda: only_stuck))
    return _ticked_here(operation, until_idle=until_idle, as_json=as_json)


def _ticked_here(operation: str | None, *, until_idle: bool, as_json: bool) -> Answer:
    from handlers import log, shape
    from handlers.cli.session import session
    from shared import loop
    from shared.jobs.reading import open_jobs

    with session() as opened:
        node, wanted = _node(opened), _wanted(operation)
        timeout = opened.settings.timeout_seconds

        def only_stuck() -> bool:
            return open_jobs(opened.control).only_stuck

        if until_idle:
            # Ticks may be a hundred thousand: each is told when it has ended, and forgotten.
            with json_items("ticks") if as_json else nullcontext(show) as tell:

                def told(report: Report) -> None:
                    log.told(report)
                    tell(shape.report(report))

                last = loop.until_idle(node, wanted, timeout, told)
            return Answer(None, code=_code(shape.report(last), only_stuck), printed=True)
        last = loop.watched(node, wanted, timeout)
        log.told(last)
        item = shape.report(last)
        return Answer(item, lambda _: show(item), _code(item, only_stuck))


@answering
def run(
    every: Annotated[
        int | None,
        typer.Option(
            parser=duration,
            metavar="TIME",
            help="Between ticks, 1s to 60s (TALLYSTICK_TICK_INTERVAL).",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Serve metrics for Prometheus on this port."),
    ] = None,
    metrics_address: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where metrics are served.")
    ] = "127.0.0.1",
    as_json: JsonOption = False,
) -> Answer:
    """Tick every interval until told to stop.

    While there is work the next tick follows at once. SIGTERM or Ctrl-C ends it after the unit in hand.
    """
    from handlers import log, shape
    from handlers.cli.scraping import served
    from handlers.cli.session import session
    from shared import loop
    from shared.jobs import rules

    outcomes: Counter[str] = Counter()
    shown: list[str] = [""]

    def told(report: Report) -> None:
        log.told(report)
        scraped(report)
        item = shape.report(report)
        outcomes[item["outcome"]] += 1
        line = "" if item["job"] else f"{item['outcome']} {item['code']}"
        # Said once, not every ten seconds.
        if not as_json and (not line or line != shown[0]):
            show(item)
        shown[0] = line

    with ExitStack() as stack:
        opened = stack.enter_context(session())
        settings = opened.settings
        interval = settings.tick_interval if every is None else rules.within(every, 1, 60, "every")
        scraped: Callable[[Report], None] = _nobody
        if metrics_port is not None:
            scraped = stack.enter_context(served(metrics_port, metrics_address))
        loop.every(_node(opened), _wanted(None), settings.timeout_seconds, interval, told)
    return Answer({"ticks": outcomes.total(), "outcomes": dict(outcomes)})


def _nobody(_report: Report) -> None:
    """Tell nobody: no metrics were asked for."""


def show(item: Json) -> None:
    """Print one tick as one line; what stands in the way comes below it."""
    from handlers.cli.answer import console

    out = console()
    out.print(line(item), style=COLOURS.get(item["outcome"], ""), soft_wrap=True)
    told = item if item["code"] else item["note"]
    if told:
        out.print(f"  {told['message']}", soft_wrap=True)
        if told["next"]:
            out.print(f"  {told['next']}", soft_wrap=True)


def line(item: Json) -> str:
    """Return one tick in one line."""
    from handlers.cli.table import short
    from shared.messages.template import seconds_text, size_text

    job = item["job"]
    spent = seconds_text(item["seconds"])
    if job is None:
        what = "nothing is due" if item["outcome"] == "idle" else item["code"] or ""
        return f"{item['outcome']:<10}  {what}  {spent}"
    parts = [item["outcome"].ljust(10), job["kind"] or job["operation"], str(short(job["id"]))]
    if item["code"]:
        parts.append(item["code"])
    else:
        step, counted = COUNTED.get(job["operation"], COUNTED["archive"])
        parts.append(f"{step} {item['seq']}")
        parts.append(f"{item['roots']} {counted}")
        parts.append(size_text(item["bytes"]))
    if item["reclaimed"]:
        parts.append("taken over")
    return "  ".join([*parts, spent])


def _node(opened: Session) -> Node:
    from shared import wiring

    return wiring.node(opened.settings, opened.url)


def _wanted(operation: str | None) -> Wanted:
    from shared.operations import registry
    from shared.tick import Wanted

    registry.require(operation)
    return Wanted(operation)


def _code(item: Json, only_stuck: Callable[[], bool]) -> int:
    from shared.errors import Code
    from shared.jobs.model import Ending

    ending, code = item["outcome"], item["code"]
    if ending in {Ending.FAILED, Ending.PAUSED}:
        return NOTHING_DONE
    if ending in {Ending.PROGRESSED, Ending.FINISHED, Ending.STALE}:
        return GOOD
    if ending == Ending.UNCERTAIN or code == Code.DATABASE_UNAVAILABLE:
        return NOT_GOOD
    if item["job"] is None and only_stuck():
        return NOTHING_DONE
    free = code in {None, Code.STORAGE_BUSY, Code.VOLUME_NOT_CONFIGURED, Code.TOO_LITTLE_TIME}
    # A page that was too large is tried again at once, smaller: no reason to alarm anybody.
    return GOOD if free or item["wait_seconds"] == 0.0 else NOT_GOOD
