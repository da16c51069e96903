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
    from shared.settings import Settings

app = typer.Typer(help="What can be archived.", no_args_is_help=True)
app.command("draft")(drafting.draft)
THERE = {True: "there", False: "its table is not there yet", None: "no database answers"}


@app.command("list")
@answering
def list_() -> Answer:
    """Show the kinds, built-in ones first."""
    from handlers.cli.session import configured
    from handlers.cli.table import table
    from shared import wiring

    settings = configured()
    kinds = wiring.kinds(settings)
    there = _there(settings, list(kinds.values()))
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
        list[str] | None,
        typer.Argument(metavar="KIND", help="Those of the kinds file when left out."),
    ] = None,
) -> Answer:
    """Compare kinds with their tables.

    Exit code 1 when one of them cannot be archived. Without a name: the kinds of the kinds file, or the
    built-in ones where there is no such file.
    """
    from handlers import shape
    from handlers.cli.session import configured

    found = _surveys(configured(), kinds or [])
    bad = [each for each in found if each.refuses]
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


def _there(settings: Settings, kinds: list[NamedKind]) -> dict[str, bool | None]:
    """Say of each kind whether its root is there; None where no database answers."""
    from contextlib import closing

    from shared.archive.source import SourceConnection
    from shared.archive.survey import roots_there
    from shared.errors import Refused, Trouble

    found: dict[str, bool | None] = dict.fromkeys(kind.name for kind in kinds)
    for name in ("control", "application"):
        asked = [kind for kind in kinds if kind.source == name]
        try:
            url = drafting.source_url(settings, name)
        except Refused:
            # None is named, and none is started only to be asked.
            continue
        try:
            with closing(SourceConnection(url)) as source:
                found |= roots_there(source.open(), asked)
        except Trouble:
            continue
    return found


def _surveys(settings: Settings, names: list[str]) -> list[Survey]:
    """Compare the kinds meant with their tables, asking no database that has none of them."""
    from contextlib import ExitStack, closing

    from shared import wiring
    from shared.archive import survey
    from shared.archive.source import SourceConnection
    from shared.errors import Code, Refused

    known = wiring.kinds(settings)
    own = [name for name, kind in known.items() if kind.source == "application"]
    chosen = [survey.chosen(known, name) for name in names or own or known]
    with ExitStack() as stack:
        sources = {
            name: stack.enter_context(
                closing(SourceConnection(drafting.source_url(settings, name)))
            )
            for name in dict.fromkeys(kind.source for kind in chosen)
        }
        found = [survey.survey(sources[kind.source], kind) for kind in chosen]
    # A built-in kind whose table comes with a later version is no fault, unless it was asked for.
    told = [each for each in found if names or not _later(each)]
    if not told:
        raise Refused(Code.SCHEMA_MISSING)
    return told


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
        for note in item["notes"]:
            out.print(f"  note: {note['message']}", soft_wrap=True)
