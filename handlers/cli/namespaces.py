"""``namespaces``: administrative domains, which own policies, plans and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from handlers.cli.answer import Answer, answering
from handlers.cli.options import ActorOption, ReasonOption, RevisionOption

if TYPE_CHECKING:
    from shared.db.connect import Row

app = typer.Typer(help="Namespaces own policies, plans and jobs.", no_args_is_help=True)
NameArgument = Annotated[str, typer.Argument(metavar="NAME")]


@app.command("list")
@answering
def list_() -> Answer:
    """Show the namespaces."""
    from handlers import shape
    from handlers.cli.session import session
    from handlers.cli.table import table
    from shared.plans import namespaces

    with session() as opened:
        items = [shape.namespace(row) for row in namespaces.listed(opened.control)]
    rows = [(item["name"], item["enabled"], item["revision"], item["id"]) for item in items]
    return Answer(
        {"items": items},
        lambda out: table(
            out, ("NAME", "ENABLED", ">REV", "ID"), rows, "There are no namespaces.", folds=["NAME"]
        ),
    )


@app.command("create")
@answering
def create(name: NameArgument, reason: ReasonOption, actor: ActorOption = None) -> Answer:
    """Create a namespace; it is enabled."""
    from handlers.cli.session import session, signed
    from shared.plans import namespaces

    signature = signed(actor, reason)
    with session() as opened:
        return _changed(namespaces.create(opened.control, name, signature), "created")


@app.command("enable")
@answering
def enable(
    name: NameArgument,
    reason: ReasonOption,
    actor: ActorOption = None,
    revision: RevisionOption = None,
) -> Answer:
    """Enable a namespace again."""
    return _switched(name, actor, reason, revision, enabled=True)


@app.command("disable")
@answering
def disable(
    name: NameArgument,
    reason: ReasonOption,
    actor: ActorOption = None,
    revision: RevisionOption = None,
) -> Answer:
    """Disable a namespace; its jobs export nothing while it is."""
    return _switched(name, actor, reason, revision, enabled=False)


def _switched(
    name: str, actor: str | None, reason: str, revision: int | None, *, enabled: bool
) -> Answer:
    from handlers.cli.session import session, signed
    from shared.plans import namespaces

    signature = signed(actor, reason, revision)
    with session() as opened:
        row = namespaces.switch(opened.control, name, signature, enabled=enabled)
    return _changed(row, "enabled" if enabled else "disabled")


def _changed(row: Row, done: str) -> Answer:
    from handlers import shape

    item = shape.namespace(row)
    text = f"Namespace {item['name']} is {done} (revision {item['revision']})."
    return Answer(item, lambda out: out.print(text, soft_wrap=True))
