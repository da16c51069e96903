"""``recovery``: what went wrong and how it was recovered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from handlers.cli.answer import GOOD, NOT_GOOD, Answer, answering
from handlers.cli.options import LimitOption, NamespaceOption

if TYPE_CHECKING:
    from rich.console import Console

    from handlers.shape import Json

app = typer.Typer(help="What went wrong and how it was recovered.", no_args_is_help=True)


@app.command("list")
@answering
def list_(
    namespace: NamespaceOption = None,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Of this job only.")] = None,
    search: Annotated[
        str | None, typer.Option(help="Only events with this in type, code or parameters.")
    ] = None,
    before: Annotated[
        str | None, typer.Option(metavar="ID", help="Show what is older than this event.")
    ] = None,
    limit: LimitOption = 20,
) -> Answer:
    """Show recovery events, newest first."""
    from uuid import UUID

    from handlers import shape
    from handlers.cli.session import session
    from shared.jobs import reading
    from shared.plans import namespaces
    from shared.recovery import report

    try:
        seen = UUID(before) if before else None
    except ValueError:
        problem = f"{before!r} is no event id; --json shows them"
        raise typer.BadParameter(problem) from None
    with session() as opened:
        control = opened.control
        query = report.Query(
            namespace_id=namespaces.find(control, namespace)["id"] if namespace else None,
            job_id=reading.find(control, job) if job else None,
            before=seen,
            search=search,
            limit=limit + 1,
        )
        rows = report.newest(control, query)
    items = [shape.event(row) for row in rows[:limit]]
    next_before = items[-1]["id"] if len(rows) > limit else ""
    return Answer({"items": items, "next_before": next_before}, lambda out: _show(out, items))


@app.command("import")
@answering
def import_() -> Answer:
    """Bring in evidence that was kept on the volume.

    It was written there while the database was away.
    """
    from handlers.cli.session import opened_volume, session
    from shared.recovery import evidence
    from shared.volume import ledger, lock

    with session() as opened, opened_volume(opened.settings) as volume, lock.held(volume):
        ledger.visit(opened.control, volume)
        lock.prepare(volume)
        found = evidence.bring_in(opened.control, volume)
    document = {"events": found.events, "unreadable": list(found.unreadable)}

    def show(out: Console) -> None:
        out.print(f"Brought in {found.events} events.")
        for name in found.unreadable:
            out.print(f"Not readable as events: {name}", style="red", soft_wrap=True)

    return Answer(document, show, NOT_GOOD if found.unreadable else GOOD)


def _show(out: Console, items: list[Json]) -> None:
    from handlers.cli.table import COLOURS, minute, short

    if not items:
        out.print("Nothing went wrong yet.")
    for item in items:
        parts = [minute(item["occurred_at"]), f"{item['severity']:<7}", item["type"]]
        about = [part for part in (item["operation"], short(item["job_id"])) if part]
        style = COLOURS.get(item["severity"], "")
        out.print("  ".join([*map(str, parts), *about]), style=style, soft_wrap=True)
        if item["message"] != item["type"]:
            out.print(f"  {item['message']}", soft_wrap=True)
