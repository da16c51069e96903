"""``kinds draft`` and ``preview``: a kind for a table, and what archiving it would come to."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from handlers.cli.answer import Answer, answering
from handlers.cli.values import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from handlers.shape import Json
    from shared.archive.draft import Draft, Link, Partly
    from shared.archive.kinds import NamedKind
    from shared.archive.preview import Preview
    from shared.archive.source import SourceConnection
    from shared.db.connect import Dsn
    from shared.settings import Settings

AFTER_DEFAULT = "365d"
BATCH_DEFAULT = 1000
# A page over many partitions has an index of each.
INDEXES_SHOWN = 3
TimeOption = Annotated[
    str | None,
    typer.Option(
        "--time", metavar="COLUMN", help="Of a table: the column that says how old a row is."
    ),
]
UnitOption = Annotated[
    Literal["s", "ms", "us"] | None,
    typer.Option("--time-unit", help="Of an integer time: what it counts since 1970."),
]
KindFileOption = Annotated[
    Path | None,
    typer.Option("--kind-file", metavar="FILE", help="Instead of TALLYSTICK_KINDS_FILE."),
]

BatchOption = Annotated[
    int | None, typer.Option("--batch-size", min=1, max=100_000, help="Roots in a batch (1000).")
]
OwnerOption = Annotated[
    str, typer.Option("--namespace", help="Whose rows, where rows name their own.")
]


@dataclass(frozen=True)
class Chosen:
    """A kind by its name, or drafted on the spot for a table."""

    kind: NamedKind
    draft: Draft | None


@answering
def draft(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="schema.table")],
    time: TimeOption = None,
    time_unit: UnitOption = None,
    name: Annotated[str | None, typer.Option("--name", help="Of the kind.")] = None,
) -> Answer:
    """Draft a kind for a table, as text for the kinds file.

    Tables that refer to it by declared foreign keys go along, to any depth. Comments say what was decided
    and what stays behind.
    """
    from handlers.cli.session import configured
    from shared.archive import draft as drafting
    from shared.archive.kinds import KIND_NAME

    if name is not None and not KIND_NAME.fullmatch(name):
        problem = f"{name!r} is no name: a lowercase letter, then letters, digits and _, 63 at most"
        raise typer.BadParameter(problem)
    wishes = drafting.Wishes(time, time_unit, name)
    with reading(configured(), "application") as source:
        drafted = drafting.draft(source.open(), table, wishes)
    document = _document(drafted)
    return Answer(document, lambda _: typer.echo(document["text"], nl=False))


@answering
def preview(
    kind: Annotated[
        str, typer.Argument(metavar="KIND|TABLE", help="A kind, or schema.table to draft one.")
    ],
    after: Annotated[
        int | None,
        typer.Option(parser=duration, metavar="TIME", help="How old rows must be (365d)."),
    ] = None,
    batch_size: BatchOption = None,
    time: TimeOption = None,
    time_unit: UnitOption = None,
    kind_file: KindFileOption = None,
    namespace: OwnerOption = "default",
) -> Answer:
    """Tell what archiving a kind would come to.

    Rows, stored bytes, batches, time, and the indexes of a page in the middle. It only reads, and needs no
    control database. Related rows, bytes and time are estimated from real pages all over the window,
    compressed.
    """
    from handlers.cli.session import configured
    from shared.archive import preview as previewing
    from shared.archive.opening import End
    from shared.archive.retention import seconds_of
    from shared.clock import Deadline

    settings = configured()
    chosen = choose(settings, kind, kind_file, time=time, time_unit=time_unit)
    known = chosen.kind.kind
    seconds = after if after is not None else seconds_of(known.after or AFTER_DEFAULT)
    with reading(settings, chosen.kind.source) as source:
        found = previewing.preview(
            source,
            chosen.kind,
            end=End(seconds=seconds),
            namespace=namespace,
            batch_size=batch_size or known.batch or BATCH_DEFAULT,
            deadline=Deadline.after(settings.deadline_seconds),
            hidden_margin=settings.hidden_margin_seconds,
        )
    item = _previewed(chosen, found, seconds, settings.tick_interval)
    return Answer(item, lambda out: _show(out, item))


def choose(
    settings: Settings,
    text: str,
    kind_file: Path | None,
    **wishes: Any,  # noqa: ANN401 - of a draft
) -> Chosen:
    """Return the kind of that name, or one drafted for a table: only a table's name has a dot.

    Raises ``Refused`` when there is no such kind or table.
    """
    from shared.archive import draft as drafting
    from shared.archive import kinds as kinds_file
    from shared.archive import survey
    from shared.archive.kinds import NamedKind

    if "." not in text:
        known = kinds_file.load(kind_file or settings.kinds_file)
        if text in known or not any(wishes.values()):
            return Chosen(survey.chosen(known, text), None)
    with reading(settings, "application") as source:
        drafted = drafting.draft(source.open(), text, drafting.Wishes(**wishes))
    return Chosen(NamedKind(drafted.name, "application", drafted.kind), drafted)


@contextmanager
def reading(settings: Settings, name: str, **about: object) -> Iterator[SourceConnection]:
    """Open a source and tell its troubles as those of a command, which nothing tries again by itself."""
    from contextlib import closing

    from shared.archive.source import SourceConnection
    from shared.errors import Code, TallystickError, Trouble

    of_source = {
        Code.EXPORT_FAILED,
        Code.CREDENTIAL_MISSING,
        Code.BATCH_TOO_LARGE,
        Code.SCHEMA_CHANGED,
    }
    try:
        with closing(SourceConnection(source_url(settings, name))) as source:
            yield source
    except Trouble as trouble:
        code = Code.SOURCE_FAILED if trouble.code in of_source else Code.EXPORT_STOPPED
        raise TallystickError(code, **{**trouble.params, **about}) from trouble


def source_url(settings: Settings, name: str) -> Dsn:
    """Return where rows are read from, starting nothing; raises ``Refused`` where nothing says so."""
    from handlers.cli.session import running_url
    from shared import wiring
    from shared.errors import Code, Refused

    source = wiring.named_source(settings) if name == "application" else None
    found = source or running_url(settings)
    if found is None:
        raise Refused(Code.SOURCE_MISSING if name == "application" else Code.SCHEMA_MISSING)
    return found


def follows(draft: Draft) -> str:
    """Say in one line what was drafted, for whoever did not ask to see the draft."""
    from shared.messages import words

    related = [each.table for each in draft.kind.related]
    params = {"table": draft.kind.root, "time": draft.kind.time, "related": related}
    lines = [words("drafted", params).happened]
    if draft.guessed_unit:
        lines.append(words("drafted-unit", {"unit": draft.kind.time_unit}).happened)
    lines += [words("draft-parts", part_params(each)).happened for each in draft.partly]
    lines += [
        f"{words('draft-left-out', link_params(link)).happened}"
        f" {words(str(why.problem), why.params).happened}"
        for link, why in draft.left_out
    ]
    return "\n".join(lines)


def link_params(link: Link) -> Json:
    """Return a foreign key as the words for it want it."""
    return {
        "child": str(link.child),
        "parent": str(link.parent),
        "columns": list(link.columns),
    }


def part_params(partly: Partly) -> Json:
    """Return a foreign key that only partitions declare as the words for it want it."""
    return {**link_params(partly.link), "count": partly.count, "without": list(partly.without)}


def _document(drafted: Draft) -> Json:
    from handlers import shape
    from shared.archive.written import kind_text
    from shared.messages import words

    return {
        "kind": drafted.name,
        "text": kind_text(drafted, lambda code, params: words(code, params).happened),
        "definition": drafted.kind.definition("application"),
        "guessed_time_unit": drafted.guessed_unit,
        "outside": [link_params(link) for link in drafted.outside],
        "partly_declared": [part_params(each) for each in drafted.partly],
        "left_out": [
            {**link_params(link), **shape.told(str(why.problem), why.params)}
            for link, why in drafted.left_out
        ],
        "findings": [shape.told(str(each.problem), each.params) for each in drafted.findings],
    }


def _previewed(chosen: Chosen, found: Preview, after: int, interval: float) -> Json:
    from handlers import shape

    kind, sample = chosen.kind, found.sample
    extent = found.extent
    edges = {"cutoff": found.cutoff, "oldest": extent.oldest, "newest": extent.newest}
    labels = sample.rows if sample else {}
    return {
        "kind": kind.name,
        "root": kind.kind.root,
        "drafted": chosen.draft is not None,
        "related": [each.table for each in kind.kind.related],
        "after_seconds": after,
        "cutoff": found.cutoff,
        **{f"{name}_time": _instant(text, kind.kind.time_unit) for name, text in edges.items()},
        "roots": found.extent.roots,
        "exact": found.extent.exact,
        "oldest": found.extent.oldest,
        "newest": found.extent.newest,
        "rows": {label: found.scaled(count) for label, count in labels.items()},
        "bytes": found.scaled(sample.bytes) if sample else None,
        "raw_bytes": found.scaled(sample.raw_bytes) if sample else None,
        "batch_size": found.batch_size,
        "batches": found.batches,
        "tick_interval": interval,
        "seconds_at_interval": found.batches * max(interval, sample.seconds if sample else 0),
        "seconds_without_pause": found.batches * sample.seconds if sample else None,
        "sample": vars(sample) if sample else None,
        "plan": {
            "indexes": list(found.plan.indexes),
            "reads_all": found.plan.reads_all,
            "sorts": found.plan.sorts,
            "related_read_all": list(found.plan.related_read_all),
        },
        "findings": [
            shape.told(str(each.problem), {"kind": kind.name, **each.params})
            for each in found.findings
        ],
        "notes": [
            shape.told(str(each.problem), {"kind": kind.name, **each.params})
            for each in found.notes
        ],
    }


def _instant(text: str | None, unit: str | None) -> str | None:
    """Return an integer time as people read it; None for other times, which show theirs themselves."""
    from datetime import UTC, datetime, timedelta

    from shared.archive.window import PER_SECOND

    if text is None or unit is None:
        return None
    try:
        since = timedelta(microseconds=int(text) * 1_000_000 // PER_SECOND[unit])
        return (datetime(1970, 1, 1, tzinfo=UTC) + since).isoformat(" ", "seconds")
    except OverflowError:
        return None


def _edge(item: Json, name: str) -> str | None:
    text: str | None = item[name]
    time = item[f"{name}_time"]
    return f"{time} ({text})" if time else text


def _pages(sample: Json) -> str:
    count: int = sample["pages"]
    return "one page" if count == 1 else f"{count} pages from all over the window"


def _show(out: Console, item: Json) -> None:
    from handlers.cli.table import facts
    from shared.messages.template import seconds_text, size_text

    about = "" if item["exact"] else "about "
    rows = [f"{count} of {label}" for label, count in item["rows"].items() if count is not None]
    sample, plan = item["sample"], item["plan"]
    unknown = "unknown: one root alone does not fit the time there is"
    stored = (
        f"about {size_text(item['bytes'])} ({size_text(item['raw_bytes'])} of rows), from"
        f" {sample['roots']} roots in {_pages(sample)}, read and compressed in"
        f" {seconds_text(sample['seconds'])} each"
        if sample and item["bytes"] is not None
        else unknown
    )
    names = plan["indexes"][:INDEXES_SHOWN]
    if more := len(plan["indexes"]) - len(names):
        names.append(f"{more} more")
    ways = [
        ", ".join(names),
        plan["reads_all"] and "reads the table",
        plan["sorts"] and "sorts",
        plan["related_read_all"] and f"reads all for {', '.join(plan['related_read_all'])}",
    ]
    interval = seconds_text(item["tick_interval"])
    drain = f"{seconds_text(item['seconds_at_interval'])} at a tick every {interval}"
    if item["seconds_without_pause"] is not None:
        drain += f", about {seconds_text(item['seconds_without_pause'])} without a pause"
    facts(
        out,
        [
            ("kind", f"{item['kind']} ({', '.join([item['root'], *item['related']])})"),
            (
                "window",
                f"older than {seconds_text(item['after_seconds'])}: before {_edge(item, 'cutoff')}",
            ),
            ("roots", f"{about}{item['roots']}"),
            ("oldest", _edge(item, "oldest")),
            ("newest", _edge(item, "newest")),
            ("rows", f"about {', '.join(rows)}" if rows else None),
            ("stored", stored),
            ("batches", f"{about}{item['batches']} of {item['batch_size']} roots, a tick each"),
            ("time", drain),
            ("page", ", ".join(filter(None, ways))),
        ],
    )
    for finding in item["findings"]:
        out.print(f"warning: {finding['message']}", soft_wrap=True)
        if finding["next"]:
            out.print(f"  {finding['next']}", soft_wrap=True)
    for note in item["notes"]:
        out.print(f"note: {note['message']}", soft_wrap=True)
