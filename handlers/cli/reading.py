"""``archive find``, ``cat`` and ``query``: one record, one table or an answer out of archives."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from handlers.cli.answer import GOOD, Answer, answering, console
from handlers.cli.chains import chains_of, note, tell
from handlers.cli.terminal import harmless, printable
from handlers.cli.values import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console

    from handlers.shape import Json
    from shared.restore import query as asking
    from shared.restore.cat import Selection
    from shared.restore.find import Found

PROGRESS_SECONDS = 0.2

TargetArgument = Annotated[
    str, typer.Argument(metavar="DIR|JOB|KIND", help="A directory, a job, or all jobs of a kind.")
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
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document and nothing else.")
]


@answering
def find(
    target: TargetArgument,
    key: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY...", help="The root's key as Postgres prints it, one text to a column."
        ),
    ],
    index: Annotated[
        Path | None, typer.Option("--index", metavar="DIR", help="Where the indexes are kept.")
    ] = None,
    no_index: Annotated[
        bool, typer.Option("--no-index", help="Read every batch, and keep no index.")
    ] = False,
    expected_sha256: ExpectedOption = None,
    namespace: OwnerOption = None,
) -> Answer:
    """Find one root: where it is, and its rows.

    An index is built from the archive the first time. It only says where to look: what is shown comes from
    a batch that was verified just then. Exit code 1 when the root is in none.
    """
    from handlers.cli.places import places
    from shared.errors import Code, Verdict
    from shared.restore import find as finding

    chosen = places(target, expected_sha256, namespace)
    folder = None if no_index else index or _index_folder(target)
    text = finding.key_text(key)
    with _progress() as progress:
        found = finding.find(chosen, text, folder, progress)
    if not found:
        columns = list(chosen[-1].manifest.key) if chosen else []
        raise Verdict(Code.ROOT_NOT_FOUND, key=text, columns=columns, archives=len(chosen))
    items = [_found(each) | {"newest": place == 0} for place, each in enumerate(found)]
    if len(items) > 1:
        tell([note("find-repeated", {"count": len(items)})])
    return Answer({"key": list(key), "places": items}, lambda out: _show_found(out, items))


@answering
def cat(
    target: TargetArgument,
    table: Annotated[
        str, typer.Option("--table", metavar="TABLE", help="Which table, e.g. public.invoice.")
    ],
    form: Annotated[
        Literal["csv", "jsonl"], typer.Option("--format", help="CSV with a header, or JSON Lines.")
    ] = "csv",
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="A,B", help="Only these columns, in this order."),
    ] = None,
    expected_sha256: ExpectedOption = None,
    namespace: OwnerOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Print the rows of one table.

    Nothing is printed of a batch before it is verified. Exit code 1 when one is broken.
    """
    from shared.restore import cat as printing

    with (
        chains_of(target, expected_sha256, namespace) as chains,
        _progress(beside=sys.stdout.isatty()) as progress,
    ):
        chosen = printing.selection(chains, table, columns)
        tell(_differences(chosen))
        if as_json:
            lines = _split(printing.json_lines(chosen, progress))
            _print_document({"table": table, "columns": list(chosen.columns)}, lines)
        elif form == "jsonl":
            _print(printing.json_lines(chosen, progress))
        else:
            _print(printing.csv_text(chosen, progress))
    raise typer.Exit(GOOD)


@answering
def query(
    target: TargetArgument,
    sql: Annotated[
        str | None, typer.Argument(metavar="SQL", help="One SELECT, in DuckDB's SQL.")
    ] = None,
    form: Annotated[
        Literal["table", "csv", "jsonl"], typer.Option("--format", help="How the rows are printed.")
    ] = "table",
    to_parquet: Annotated[
        Path | None,
        typer.Option("--to-parquet", metavar="DIR", help="Write each table to a Parquet file."),
    ] = None,
    expected_sha256: ExpectedOption = None,
    namespace: OwnerOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Ask archives in SQL, or turn them into Parquet.

    Needs DuckDB, the optional extra `query`. Tables have the names they had in the source, columns a type
    that holds every value exactly.
    """
    from shared.restore import query as asking

    if (sql is None) == (to_parquet is None):
        problem = "give one of: SQL, --to-parquet"
        raise typer.BadParameter(problem)
    with (
        chains_of(target, expected_sha256, namespace) as chains,
        _progress() as progress,
        asking.loaded(chains, sql, progress) as rows,
    ):
        kept = [_kept(each) for each in rows.kept]
        if to_parquet is not None:
            found = {"files": _written(rows, to_parquet), "kept_as_text": kept}
            return Answer(found, lambda out: _show_files(out, found))
        tell(kept)
        _print_answer(asking.answer(rows, sql or ""), "json" if as_json else form)
    raise typer.Exit(GOOD)


def _index_folder(target: str) -> Path:
    """Return where indexes are kept: in the home of a deployment, or in the cache for a directory alone."""
    if Path(target).exists() or "/" in target:
        base = os.environ.get("XDG_CACHE_HOME")
        return (Path(base) if base else Path.home() / ".cache") / "tallystick" / "index"
    from handlers.cli.session import configured

    return configured().home / "index"


def _found(found: Found) -> Json:
    manifest = found.place.manifest
    return {
        "job": manifest.job,
        "namespace": manifest.namespace.name,
        "kind": manifest.kind,
        "directory": str(found.place.path),
        "file": found.file,
        "seq": found.seq,
        "sha256": found.sha256,
        "anchored": found.place.expected is not None,
        "rows": {
            table.label: [dict(zip(table.copied, row, strict=True)) for row in rows]
            for table, rows in found.rows
        },
    }


def _show_found(out: Console, items: Sequence[Json]) -> None:
    from handlers.cli.table import facts

    for place, item in enumerate(items):
        if place:
            out.print()
        names = ("directory", "file", "sha256", "job")
        kind = f"{item['namespace']}/{item['kind']}"
        pairs = [(name, item[name]) for name in names]
        facts(out, [*pairs, ("kind", kind), ("anchored", item["anchored"])])
        for label, rows in item["rows"].items():
            out.print(f"\n{label}: {len(rows)} row{'' if len(rows) == 1 else 's'}", soft_wrap=True)
            for number, row in enumerate(rows):
                if number:
                    out.print()
                facts(
                    out, [(f"  {printable(name)}", printable(value)) for name, value in row.items()]
                )


def _differences(chosen: Selection) -> list[Json]:
    label = chosen.parts[0].table.label
    notes = []
    if chosen.differing:
        notes.append(note("columns-differ", {"table": label, "columns": list(chosen.differing)}))
    if chosen.without:
        notes.append(note("table-not-everywhere", {"table": label, "jobs": list(chosen.without)}))
    return notes


def _kept(kept: asking.KeptAsText) -> Json:
    about = {name: value for name, value in vars(kept).items() if value}
    return note("kept-as-text" if kept.rows else "kept-as-text/types", about)


def _written(rows: asking.Rows, folder: Path) -> list[Json]:
    """Write a Parquet file per table, under its name only when it is whole, and never over another."""
    from shared.errors import Code, Refused
    from shared.restore import query as asking
    from shared.volume.private import make_private, private_umask

    written = []
    try:
        with private_umask():
            folder.mkdir(parents=True, exist_ok=True)
        for table in rows.tables:
            file = folder / asking.parquet_name(table)
            part = folder / f".{file.name}.{os.getpid()}.part"
            try:
                with private_umask():
                    asking.parquet(rows, table, part)
                make_private(part)
                os.link(part, file)
            finally:
                part.unlink(missing_ok=True)
            written.append(
                {"table": ".".join(table), "file": str(file), "bytes": file.stat().st_size}
            )
    except OSError as error:
        cause = {"cause": "exists"} if isinstance(error, FileExistsError) else {}
        detail = error.strerror or type(error).__name__
        raise Refused(Code.OUTPUT_REFUSED, directory=str(folder), detail=detail, **cause) from error
    return written


def _show_files(out: Console, found: Json) -> None:
    from handlers.cli.table import table
    from shared.messages.template import size_text

    rows = [(each["table"], size_text(each["bytes"]), each["file"]) for each in found["files"]]
    columns = ("TABLE", ">BYTES", "FILE")
    table(out, columns, rows, "There is no table with columns.", folds=["TABLE", "FILE"])
    for each in found["kept_as_text"]:
        out.print(each["message"], soft_wrap=True)


def _print_answer(answer: asking.Answer, form: str) -> None:
    from shared.restore import formats

    if form == "table":
        _print_table(answer)
    elif form == "csv":
        _print([formats.csv_header(answer.columns)])
        _print(formats.csv_row(row) for row in answer.rows)
    else:
        lines = _json_rows(answer)
        if form == "jsonl":
            _print(line + b"\n" for line in lines)
        else:
            pairs = zip(answer.columns, answer.types, strict=True)
            _print_document(
                {"columns": [{"name": name, "type": kind} for name, kind in pairs]}, lines
            )


def _print_table(answer: asking.Answer) -> None:
    from handlers.cli.table import table
    from shared.restore.query import is_number

    pairs = zip(answer.columns, answer.types, strict=True)
    columns = [
        f">{printable(name)}" if is_number(kind) else printable(name) for name, kind in pairs
    ]
    rows = [[printable(value) for value in row] for row in answer.rows]
    table(console(), columns, rows, "No rows.", folds=[name.removeprefix(">") for name in columns])


def _json_rows(answer: asking.Answer) -> Iterator[bytes]:
    from shared.errors import Code, Refused
    from shared.restore.query import json_row

    repeated = {name for name in answer.columns if answer.columns.count(name) > 1}
    if repeated:
        raise Refused(Code.QUERY_REFUSED, cause="duplicate", name=min(repeated))
    write = json_row(answer)
    return (write(row) for row in answer.rows)


def _print(pieces: Iterable[bytes]) -> None:
    """Write rows as they are; on a terminal, what would move its cursor or change its colours is escaped."""
    seen = sys.stdout.isatty()
    sys.stdout.flush()
    for piece in pieces:
        sys.stdout.buffer.write(harmless(piece) if seen else piece)
    sys.stdout.buffer.flush()


def _split(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield from piece.splitlines()


def _print_document(head: Json, lines: Iterable[bytes]) -> None:
    """Print one JSON document whose items stream: it is whole only when the exit code is 0."""
    text = json.dumps(head, ensure_ascii=False)

    def pieces() -> Iterator[bytes]:
        yield text[:-1].encode() + b', "items": ['
        for number, line in enumerate(lines):
            yield (b",\n" if number else b"\n") + line
        yield b"\n]}\n"

    _print(pieces())


@contextmanager
def _progress(*, beside: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Count batches on standard error, where that is a terminal and rows don't go ``beside`` it."""
    if beside or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    shown = 0.0

    def show(done: int, total: int) -> None:
        nonlocal shown
        if done >= total:
            typer.echo("\r\x1b[K", err=True, nl=False)
        elif time.monotonic() - shown >= PROGRESS_SECONDS:
            shown = time.monotonic()
            typer.echo(f"\r{done} of {total} batches\x1b[K", err=True, nl=False)

    try:
        yield show
    finally:
        show(0, 0)
