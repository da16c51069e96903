"""``volume``: the directory that archives are written to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from handlers.cli.answer import GOOD, NOT_GOOD, Answer, answering
from handlers.cli.options import ActorOption, ReasonOption, RevisionOption
from handlers.cli.values import storage_id

if TYPE_CHECKING:
    from rich.console import Console

    from handlers.cli.session import Session
    from handlers.shape import Json

app = typer.Typer(help="The directory that archives are written to.", no_args_is_help=True)


@app.command("init")
@answering
def init(
    root: Annotated[Path, typer.Option("--root", metavar="DIR", help="A new or empty directory.")],
    wanted_id: Annotated[
        str | None,
        typer.Option(
            "--storage-id",
            parser=storage_id,
            metavar="HEX",
            help="Its identity (a fresh one); a volume that has it already is left as it is.",
        ),
    ] = None,
) -> Answer:
    """Make a directory a volume, with a storage id.

    It is made with mode 0700 where it is not there. The two settings to export are shown.
    """
    from shared.volume import identity

    place = root.absolute()
    made_id = identity.initialise(place, wanted_id)
    exports = {
        "TALLYSTICK_ARCHIVE_ROOT": str(place),
        "TALLYSTICK_ARCHIVE_STORAGE_ID": made_id,
    }

    def show(out: Console) -> None:
        import shlex

        for name, value in exports.items():
            out.print(f"export {name}={shlex.quote(value)}", soft_wrap=True)

    return Answer({"root": str(place), "storage_id": made_id, "settings": exports}, show)


@app.command("show")
@answering
def show() -> Answer:
    """Show this node's volume, and those the database knows.

    Exit code 1 when this node's volume cannot be used.
    """
    from handlers import shape
    from handlers.cli.session import session
    from shared.volume import ledger

    with session() as opened:
        settings = opened.settings
        problem = _problem(opened) if settings.archive_root is not None else None
        items = [shape.volume(row) for row in ledger.listed(opened.control)]
    root = settings.archive_root
    document = {
        "configured": root is not None,
        "root": str(root) if root is not None else None,
        "storage_id": settings.archive_storage_id,
        "max_bytes": settings.archive_max_bytes,
        "usable": root is not None and problem is None,
        "problem": problem,
        "items": items,
    }
    code = NOT_GOOD if problem else GOOD
    return Answer(document, lambda out: _show(out, document), code)


@app.command("adopt")
@answering
def adopt(
    reason: ReasonOption, actor: ActorOption = None, revision: RevisionOption = None
) -> Answer:
    """Accept a copy, or a restored volume, as the volume.

    It says whether the file that was settled last is there. A volume without it goes on from what it has.
    """
    from handlers import shape
    from handlers.cli.session import opened_volume, session, signed
    from shared.volume import ledger

    signature = signed(actor, reason, revision)
    with session() as opened, opened_volume(opened.settings) as volume:
        item = shape.adopted(ledger.adopt(opened.control, volume, signature))
    lines = [f"Volume {item['storage_id']} is this directory now (revision {item['revision']})."]
    last, problem = item["expected"], item["problem"]
    if problem is not None:
        lines += [
            f"It was adopted although this was found: {problem['message']}",
            "`tallystick archive verify --all` shows what else is missing.",
        ]
    elif last is not None:
        lines.append(
            f"The file that was settled last, {last['directory']}/{last['file']}, is there, whole."
        )

    def show(out: Console) -> None:
        for line in lines:
            out.print(line, soft_wrap=True)

    return Answer(item, show)


def _problem(opened: Session) -> Json | None:
    from handlers import shape
    from handlers.cli.session import opened_volume
    from shared.errors import Missing
    from shared.volume import identity, ledger

    root = opened.settings.archive_root
    assert root is not None  # noqa: S101 - the caller asks for a volume that is configured
    try:
        with opened_volume(opened.settings) as volume:
            identity.check_writable(volume, root)
            ledger.recognise(opened.control, volume)
    except Missing as missing:
        return shape.error(missing)
    return None


def _show(out: Console, found: Json) -> None:
    from handlers.cli.table import facts, minute, table
    from shared.messages.template import size_text

    if found["configured"]:
        facts(
            out,
            [
                ("root", found["root"]),
                ("storage id", found["storage_id"]),
                ("budget", size_text(found["max_bytes"])),
                ("usable", found["usable"]),
            ],
        )
    else:
        out.print("No volume is configured on this node.")
    if found["problem"]:
        out.print(found["problem"]["message"], style="red", soft_wrap=True)
        out.print(found["problem"]["next"], soft_wrap=True)
    out.print()
    rows = [
        (
            *(item["storage_id"], size_text(item["used_bytes"])),
            *(size_text(item["reserved_bytes"]), minute(item["probed_at"])),
        )
        for item in found["items"]
    ]
    columns = ("STORAGE ID", ">USED", ">SET ASIDE", "LAST SEEN (UTC)")
    table(out, columns, rows, "The database has seen no volume yet.")
