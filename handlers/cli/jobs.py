"""``jobs``: what was done, what is open, and what an operator may do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from handlers.cli.answer import Answer, answering
from handlers.cli.options import (
    ActorOption,
    LimitOption,
    NamespaceOption,
    NoSourceOption,
    ReasonOption,
    RemoteOption,
    RevisionOption,
)
from handlers.cli.remote import operated
from handlers.cli.session import signed
from handlers.cli.values import size

if TYPE_CHECKING:
    from rich.console import Console

    from handlers.shape import Json
    from shared.db.audit import Signature

app = typer.Typer(
    help="What was done, what is open, and what to do about it.", no_args_is_help=True
)
JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="Its id, or the first 8 characters of it.")
]


@app.command("list")
@answering
def list_(
    namespace: NamespaceOption = None,
    before: Annotated[
        str | None, typer.Option(metavar="JOB", help="Show what is older than this job.")
    ] = None,
    limit: LimitOption = 20,
) -> Answer:
    """Show jobs, newest first."""
    from handlers import shape
    from handlers.cli.session import session
    from handlers.cli.table import short, table
    from shared.jobs import reading, store
    from shared.messages.template import size_text
    from shared.plans import namespaces

    with session() as opened:
        control = opened.control
        owner = namespaces.find(control, namespace)["id"] if namespace else None
        seen = reading.find(control, before) if before else None
        # One more than asked for tells whether there is another page.
        found = store.newest(control, namespace_id=owner, before=seen, limit=limit + 1)
    items = [shape.job(job) for job in found[:limit]]
    next_before = items[-1]["id"] if len(found) > limit else ""
    columns = ("JOB", "KIND", "STATE", ">BATCHES", ">ROOTS", ">BYTES", "ERROR")
    rows = [
        (
            *(short(item["id"]), item["kind"] or item["operation"], item["state"]),
            *(item["batches"], item["roots"], size_text(item["bytes"]), item["error_code"]),
        )
        for item in items
    ]

    def show(out: Console) -> None:
        table(out, columns, rows, "There are no jobs yet: plans make them.", folds=["KIND"])
        if next_before:
            out.print(f"Older ones: tallystick jobs list --before {short(next_before)}")

    return Answer({"items": items, "next_before": next_before}, show)


@app.command("show")
@answering
def show(job: JobArgument, no_source: NoSourceOption = False) -> Answer:
    """Show all there is to know about a job."""
    from handlers import outlook, shape
    from handlers.cli.session import session
    from shared import progress, wiring
    from shared.jobs import reading, store, timeline
    from shared.recovery import report

    with session() as opened:
        control = opened.control
        job_id = reading.find(control, job)
        found = store.get(control, job_id)
        units = store.units(control, job_id)
        events = report.newest(control, report.Query(job_id=job_id))
        beside = timeline.kept(control, job_id)
        stands = None
        if not found.state.closed:
            node = wiring.node(opened.settings, opened.url)
            stands = progress.of_job(control, node, job_id, ask=not no_source)
        interval = opened.settings.tick_interval
    moments = timeline.timeline(found, events, beside)
    item = shape.job_in_full(found, units, events) | {
        "files": outlook.files(found, units),
        "timeline": [outlook.moment(each, found) for each in moments],
        "outlook": outlook.outlook(stands, interval) if stands else None,
    }
    return Answer(item, lambda out: _show(out, item))


@app.command("retry")
@answering
def retry(
    job: JobArgument,
    reason: ReasonOption,
    max_bytes: Annotated[
        int | None,
        typer.Option(parser=size, metavar="SIZE", help="Raise the job's budget, e.g. 10GiB."),
    ] = None,
    actor: ActorOption = None,
    revision: RevisionOption = None,
    remote: RemoteOption = False,
) -> Answer:
    """Try a FAILED job again from where it stands."""
    signature = signed(actor, reason, revision)
    return _acted("retry", job, signature, max_bytes=max_bytes, remote=remote)


@app.command("abandon")
@answering
def abandon(
    job: JobArgument,
    reason: ReasonOption,
    actor: ActorOption = None,
    revision: RevisionOption = None,
    remote: RemoteOption = False,
) -> Answer:
    """Close an open job; its files stay.

    Its plan may then make a new one.
    """
    signature = signed(actor, reason, revision)
    return _acted("abandon", job, signature, remote=remote)


@app.command("pause")
@answering
def pause(
    job: JobArgument,
    reason: ReasonOption,
    actor: ActorOption = None,
    revision: RevisionOption = None,
    remote: RemoteOption = False,
) -> Answer:
    """Pause a job until it is resumed."""
    signature = signed(actor, reason, revision)
    return _acted("pause", job, signature, remote=remote)


@app.command("resume")
@answering
def resume(
    job: JobArgument,
    reason: ReasonOption,
    actor: ActorOption = None,
    revision: RevisionOption = None,
    remote: RemoteOption = False,
) -> Answer:
    """Let a PAUSED job go on."""
    signature = signed(actor, reason, revision)
    return _acted("resume", job, signature, remote=remote)


def _acted(
    action: str,
    job: str,
    signature: Signature,
    *,
    remote: bool,
    max_bytes: int | None = None,
) -> Answer:
    if remote:
        item = operated(
            action,
            job=job,
            reason=signature.reason,
            actor=signature.actor,
            revision=signature.revision,
            max_bytes=max_bytes,
        )
    else:
        item = _acted_here(action, job, signature, max_bytes)
    text = f"Job {item['id']} is {item['state']} (revision {item['revision']})."
    return Answer(item, lambda out: out.print(text, soft_wrap=True))


def _acted_here(action: str, job: str, signature: Signature, max_bytes: int | None) -> Json:
    from handlers import shape
    from handlers.cli.session import session
    from shared.jobs import reading, steer
    from shared.jobs.rules import Action

    with session() as opened:
        job_id = reading.find(opened.control, job)
        return shape.job(
            steer.act(opened.control, job_id, Action(action), signature, max_bytes=max_bytes)
        )


def _show(out: Console, item: Json) -> None:
    from handlers.cli.looking import told
    from handlers.cli.table import facts, minute, table

    facts(out, _facts(item))
    if item["error"]:
        out.print(f"\n{item['error']['message']}", style="red", soft_wrap=True)
        out.print(f"{item['error']['next']}", soft_wrap=True)
    if item["outlook"]:
        out.print("\nOutlook")
        told(out, item["outlook"])
    out.print("\nNewest units")
    table(out, *_units(item), "None yet.", folds=["FILE"])
    out.print("\nTimeline")
    moments = [(minute(each["at"]), _moment(each)) for each in item["timeline"]]
    table(out, ("AT (UTC)", "WHAT HAPPENED"), moments, "Nothing yet.", folds=["WHAT HAPPENED"])


def _facts(item: Json) -> list[tuple[str, object]]:
    from handlers.cli.table import minute
    from shared.messages.template import size_text

    attempts = item["attempts"]
    if item["takeovers"] or item["failures"]:
        attempts = (
            f"{attempts} ({item['takeovers']} takeovers, {item['failures']} failures in a row)"
        )
    return [
        ("job", item["id"]),
        ("operation", item["operation"]),
        ("kind", item["kind"]),
        ("state", f"{item['state']} (revision {item['revision']})"),
        ("batches", item["batches"]),
        ("roots", item["roots"]),
        ("late rows", _late(item)),
        *((f"rows of {each['table']}", _counted(each)) for each in item["window"] or ()),
        ("bytes", f"{size_text(item['bytes'])} of {size_text(item['max_bytes'])}"),
        ("batch size", item["batch_size"]),
        ("attempts", attempts),
        ("tail", item["last_sha256"]),
        ("volume", item["storage_id"]),
        ("directory", item["directory"]),
        ("created", minute(item["created_at"])),
        ("updated", minute(item["updated_at"])),
        ("next attempt", minute(item["next_attempt_at"])),
        ("closed", minute(item["closed_at"])),
    ]


def _late(item: Json) -> object:
    """Return how many rows came late, or why nobody knows."""
    if item["late_unknown"]:
        return f"not known ({item['late_unknown']['message']})"
    return f"at least {item['late_rows']}" if item["late_rows"] else item["late_rows"]


def _counted(each: Json) -> str:
    """Return how many rows of a table were archived, beside how many the window held at the end."""
    there = "an unknown number" if each["there"] is None else each["there"]
    return f"{each['archived']} archived, {there} in the window at the end"


def _units(item: Json) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return the columns and rows of the newest units; those of an archive are files."""
    from handlers.cli.table import minute, short
    from shared.messages.template import size_text

    names = [each["file"] for each in item["files"]["newest"]] if item["files"] else None
    rows: list[tuple[object, ...]] = []
    for place, unit in enumerate(item["units"]):
        first = names[place] if names else unit["seq"]
        size, at = size_text(unit["bytes"]), minute(unit["settled_at"])
        rows.append((first, unit["roots"], size, at, short(unit["sha256"])))
    first = "FILE" if names else ">UNIT"
    return (first, ">ROOTS", ">BYTES", "SETTLED (UTC)", "SHA-256"), rows


def _moment(each: Json) -> str:
    """Return one moment in words."""
    if each["what"] == "unit":
        return f"unit {each['seq']} settled"
    if each["what"] == "action":
        return f"{each['name']} by {each['actor']}: {each['reason']}"
    name = " ".join(part for part in (each["name"], each["code"]) if part)
    return f"{name}: {each['message']}" if each["message"] else name
