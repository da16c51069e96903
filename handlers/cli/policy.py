"""``policy``: how old rows of a kind must be before they are archived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from handlers.cli.answer import Answer, answering
from handlers.cli.options import (
    ActorOption,
    EnableOption,
    NamespaceOption,
    ReasonOption,
    RevisionOption,
)
from handlers.cli.values import days

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(help="How old rows must be before they are archived.", no_args_is_help=True)


@app.command("list")
@answering
def list_(namespace: NamespaceOption = None) -> Answer:
    """Show the policies."""
    from handlers import shape
    from handlers.cli.applying import show_drift
    from handlers.cli.session import session
    from handlers.cli.table import minute, table
    from shared.plans import namespaces, policies

    with session() as opened:
        owner = namespaces.find(opened.control, namespace)["id"] if namespace else None
        items = [
            shape.policy(row, row["namespace"]) for row in policies.listed(opened.control, owner)
        ]
    columns = ("NAMESPACE", "KIND", ">AFTER", "ENABLED", ">REV", "UPDATED")
    rows = [
        (
            *(item["namespace"], item["kind"], f"{item['after_days']} d", item["enabled"]),
            *(item["revision"], minute(item["updated_at"])),
        )
        for item in items
    ]
    empty = (
        "There are no policies. `tallystick policy set KIND --after 365d --reason TEXT` makes one."
    )

    def show(out: Console) -> None:
        table(out, columns, rows, empty, folds=["NAMESPACE", "KIND"])
        for item in items:
            if item["drift"]:
                out.print(f"\n{item['namespace']}/{item['kind']}", soft_wrap=True)
                show_drift(out, item)

    return Answer({"items": items}, show)


@app.command("set")
@answering
def set_(
    kind: Annotated[str, typer.Argument(metavar="KIND")],
    reason: ReasonOption,
    after: Annotated[
        int | None,
        typer.Option(
            "--after", parser=days, metavar="DAYS", help="How old rows must be, e.g. 365d."
        ),
    ] = None,
    enable: EnableOption = None,
    namespace: NamespaceOption = None,
    actor: ActorOption = None,
    revision: RevisionOption = None,
) -> Answer:
    """Make or change a policy.

    Plans bound to it as it was rest until they are set again.
    """
    from handlers import shape
    from handlers.cli.kinds import require
    from handlers.cli.session import session, signed
    from shared.plans import namespaces, policies

    signature = signed(actor, reason, revision)
    with session() as opened:
        owner = namespaces.find(opened.control, namespace)["name"]
        require(opened, kind, owner)
        change = policies.PolicyChange(kind, after, enable)
        row = policies.put(opened.control, owner, change, signature)
    item = shape.policy(row, owner)
    state = "enabled" if item["enabled"] else "disabled"
    text = (
        f"Policy of {owner}/{kind}: {item['after_days']} days, {state} (revision"
        f" {item['revision']})."
    )
    return Answer(item, lambda out: out.print(text, soft_wrap=True))
