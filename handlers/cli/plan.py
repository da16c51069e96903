"""``plan``: how often and how a kind is archived, a volume scanned, or history pruned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from handlers.cli.answer import Answer, answering
from handlers.cli.options import (
    ActorOption,
    EnableOption,
    NamespaceOption,
    NoSourceOption,
    ReasonOption,
    RevisionOption,
)
from handlers.cli.values import duration, size
from shared.errors import Code, Refused

if TYPE_CHECKING:
    from rich.console import Console

    from handlers.cli.session import Session
    from handlers.shape import Json
    from shared.plans.schedule import KnownKind

OperationOption = Annotated[Literal["archive", "scan", "prune"], typer.Option(help="What is done.")]
SweptOption = Annotated[Literal["archive", "scan"], typer.Option(help="What is done.")]

BATCH_SIZE = "Roots (archive), files (scan), rows (prune) at a time, 1 to 100000 (1000)."

app = typer.Typer(
    help="How often a kind is archived, a volume scanned, or history pruned.", no_args_is_help=True
)


@app.command("list")
@answering
def list_(namespace: NamespaceOption = None, no_source: NoSourceOption = False) -> Answer:
    """Show the plans: how far each is, and why nothing happens.

    Sources are asked how much is left, for at most a few seconds in all.
    """
    from handlers import outlook, shape
    from handlers.cli.session import session
    from shared import progress, wiring
    from shared.plans import namespaces, planning

    with session() as opened:
        control, interval = opened.control, opened.settings.tick_interval
        owner = namespaces.find(control, namespace)["id"] if namespace else None
        node = wiring.node(opened.settings, opened.url)
        stands = {
            each.situation.plan_id: outlook.outlook(each, interval)
            for each in progress.of_plans(control, node, owner, ask=not no_source)
        }
        items = [
            shape.plan(row, row["namespace"]) | {"outlook": stands.get(row["id"])}
            for row in planning.listed(control, owner)
        ]
    return Answer({"items": items}, lambda out: _list(out, items))


@app.command("set")
@answering
def set_(
    *,
    reason: ReasonOption,
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="Of an archive; the others have none.")
    ] = None,
    operation: OperationOption = "archive",
    every: Annotated[
        int | None,
        typer.Option(parser=duration, metavar="TIME", help="Between runs, 1h to 30d (24h)."),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help=BATCH_SIZE)] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(parser=size, metavar="SIZE", help="Budget of each job, 1MiB to 1TiB (1GiB)."),
    ] = None,
    scope: Annotated[
        Literal["new", "all"] | None,
        typer.Option(help="Go on after the last job, or take everything old each time (new)."),
    ] = None,
    enable: EnableOption = None,
    namespace: NamespaceOption = None,
    actor: ActorOption = None,
    revision: RevisionOption = None,
) -> Answer:
    """Make or change a plan, bound to its policy as it is.

    What is left out stays as it is. A scan has one plan per volume, a prune one per namespace: leave
    KIND out and give --operation.
    """
    from handlers import shape
    from handlers.cli.session import session, signed
    from shared.plans import namespaces, planning

    _require_kind(kind, operation)
    signature = signed(actor, reason, revision)
    with session() as opened:
        owner = namespaces.find(opened.control, namespace)["name"]
        _prepare(opened, kind, owner, enable=enable)
        change = planning.PlanChange(
            operation=operation,
            kind=kind,
            storage_id=opened.settings.archive_storage_id,
            enabled=enable,
            scope=scope,
            interval_seconds=every,
            batch_size=batch_size,
            max_bytes=max_bytes,
        )
        row = planning.put(opened.control, owner, change, signature)
    item = shape.plan(row, owner)
    return Answer(item, lambda out: out.print(_text(item), soft_wrap=True))


@app.command("sweep")
@answering
def sweep(
    *,
    reason: ReasonOption,
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help="Left out for a scan.")] = None,
    operation: SweptOption = "archive",
    namespace: NamespaceOption = None,
    actor: ActorOption = None,
    revision: RevisionOption = None,
) -> Answer:
    """Make one job over everything, once, now.

    Of a kind, it archives the whole window again and brings in what came late; the plan keeps its scope, and
    its next job goes on where this one ends. With --operation scan it scans the whole volume.
    """
    from handlers import shape
    from handlers.cli.session import session, signed
    from shared.jobs import store
    from shared.plans import namespaces, sweep

    _require_kind(kind, operation)
    signature = signed(actor, reason, revision)
    with session() as opened:
        owner = namespaces.find(opened.control, namespace)["name"]
        if kind is None:
            storage_id = opened.settings.archive_storage_id
            if storage_id is None:
                raise Refused(Code.VOLUME_NOT_CONFIGURED)
            job = sweep.sweep_volume(opened.control, owner, storage_id, signature)
            text = "scans the whole volume"
        else:
            job = sweep.sweep(opened.control, owner, _known(opened, kind, owner), signature)
            text = f"archives everything in the window of {owner}/{kind} once more"
        item = shape.job(store.get(opened.control, job))
    return Answer(item, lambda out: out.print(f"Job {item['id']} {text}.", soft_wrap=True))


def _require_kind(kind: str | None, operation: str) -> None:
    if (kind is None) != (operation != "archive"):
        problem = f"a {operation} has no KIND" if kind else "KIND is missing (an archive has one)"
        raise typer.BadParameter(problem)


def _known(opened: Session, kind: str, owner: str) -> KnownKind:
    from handlers.cli.kinds import require
    from shared.plans.schedule import KnownKind

    named = require(opened, kind, owner)
    return KnownKind(named.name, named.only_namespace, named.definition)


def _prepare(opened: Session, kind: str | None, owner: str, *, enable: bool | None) -> None:
    """Check the kind; and have the database know the volume that a plan is enabled or first made for.

    Switching a plan off asks for neither: a kind may have gone from the kinds file, a volume may not answer.
    """
    from handlers.cli.kinds import require
    from handlers.cli.session import opened_volume
    from shared.volume import ledger

    if kind is not None and enable is not False:
        require(opened, kind, owner)
    storage_id = opened.settings.archive_storage_id
    # Without the record no plan can be made, not even one that is not enabled yet.
    if enable or (storage_id is not None and not ledger.listed(opened.control, storage_id)):
        with opened_volume(opened.settings) as volume:
            ledger.visit(opened.control, volume)


def _list(out: Console, items: list[Json]) -> None:
    """Print the plans, then of each one why it stands as it does."""
    from handlers import shape
    from handlers.cli.applying import show_drift
    from handlers.cli.looking import left, reason, standing
    from handlers.cli.table import short, table
    from shared.messages.template import seconds_text

    columns = (
        "PLAN",
        "ON",
        ">EVERY",
        ">REV",
        ">BEHIND",
        ">TO GO",
        ">DRAINED IN",
        ">NEXT RUN",
        "JOB",
    )
    rows = [
        (
            *(_name(item), item["enabled"], seconds_text(item["interval_seconds"])),
            *(item["revision"], *left(item["outlook"]), short(item["active_job_id"])),
        )
        for item in items
    ]
    empty = "There are no plans. `tallystick plan set KIND --every 24h --enable --reason TEXT` makes one."
    table(out, columns, rows, empty, folds=["PLAN"])
    for item in items:
        out.print(f"\n{_name(item)}", soft_wrap=True)
        reason(out, item["outlook"])
        standing(out, item["outlook"])
        if item["late_rows"]:
            late = shape.told("LATE_ROWS", {"kind": item["kind"], "rows": item["late_rows"]})
            out.print(f"  {late['message']}\n    {late['next']}", soft_wrap=True)
        if item["late_unknown"]:
            late = item["late_unknown"]
            out.print(f"  {late['message']}\n    {late['next']}", soft_wrap=True)
        show_drift(out, item)


def _name(item: Json) -> str:
    return f"{item['namespace']}/{item['kind'] or item['operation']}"


def _text(item: Json) -> str:
    from shared.messages.template import seconds_text, size_text

    name = _name(item)
    state = "enabled" if item["enabled"] else "disabled"
    return (
        f"Plan of {name}: every {seconds_text(item['interval_seconds'])}, {item['batch_size']} at a"
        f" time, {size_text(item['max_bytes'])} a job, {state} (revision {item['revision']})."
    )
