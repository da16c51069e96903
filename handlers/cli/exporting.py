"""``archive export``: one archive now, with nothing but a database to read and a directory to write to."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from handlers.cli.answer import Answer, answering
from handlers.cli.drafting import (
    BATCH_DEFAULT,
    BatchOption,
    KindFileOption,
    OwnerOption,
    TimeOption,
    UnitOption,
)

if TYPE_CHECKING:
    from rich.console import Console

    from handlers.cli.drafting import Chosen
    from handlers.shape import Json
    from shared.operations.export import Exported, Progress

SHA256 = re.compile(r"[0-9a-f]{64}")
UntilOption = Annotated[
    str,
    typer.Option(
        "--until", metavar="TIME", help="Rows before this: 2024-01-01, 2024-01-01T00:00Z."
    ),
]
DirectoryOption = Annotated[
    Path,
    typer.Option(
        "--directory", metavar="DIR", help="A new or empty directory, or an unfinished export."
    ),
]
ExpectedOption = Annotated[
    str | None,
    typer.Option(
        "--expected-sha256", metavar="HEX", help="A tail of the unfinished export, kept elsewhere."
    ),
]


@answering
def export(
    *,
    kind: Annotated[
        str, typer.Argument(metavar="KIND|TABLE", help="A kind, or schema.table to draft one.")
    ],
    until: UntilOption,
    directory: DirectoryOption,
    batch_size: BatchOption = None,
    time: TimeOption = None,
    time_unit: UnitOption = None,
    kind_file: KindFileOption = None,
    namespace: OwnerOption = "default",
    expected_sha256: ExpectedOption = None,
) -> Answer:
    """Archive a kind or a table into a directory, now.

    It needs no migration, plan or job, and only reads: a read-only user or a standby will do. Run the same
    command again after whatever interrupted it: it verifies what is there and goes on after the last file.
    """
    from handlers.cli import drafting
    from handlers.cli.session import configured
    from shared import wiring
    from shared.archive.opening import End
    from shared.operations import export as exporting

    if expected_sha256 is not None and not SHA256.fullmatch(expected_sha256.lower()):
        problem = f"{expected_sha256!r} is no SHA-256: 64 hex digits"
        raise typer.BadParameter(problem)
    moment = _moment(until)
    settings = configured()
    chosen = drafting.choose(settings, kind, kind_file, time=time, time_unit=time_unit)
    if chosen.draft is not None:
        typer.echo(drafting.follows(chosen.draft), err=True)
    order = exporting.Order(
        kind=chosen.kind,
        namespace=namespace,
        end=End(until=_as_read(moment, chosen.kind.kind.time_zone)),
        directory=directory,
        batch_size=batch_size or chosen.kind.kind.batch or BATCH_DEFAULT,
        writer=wiring.writer(),
        seconds=settings.deadline_seconds,
        expected=expected_sha256.lower() if expected_sha256 else None,
        hidden_margin=settings.hidden_margin_seconds,
    )
    shown = _Shown()
    about = {"directory": str(directory), "kind": chosen.kind.name}
    with drafting.reading(settings, chosen.kind.source, **about) as source:
        try:
            done = exporting.export(source, order, shown.told)
        finally:
            shown.end()
    item = _document(chosen, done, directory)
    return Answer(item, lambda out: _show(out, item))


class _Shown:
    """Progress on one line of standard error, where somebody may be watching."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._open = False

    def told(self, progress: Progress) -> None:
        """Show where the export stands, and what it is trying to get past."""
        from shared.messages.template import size_text

        if not self._terminal:
            return
        position = progress.position
        line = f"{position.seq} batches, {position.roots} roots, {size_text(position.bytes)}"
        if progress.trouble is not None:
            from handlers import shape

            line += f"; {shape.error(progress.trouble)['message']}"
        typer.echo(f"\r\x1b[K{line}", nl=False, err=True)
        self._open = True

    def end(self) -> None:
        """Leave the line."""
        if self._open:
            typer.echo(err=True)
            self._open = False


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        problem = f"{text!r} is no time; write 2024-01-01, or 2024-01-01T00:00:00Z"
        raise typer.BadParameter(problem) from None


def _as_read(moment: datetime, zone: str) -> str:
    """Return an instant as the server reads it; one without a zone is meant in the kind's."""
    text = moment.isoformat(sep=" ")
    return text if moment.tzinfo is not None else f"{text} {zone}"


def _document(chosen: Chosen, done: Exported, directory: Path) -> Json:
    from dataclasses import asdict

    from handlers import shape
    from shared.archive.count import findings

    manifest, position = done.manifest, done.position
    return {
        "directory": str(directory),
        "kind": manifest.kind,
        "job": manifest.job,
        "drafted": chosen.draft is not None,
        "tables": [table.label for table in manifest.tables],
        "left_out": [str(link.child) for link, _ in chosen.draft.left_out] if chosen.draft else [],
        "cutoff": manifest.window.cutoff,
        "cutoff_asked": done.cutoff_asked,
        "held_back": _held_back(done),
        "margin_seconds": manifest.window.margin_seconds,
        "resumed_after": done.resumed_after,
        "batches": position.seq,
        "roots": position.roots,
        "rows": position.rows,
        "bytes": position.bytes,
        "tail": position.tail,
        "window": None if done.counts is None else [asdict(each) for each in done.counts],
        "warnings": [
            shape.told("WINDOW_COUNT", found)
            for found in findings(done.counts or (), done.roots_at_start)
        ],
    }


def _held_back(done: Exported) -> Json | None:
    """Say why the window ends earlier than asked; it is as it was begun where that was before."""
    from handlers import shape
    from shared.errors import Code

    window = done.manifest.window
    if done.held_back is None or window.cutoff != done.cutoff_asked:
        return None
    return shape.told(
        Code.WINDOW_HELD_BACK,
        {
            "cause": done.held_back,
            "kind": done.manifest.kind,
            "cutoff": window.cutoff,
            "margin": window.margin_seconds,
        },
    )


def _show(out: Console, item: Json) -> None:
    from handlers.cli.table import facts
    from shared.messages.template import size_text

    if item["resumed_after"] == item["batches"]:
        out.print("The export was finished already; it verifies.", style="green")
    else:
        out.print("Exported; every file was read back and verified.", style="green")
    if item["cutoff"] != item["cutoff_asked"]:
        out.print(
            f"Its window ends at {item['cutoff']}, as when it was begun; this command would have ended"
            f" it at {item['cutoff_asked']}.",
            style="yellow",
            soft_wrap=True,
        )
    elif item["held_back"] is not None:
        out.print(item["held_back"]["message"], style="yellow", soft_wrap=True)
        out.print(item["held_back"]["next"], soft_wrap=True)
    for warning in item["warnings"]:
        out.print(f"warning: {warning['message']}", style="yellow", soft_wrap=True)
        out.print(f"  {warning['next']}", soft_wrap=True)
    facts(
        out,
        [
            ("directory", item["directory"]),
            ("kind", f"{item['kind']} ({', '.join(item['tables'])})"),
            ("window", f"before {item['cutoff']}"),
            ("written", f"{item['batches']} batches, {size_text(item['bytes'])}"),
            ("rows", f"{item['roots']} roots, {item['rows']} rows in all"),
            ("tail", item["tail"]),
        ],
    )
    out.print("Keep the tail somewhere else: with it, a lost or altered end is noticed:")
    out.print(
        f"  tallystick archive verify {item['directory']} --expected-sha256 {item['tail']}",
        soft_wrap=True,
    )
