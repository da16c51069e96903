"""``archive``: verify what was written, and the tails to keep elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from handlers.cli import exporting, restoring
from handlers.cli.answer import GOOD, NOT_GOOD, Answer, answering
from handlers.cli.reading import cat, find, query

if TYPE_CHECKING:
    from rich.console import Console

    from handlers.cli.session import Session
    from handlers.shape import Json
    from shared.jobs.reading import NamedJob

app = typer.Typer(
    help="Verify archives, and show the tails to keep elsewhere.", no_args_is_help=True
)
app.command("restore")(restoring.restore)
app.command("find")(find)
app.command("cat")(cat)
app.command("query")(query)
app.command("export")(exporting.export)
BAD = frozenset({"BROKEN", "UNREADABLE"})
JOB = re.compile(r"[0-9a-fA-F]{8}[0-9a-fA-F-]{0,28}")
SHOWN_MAX = 20
SHA256 = re.compile(r"[0-9a-f]{64}")


@app.command("verify")
@answering
def verify(
    target: Annotated[
        str | None, typer.Argument(metavar="DIR|JOB", help="A directory, or the id of a job.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--directory", metavar="DIR", help="The same as the argument.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every job of this node's volume, one line each.")
    ] = False,
    expected_sha256: Annotated[
        str | None,
        typer.Option("--expected-sha256", metavar="HEX", help="The tail you kept elsewhere."),
    ] = None,
    require_final: Annotated[
        bool, typer.Option("--require-final", help="Exit code 1 without a final batch, too.")
    ] = False,
) -> Answer:
    """Verify an archive from the first byte to the last.

    Exit code 1 when it is broken; every damage is named, with the batches that are still sound. A
    directory needs no database and no settings; a job is looked up, and its recorded tail expected.
    """
    if sum((target is not None, directory is not None, every)) != 1:
        problem = "give one of: a directory, a job, --all"
        raise typer.BadParameter(problem)
    if expected_sha256 is not None and not SHA256.fullmatch(expected_sha256.lower()):
        problem = f"{expected_sha256!r} is no SHA-256: 64 hex digits"
        raise typer.BadParameter(problem)
    expected = expected_sha256.lower() if expected_sha256 else None
    if every:
        if expected:
            problem = "--expected-sha256 is of one archive; --all expects the recorded tails"
            raise typer.BadParameter(problem)
        return _all(require_final=require_final)
    place = directory or Path(target or "")
    if directory is None and JOB.fullmatch(str(target)) and not place.exists():
        found = _one(str(target), expected)
    else:
        found = _directory(place, expected)
    return Answer(found, lambda out: _show(out, found), _code([found], require_final=require_final))


@app.command("tails")
@answering
def tails() -> Answer:
    """Show the tails to keep elsewhere, one of each kind."""
    from handlers import shape
    from handlers.cli.session import session
    from shared.jobs import reading

    with session() as opened:
        items = [shape.tail(found) for found in reading.tails(opened.control)]
    return Answer({"items": items}, lambda out: _show_tails(out, items))


def _directory(place: Path, expected: str | None) -> Json:
    from handlers import verdict
    from shared.volume.directory import verified

    return verdict.chain(verified(place, expected, first_only=False), str(place))


def _one(text: str, expected: str | None) -> Json:
    from handlers.cli.session import session
    from shared.errors import Code, Refused
    from shared.jobs import reading, store

    with session() as opened:
        job = store.get(opened.control, reading.find(opened.control, text))
        root = opened.settings.archive_root
    if root is None:
        raise Refused(Code.VOLUME_NOT_CONFIGURED)
    return _directory(root / job.directory, expected or job.last_sha256)


def _all(*, require_final: bool) -> Answer:
    from handlers.cli.session import session

    with session() as opened:
        items = [_line(opened, found) for found in _archived(opened)]
    return Answer(
        {"items": items},
        lambda out: _show_all(out, items),
        _code(items, require_final=require_final),
    )


def _archived(opened: Session) -> list[NamedJob]:
    from shared.errors import Code, Refused
    from shared.jobs import reading

    if opened.settings.archive_storage_id is None:
        raise Refused(Code.VOLUME_NOT_CONFIGURED)
    return reading.archived(opened.control, opened.settings.archive_storage_id)


def _line(opened: Session, found: NamedJob) -> Json:
    from handlers import verdict
    from shared.errors import Refused

    root = opened.settings.archive_root or Path()
    try:
        item = _directory(root / found.job.directory, found.job.last_sha256)
    except Refused as refused:
        item = verdict.unread(refused, str(root / found.job.directory))
    # Which job it is says the database; the directory may be another's.
    return item | {
        "job": str(found.job.id),
        "namespace": found.namespace,
        "kind": found.job.kind,
        "state": str(found.job.state),
    }


def _code(items: list[Json], *, require_final: bool) -> int:
    bad = any(item["verdict"] in BAD or (require_final and not item["final"]) for item in items)
    return NOT_GOOD if bad else GOOD


def _show(out: Console, found: Json) -> None:
    from handlers.cli.table import COLOURS, facts
    from shared.messages.template import size_text

    out.print(found["message"], style=COLOURS.get(found["verdict"], ""), soft_wrap=True)
    if found["next"]:
        out.print(found["next"], soft_wrap=True)
    facts(
        out,
        [
            ("directory", found["directory"]),
            ("job", found["job"]),
            ("kind", f"{found['namespace']}/{found['kind']}" if found["kind"] else None),
            ("verified", f"{found['batches']} batches, {size_text(found['bytes'])}"),
            ("rows", f"{found['roots']} roots, {found['rows']} rows in all"),
            ("tail", found["tail"]),
        ],
    )
    if found["harmless"]:
        names = ", ".join(found["harmless"][:SHOWN_MAX])
        out.print(
            f"left by file systems and desktops, no damage: {names}", soft_wrap=True, markup=False
        )
    _show_damages(out, found)


def _show_damages(out: Console, found: Json) -> None:
    damages = found["damages"]
    if not damages:
        return
    more = found["damages_left_out"]
    if len(damages) > 1:
        out.print(f"\ndamages: {len(damages) + more}", style="red")
    for damage in damages if len(damages) > 1 else []:
        place = damage.get("file") or damage.get("entry") or ""
        out.print(f"  {place}  {damage['message']}", soft_wrap=True, markup=False)
    if more:
        out.print(f"  and {more} more")
    runs = [str(first) if first == last else f"{first} to {last}" for first, last in found["sound"]]
    sound = ", ".join(runs) if runs else "none"
    out.print(
        f"batches that are consistent, those of each run following from one another: {sound}",
        soft_wrap=True,
    )


def _show_all(out: Console, items: list[Json]) -> None:
    from handlers.cli.table import short, table
    from shared.messages.template import size_text

    rows = [
        (
            *(short(item["job"]), f"{item['namespace']}/{item['kind']}", item["verdict"]),
            *(item["batches"], item["roots"], size_text(item["bytes"]), item["state"]),
        )
        for item in items
    ]
    columns = ("JOB", "KIND", "VERDICT", ">BATCHES", ">ROOTS", ">BYTES", "STATE")
    table(out, columns, rows, "Nothing was archived on this volume yet.", folds=["KIND"])
    for item in items:
        if item["verdict"] in BAD:
            out.print(f"\n{short(item['job'])}: {item['message']}", style="red", soft_wrap=True)
            out.print(item["next"], soft_wrap=True)


def _show_tails(out: Console, items: list[Json]) -> None:
    from shared.messages.template import size_text

    if not items:
        out.print("Nothing was archived yet.")
    for item in items:
        out.print(
            f"{item['namespace']}/{item['kind']}  {item['state']}  {item['batches']} batches"
            f"  {item['roots']} roots  {size_text(item['bytes'])}",
            soft_wrap=True,
        )
        out.print(f"  job   {item['job']}\n  tail  {item['tail']}", soft_wrap=True)
