"""``apply``: policies and plans as the kinds file says, the difference shown first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handlers.cli.answer import GOOD, NOT_GOOD, Answer, JsonOption, answering, console
from handlers.cli.options import ActorOption, NamespaceOption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from handlers.cli.session import Session
    from handlers.shape import Json
    from shared.archive.kinds import KindsFile
    from shared.plans.difference import Difference

# How each value is called, as the kinds file writes it.
CALLED = {
    "after_days": "after",
    "interval_seconds": "every",
    "batch_size": "batch",
    "max_bytes": "max_bytes",
    "scope": "scope",
    "enabled": "enabled",
}
# Of what is neither, something changes.
MARKS = {"create": "+", "adopt": "="}
# Goes without saying of what is new.
SWITCHED_ON = {"name": "enabled", "from": None, "to": True}


@answering
def apply(
    *,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="KINDS.toml", help="TALLYSTICK_KINDS_FILE when left out."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing; exit code 1 when there is a difference."),
    ] = False,
    reason: Annotated[
        str | None,
        typer.Option("--reason", help="Why, in one line.", show_default="the file and its digest"),
    ] = None,
    namespace: NamespaceOption = None,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Make policies and plans what the kinds file says.

    The difference is shown first, with what was set by hand since. What the file does not speak of is never
    deleted: plans that an earlier apply made are disabled, others left.
    """
    from handlers.cli.session import session, signed
    from shared import declaration
    from shared.plans import applying, namespaces

    with session() as opened:
        settings = opened.settings
        asked = declaration.chosen(file, settings.kinds_file)
        signature = signed(actor, reason or applying.reason_of(asked.path, asked.sha256))
        owner = namespaces.find(opened.control, namespace)["name"]
        declared = declaration.declared(asked, owner, opened.url, settings.archive_storage_id)
        found = applying.compare(opened.control, declared, owner)
        item = _document(opened, owner, asked, found)
        if check:
            return Answer(item, lambda out: _show(out, item), NOT_GOOD if found.steps else GOOD)
        if not as_json:
            _show(console(), item)
        _take_volume(opened, found)
        item["applied"] = applying.apply(opened.control, declared, owner, found, signature)
    return Answer(item, lambda out: _show_end(out, item))


def _take_volume(opened: Session, found: Difference) -> None:
    """Have the database know the volume that plans are made for; refuse before anything is changed."""
    from handlers.cli.session import opened_volume
    from shared.volume import ledger

    if found.needs_volume:
        with opened_volume(opened.settings) as volume:
            ledger.visit(opened.control, volume)


def _document(opened: Session, owner: str, asked: KindsFile, found: Difference) -> Json:
    from handlers import difference, shape
    from shared.plans import applying

    hands = applying.hands(opened.control, found.drift)
    unset = opened.settings.kinds_file is None
    return {
        "namespace": owner,
        "file": str(asked.path),
        "sha256": asked.sha256,
        "changes": [difference.step(step) for step in found.steps],
        "drift": [difference.drift(drift, hand) for drift, hand in hands.items()],
        "unmanaged": [difference.unmanaged(each) for each in found.unmanaged],
        "elsewhere": [
            {"kind": each.name, "namespace": each.only_namespace} for each in asked.elsewhere(owner)
        ],
        "notes": [shape.told("kinds-file-unset", {"file": str(asked.path)})] if unset else [],
        "applied": False,
    }


def _show(out: Console, item: Json) -> None:
    """Show the difference, and what is no part of it."""
    for change in item["changes"]:
        for line in _lines(change, item["drift"]):
            out.print(line, soft_wrap=True)
    if not item["changes"]:
        text = f"Policies and plans of {item['namespace']} are as {item['file']} says."
        out.print(text, soft_wrap=True)
    left = [f"{_name(each)}{_switched(each)}" for each in item["unmanaged"]]
    if left:
        out.print(f"Not in the file, left as they are: {', '.join(left)}.", soft_wrap=True)
    others = [f"{each['kind']} ({each['namespace']})" for each in item["elsewhere"]]
    if others:
        out.print(f"Of other namespaces, not looked at: {', '.join(others)}.", soft_wrap=True)
    for note in item["notes"]:
        out.print(f"{note['message']}\n{note['next']}", soft_wrap=True)


def _show_end(out: Console, item: Json) -> None:
    if item["applied"]:
        out.print(f"Applied to {item['namespace']}.", soft_wrap=True)
    elif item["changes"]:
        out.print("Somebody else has applied it meanwhile.", soft_wrap=True)


def _lines(change: Json, drift: list[Json]) -> Iterator[str]:
    from handlers.cli.table import minute, short

    mark = "-" if change["gone"] else MARKS.get(change["action"], "~")
    yield f"{mark} {_name(change)}: {_what(change)}"
    if change["stops"]:
        yield f"  the open job {short(change['stops'])} will stop at its next batch: POLICY_CHANGED"
    about = ("subject", "operation", "kind")
    for each in drift:
        if [each[name] for name in about] != [change[name] for name in about]:
            continue
        name, now, applied = each["name"], each["now"], each["applied"]
        who = f"by {each['actor']} on {minute(each['occurred_at'])}: {each['reason']}"
        yield (
            f"  drift: {CALLED[name]} was set to {_text(name, now)} ({_text(name, applied)} was applied) "
            + (who if each["actor"] else "by somebody the audit no longer names")
        )


def _what(change: Json) -> str:
    if change["gone"]:
        return "no longer in the file: disabled, not deleted"
    if change["action"] == "adopt":
        return "is as the file says; from now on what is set by hand shows as drift"
    if change["action"] == "create":
        return ", ".join(_new(each) for each in _ordered(change) if each != SWITCHED_ON)
    if not change["values"]:
        return "bound to its policy as it is now"
    return ", ".join(
        f"{CALLED[each['name']]} {_text(each['name'], each['from'])} -> {_to(each)}"
        for each in _ordered(change)
    )


def _ordered(change: Json) -> list[Json]:
    order = list(CALLED)
    return sorted(change["values"], key=lambda each: order.index(each["name"]))


def _new(value: Json) -> str:
    return "disabled" if value["name"] == "enabled" else f"{CALLED[value['name']]} {_to(value)}"


def show_drift(out: Console, item: Json) -> None:
    """Say what of a policy or plan in a list was set since the kinds file was applied."""
    for each in item["drift"]:
        name, now, applied = each["name"], each["now"], each["applied"]
        out.print(
            f"  Drift: {CALLED[name]} was set to {_text(name, now)} since `apply`, which left"
            f" {_text(name, applied)}.",
            soft_wrap=True,
        )


def _name(each: Json) -> str:
    return f"{each['subject']} {each['kind'] or each['operation']}"


def _switched(each: Json) -> str:
    return "" if each["enabled"] else " (disabled)"


def _to(value: Json) -> str:
    return _text(value["name"], value["to"])


def _text(name: str, value: Any) -> str:  # noqa: ANN401 - of a policy or a plan
    """Return a value as the kinds file writes it."""
    from handlers.cli.table import cell
    from handlers.cli.values import as_duration, as_size

    if name == "after_days":
        return f"{value}d"
    if name == "interval_seconds":
        return as_duration(value)
    if name == "max_bytes":
        return as_size(value)
    return cell(value)
