"""``kinds``: what can be archived, and whether its tables allow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from handlers.cli import drafting
from handlers.cli.answer import GOOD, NOT_GOOD, Answer, answering

if TYPE_CHECKING:
    from rich.console import Console

    from handlers.cli.session import Session
    from handlers.shape import Json
    from shared.archive.kinds import NamedKind
    from shared.archive.survey import Survey
    from shared.db.connect import Dsn
    from shared.settings import Settings

app = typer.Typer(help="What can be archived.", no_args_is_help=True)
app.command("draft")(drafting.draft)
THERE = {True: "there", False: "its table is not there yet", None: "the source does not answer"}


@app.command("list")
@answering
def list_() -> Answer:
    """Show the kinds, built-in ones first."""
    from handlers.cli.session import configured, database_url
    from handlers.cli.table import table
    from shared import wiring

    settings = configured()
    kinds = wiring.kinds(settings)
    there = _there(settings, database_url(settings), list(kinds.values()))
    items = [
        {
            "kind": kind.name,
            "source": kind.source,
            "namespace": kind.only_namespace,
            "root": kind.kind.root,
            "time": kind.kind.time,
            "related": [related.table for related in kind.kind.related],
            "there": there[kind.name],
        }
        for kind in kinds.values()
    ]
    rows = [(item["kind"], item["root"], item["time"], _state(item)) for item in items]
    return Answer(
        {"items": items},
        lambda out: table(
            out, ("KIND", "ROOT", "TIME", "TABLE"), rows, "", folds=["KIND", "ROOT", "TIME"]
        ),
    )


@app.command("check")
@answering
def check(
    kinds: Annotated[
        list[str] | None, typer.Argument(metavar="KIND", help="All of them when left out.")
    ] = None,
) -> Answer:
    """Hold kinds against their tables.

    Exit code 1 when one of them cannot be archived.
    """
    from handlers import shape
    from handlers.cli.session import configured, database_url

    settings = configured()
    found = _surveys(settings, database_url(settings), kinds or [])
    # A built-in kind whose table comes with a later version is no fault, unless it was asked for.
    bad = [each for each in found if each.refuses and (kinds or not _later(each))]
    return Answer(
        {"items": [shape.survey(each) for each in found]},
        lambda out: _show(out, found),
        NOT_GOOD if bad else GOOD,
    )


def require(opened: Session, name: str, namespace: str) -> NamedKind:
    """Return a kind that can be planned in a namespace; raises ``Refused`` for any other."""
    from contextlib import closing

    from shared import wiring
    from shared.archive import survey
    from shared.archive.source import SourceConnection

    kind = survey.chosen(wiring.kinds(opened.settings), name, namespace)
    with closing(SourceConnection(opened.url)) as control:
        survey.require_table(control.open(), kind)
    return kind


def _there(settings: Settings, url: Dsn, kinds: list[NamedKind]) -> dict[str, bool | None]:
    """Say of each kind whether its root is there; None where its database does not answer."""
    from contextlib import closing

    from shared import wiring
    from shared.archive.source import SourceConnection
    from shared.archive.survey import roots_there
    from shared.errors import Trouble

    found: dict[str, bool | None] = dict.fromkeys(kind.name for kind in kinds)
    for name, dsn in wiring.sources(settings, url).items():
        asked = [kind for kind in kinds if kind.source == name]
        try:
            with closing(SourceConnection(dsn)) as source:
                found |= roots_there(source.open(), asked)
        except Trouble:
            continue
    return found


def _surveys(settings: Settings, url: Dsn, names: list[str]) -> list[Survey]:
    from contextlib import ExitStack, closing

    from shared import wiring
    from shared.archive import survey
    from shared.archive.source import SourceConnection

    known = wiring.kinds(settings)
    with ExitStack() as stack:
        sources = {
            name: stack.enter_context(closing(SourceConnection(dsn)))
            for name, dsn in wiring.sources(settings, url).items()
        }
        chosen = [survey.chosen(known, name) for name in names or known]
        return [survey.survey(sources[kind.source], kind) for kind in chosen]


def _later(found: Survey) -> bool:
    return found.kind.source == "control" and not found.there


def _state(item: Json) -> str:
    if item["there"] is False and item["source"] == "application":
        return "missing"
    return THERE[item["there"]]


def _show(out: Console, found: list[Survey]) -> None:
    from handlers import shape

    for each in found:
        item = shape.survey(each)
        if _later(each):
            out.print(
                f"{item['kind']}: its table is not there yet ({item['root']})", soft_wrap=True
            )
            continue
        out.print(
            f"{item['kind']}: {'refused' if item['refused'] else 'good'}",
            style="red" if item["refused"] else "green",
            soft_wrap=True,
        )
        for finding in item["findings"]:
            mark = "refused" if finding["refuses"] else "warning"
            out.print(f"  {mark}: {finding['message']}", soft_wrap=True)
            if finding["next"]:
                out.print(f"    {finding['next']}", soft_wrap=True)
