"""The rows of one table as text, over all batches of one archive or of a kind's."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.catalog.names import parse_table
from shared.errors import Code, Refused
from shared.restore.archives import named
from shared.restore.formats import Pick, csv_header, csv_writer, json_writer, picks_of
from shared.restore.held import batches
from shared.restore.newest import pieces_of
from shared.restore.rows import lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shared.chain.manifest import Table
    from shared.restore.held import Held, Links
    from shared.restore.index import Progress

PIECE_BYTES = 256 * 1024

Writer = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Part:
    """One archive's share: its chain, its table, and the columns taken from it."""

    links: Links
    table: Table
    picks: tuple[Pick, ...]


@dataclass(frozen=True)
class Selection:
    """The rows that come out: columns by name, and from which archives; oldest first.

    ``differing`` are the columns that not every archive has, or has with the same type; ``without`` the
    jobs that have no such table.
    """

    columns: tuple[str, ...]
    parts: tuple[Part, ...]
    differing: tuple[str, ...]
    without: tuple[str, ...]


def selection(chains: Sequence[Links], table: str, columns: str | None) -> Selection:
    """Find a table by the name people give it, and the columns they ask for, comma-separated.

    Without ``columns`` there are all that any archive has; an archive that lacks one gives NULL. Raises
    ``Refused`` (ARCHIVE_TABLE_UNKNOWN, ARCHIVE_COLUMN_UNKNOWN).
    """
    (schema, name), label = _table_name(chains, table)
    held = [
        (links, found)
        for links in chains
        for found in links.manifest.tables
        if (found.schema, found.name) == (schema, name)
    ]
    every = _columns([found for _, found in held])
    wanted = tuple(every) if columns is None else tuple(next(csv.reader([columns]), []))
    if unknown := [name for name in wanted if name not in every]:
        generated = {each.name for _, found in held for each in found.columns} - every.keys()
        cause = {"cause": "generated"} if generated & set(unknown) else {}
        raise Refused(
            Code.ARCHIVE_COLUMN_UNKNOWN,
            table=label,
            column=unknown[0],
            columns=list(every),
            **cause,
        )
    parts = tuple(Part(links, found, _picked(found, wanted)) for links, found in held)
    with_table = {links.manifest.job for links, _ in held}
    return Selection(
        columns=wanted,
        parts=parts,
        differing=tuple(name for name in wanted if len(every[name]) > 1),
        without=tuple(
            links.manifest.job for links in chains if links.manifest.job not in with_table
        ),
    )


def csv_text(chosen: Selection, progress: Progress) -> Iterator[bytes]:
    """Yield the rows as CSV with a header, byte for byte what ``COPY … (FORMAT csv, HEADER)`` gives."""
    yield csv_header(chosen.columns)
    yield from _text(chosen, lambda part: csv_writer(part.picks, len(part.table.copied)), progress)


def json_lines(chosen: Selection, progress: Progress) -> Iterator[bytes]:
    """Yield the rows as one JSON object to a line."""
    yield from _text(chosen, lambda part: json_writer(part.picks), progress)


def _text(
    chosen: Selection, writer: Callable[[Part], Writer], progress: Progress
) -> Iterator[bytes]:
    total = sum(len(part.links.digests) for part in chosen.parts)
    done = 0
    for part in chosen.parts:
        write = writer(part)
        for batch in batches(part.links):
            yield from _batch_text(batch, part, write)
            done += 1
            progress(done, total)


def _batch_text(batch: Held, part: Part, write: Writer) -> Iterator[bytes]:
    older = part.links.older(batch.after.seq)
    with named(batch.path, batch.file):
        held: list[bytes] = []
        size = 0
        for line in lines(pieces_of(batch.manifest, batch.blocks(), part.table, older)):
            held.append(write(line))
            size += len(held[-1])
            if size >= PIECE_BYTES:
                yield b"".join(held)
                held, size = [], 0
        yield b"".join(held)


def _table_name(chains: Sequence[Links], text: str) -> tuple[tuple[str, str], str]:
    """Return the table meant: by its whole name, or by a bare one that no other table has."""
    tables = {
        (table.schema, table.name): table.label
        for links in chains
        for table in links.manifest.tables
    }
    written = parse_table(text)
    asked = (written.schema, written.name) if written else tuple(text.split("."))
    # Without quotes a dot parts schema and name; a name with another dot in it wants them.
    whole = [key for key, label in tables.items() if key == asked or label == text]
    found = whole or [key for key in tables if key[1] == text]
    if len(found) != 1:
        cause = {"cause": "ambiguous"} if found else {}
        raise Refused(Code.ARCHIVE_TABLE_UNKNOWN, table=text, tables=list(tables.values()), **cause)
    return found[0], tables[found[0]]


def _columns(tables: Sequence[Table]) -> dict[str, set[str | None]]:
    """Return the types of each column, None where a table lacks it, in the order of their first sight."""
    picks = [{pick.name: pick.type for pick in picks_of(table)} for table in tables]
    names = dict.fromkeys(name for each in picks for name in each)
    return {name: {each.get(name) for each in picks} for name in names}


def _picked(table: Table, wanted: Sequence[str]) -> tuple[Pick, ...]:
    own = {pick.name: pick for pick in picks_of(table)}
    return tuple(own.get(name) or Pick(name, "text", None) for name in wanted)
