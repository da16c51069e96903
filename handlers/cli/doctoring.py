"""``doctor``: what is wrong with this installation, and what mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from handlers.cli.answer import GOOD, NOT_GOOD, Answer, answering
from handlers.cli.options import StackOption
from handlers.cli.remote import required

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from handlers.shape import Json
    from shared.doctor.finding import Section

STYLES = {"error": "red", "warning": "yellow", "ok": "green", "skipped": "yellow"}


@answering
def doctor(
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 1 for warnings, too.")
    ] = False,
    aws: Annotated[
        bool, typer.Option("--aws", help="Look at a stack on AWS instead, through its services.")
    ] = False,
    stack: StackOption = None,
) -> Answer:
    """Say what is wrong here, and the command that mends it.

    It changes nothing. Exit code 1 when something is an error.
    """
    from handlers import shape

    document = shape.examination(_deployed(required(stack)) if aws else _here())
    bad = {"error", "warning"} if strict else {"error"}
    code = NOT_GOOD if document["worst"] in bad else GOOD
    return Answer(document, lambda out: _show(out, document), code)


def _deployed(stack: str) -> Sequence[Section]:
    from shared.doctor.deployment import examine

    return examine(stack)


def _here() -> Sequence[Section]:
    from handlers.cli.session import configured
    from shared import wiring
    from shared.db import embedded
    from shared.doctor.examination import examine

    settings = configured()
    # Nothing is started: that no database is running is one of the things to be found.
    url = wiring.named_control(settings) or embedded.url(settings.home)
    return examine(wiring.installation(settings, url))


def _show(out: Console, found: Json) -> None:
    """Print a line for each finding, or one for a subject without any; what mends it below, to be copied."""
    for subject in found["subjects"]:
        items = [item for item in found["findings"] if item["subject"] == subject["subject"]]
        for item in items:
            head = f"{item['severity']:<8} {item['subject']:<9} {item['message']} ({item['code']})"
            out.print(head, style=STYLES.get(item["severity"], ""), soft_wrap=True)
            if item["next"]:
                out.print(f"{'':<18} {item['next']}", soft_wrap=True)
            for line in (*([item["command"]] if item["command"] else []), *item["sql"]):
                out.print(f"    {line}", soft_wrap=True)
        if subject["skipped_for"]:
            rest = "the rest was " if items else ""
            text = f"{rest}not looked at, because of {subject['skipped_for']}"
            out.print(
                f"{'skipped':<8} {subject['subject']:<9} {text}",
                style=STYLES["skipped"],
                soft_wrap=True,
            )
        elif not items:
            out.print(f"{'ok':<8} {subject['subject']}", style=STYLES["ok"])
    counts = found["counts"]
    out.print(f"\n{counts['error']} errors, {counts['warning']} warnings, {counts['info']} notes")
