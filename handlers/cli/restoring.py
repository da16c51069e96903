"""``archive restore``: rows out of archives, back into tables."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from handlers.cli.answer import GOOD, NOT_GOOD, Answer, answering
from handlers.cli.values import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from handlers.shape import Json
    from shared.restore.archives import Archive
    from shared.restore.restoration import Account, Request, Step


TargetArgument = Annotated[
    str, typer.Argument(metavar="DIR|JOB|KIND", help="A directory, a job, or all jobs of a kind.")
]
ToOption = Annotated[
    str, typer.Option("--to", metavar="URL", help="The database that the rows go to.")
]
CreateOption = Annotated[
    bool, typer.Option("--create-tables", help="Make the tables that are not there.")
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table-map", metavar="A=B", help="Rows of schema.table A go into schema.table B."
    ),
]
SchemaOption = Annotated[
    str | None,
    typer.Option("--to-schema", metavar="NAME", help="Tables not mapped go into this schema."),
]
ConflictOption = Annotated[
    Literal["fail", "skip"],
    typer.Option("--on-conflict", help="When a row is there already: stop, or leave it as it is."),
]
KeyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--key", metavar="KEY", help="Only this root and its rows; may be given several times."
    ),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="COLUMN=VALUE",
        help=r"Only roots that hold this text, \N for NULL; several must all be met.",
    ),
]
DryOption = Annotated[
    bool, typer.Option("--dry-run", help="Verify, check and count; write nothing.")
]
ExpectedOption = Annotated[
    str | None,
    typer.Option(
        "--expected-sha256", parser=sha256, metavar="HEX", help="The tail you kept elsewhere."
    ),
]
OwnerOption = Annotated[
    str | None, typer.Option("--namespace", help="Of the kind, where several have it.")
]


@answering
def restore(
    target: TargetArgument,
    *,
    to: ToOption,
    create_tables: CreateOption = False,
    table_map: MapOption = None,
    to_schema: SchemaOption = None,
    on_conflict: ConflictOption = "fail",
    key: KeyOption = None,
    where: WhereOption = None,
    dry_run: DryOption = False,
    expected_sha256: ExpectedOption = None,
    namespace: OwnerOption = None,
) -> Answer:
    """Bring archived rows back into tables.

    Everything is verified and every table checked before the first row is written. Each batch comes
    whole or not at all; run it again after a crash and it goes on. Exit code 1 when a key was not found.
    """
    from handlers.cli.places import places
    from shared.restore import tables
    from shared.restore.restoration import Request
    from shared.restore.restoration import restore as run

    request = Request(
        table_map=tables.table_map(table_map or []),
        to_schema=to_schema,
        create_tables=create_tables,
        skip=on_conflict == "skip",
        dry_run=dry_run,
        keys=tuple(key or ()),
        where=tuple(where or ()),
    )
    chosen = places(target, expected_sha256, namespace)
    with _progress() as watch:
        account = run(chosen, to, request, watch)
    found = _document(account, request)
    code = NOT_GOOD if account.keys_missing else GOOD
    return Answer(found, lambda out: _show(out, found), code)


def _document(account: Account, request: Request) -> Json:
    from handlers import shape

    return {
        "dry_run": request.dry_run,
        "archives": [_archive(each) for each in account.archives],
        "batches": {"restored": account.batches_restored, "skipped": account.batches_skipped},
        "tables": [
            {"table": account.targets[name], "target": name, "restored": brought, "skipped": left}
            for name, (brought, left) in account.rows.items()
        ],
        "created": account.created,
        "sequences": account.sequences,
        "keys_missing": account.keys_missing,
        "warnings": [shape.told(str(each.code), each.params) for each in account.warnings],
    }


def _archive(archive: Archive) -> Json:
    return {
        "directory": str(archive.path),
        "job": archive.manifest.job,
        "kind": archive.manifest.kind,
        "verdict": str(archive.verdict),
        "batches": len(archive.batches),
        "tail": archive.tail,
        "unrecorded": list(archive.unrecorded),
    }


@contextmanager
def _progress() -> Iterator[Callable[[Step], None]]:
    """Show how far it is on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from handlers.cli.answer import console

    out = console(errors=True)
    with out.status("") as status:

        def told(step: Step) -> None:
            of = f" of {step.batches}" if step.batches else ""
            doing = "Restoring" if step.doing == "restore" else "Verifying"
            status.update(f"{doing}: {step.done}{of} batches, {step.rows} rows")

        yield told


def _show(out: Console, found: Json) -> None:
    from handlers.cli.table import table

    for warning in found["warnings"]:
        out.print(f"warning: {warning['message']}", style="yellow", soft_wrap=True)
        if warning["next"]:
            out.print(f"  {warning['next']}", soft_wrap=True)
    for name in found["created"]:
        out.print(f"{'would make' if found['dry_run'] else 'made'} {name}", soft_wrap=True)
    rows = [
        (each["table"], each["target"], each["restored"], each["skipped"])
        for each in found["tables"]
    ]
    columns = ("TABLE", "TARGET", ">WOULD RESTORE" if found["dry_run"] else ">RESTORED", ">LEFT")
    table(out, columns, rows, "", folds=["TABLE", "TARGET"])
    for each in found["sequences"]:
        out.print(f"{each['sequence']} moved to {each['value']}", soft_wrap=True)
    _show_batches(out, found)
    for key in found["keys_missing"]:
        out.print(
            f"There is no root with the key {key} in the archive.", style="red", soft_wrap=True
        )


def _show_batches(out: Console, found: Json) -> None:
    restored, skipped = found["batches"]["restored"], found["batches"]["skipped"]
    out.print(f"{restored} batches {'would be restored' if found['dry_run'] else 'restored'}.")
    if skipped:
        out.print(
            f"{skipped} batches had been restored before (tallystick_restore.batch in the target says so).",
            soft_wrap=True,
        )
    for archive in found["archives"]:
        if archive["verdict"] == "CONSISTENT":
            out.print(
                f"{archive['directory']} is consistent, not anchored: whether its end was cut off cannot be"
                " told without --expected-sha256.",
                soft_wrap=True,
            )
        if archive["unrecorded"]:
            out.print(
                f"{archive['directory']}: {len(archive['unrecorded'])} files past the expected tail were"
                " left out.",
                soft_wrap=True,
            )
