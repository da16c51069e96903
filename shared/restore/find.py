"""One root and the rows that belong to it, out of the batches that hold them."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.errors import Verdict
from shared.restore.archives import named
from shared.restore.choose import choice, chosen
from shared.restore.held import batches, held, linked_files
from shared.restore.index import Damaged, index_of, unusable
from shared.restore.rows import lines, values

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shared.chain.manifest import Table
    from shared.restore.archives import Place
    from shared.restore.choose import Choice
    from shared.restore.held import Held
    from shared.restore.index import Index, Progress
    from shared.restore.rows import Value

Row = tuple["Value", ...]


@dataclass(frozen=True)
class Found:
    """A batch that holds the root asked for, and the rows of its whole tree, table by table."""

    place: Place
    file: str
    seq: int
    sha256: str
    rows: tuple[tuple[Table, tuple[Row, ...]], ...]


def key_text(parts: Sequence[str]) -> str:
    """Return a key given in several parts as the one text that ``choice`` reads."""
    if len(parts) == 1:
        return parts[0]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(parts)
    return text.getvalue()


def find(places: Sequence[Place], key: str, folder: Path | None, progress: Progress) -> list[Found]:
    """Return every batch that holds a root, the newest first; ``places`` are given oldest first.

    ``folder`` keeps the indexes; without one every batch is read. That a root is nowhere is never left
    to an index: then every archive is read again. Raises ``Refused`` (CHOICE_INVALID, INDEX_UNUSABLE,
    DIRECTORY_UNREADABLE) and ``Verdict`` (ARCHIVE_BROKEN).
    """
    found: list[Found] = []
    remembered: list[Place] = []
    for place in reversed(places):
        wanted = choice(place.manifest, [key], ())
        if folder is None:
            found += _read(place, wanted, progress)
            continue
        there, fresh = _looked_up(place, wanted, folder, progress)
        found += there
        remembered += [] if fresh else [place]
    if found or folder is None:
        return found
    for place in remembered:
        wanted = choice(place.manifest, [key], ())
        found += _looked_up(place, wanted, folder, progress, anew=True)[0]
    return found


def _read(place: Place, wanted: Choice, progress: Progress) -> list[Found]:
    links = linked_files(place)
    found = []
    for batch in batches(links):
        found += _in_batch(place, batch, wanted)
        progress(batch.after.seq, len(links.digests))
    return found[::-1]


def _looked_up(
    place: Place, wanted: Choice, folder: Path, progress: Progress, *, anew: bool = False
) -> tuple[list[Found], bool]:
    """Return what an index leads to, and whether it was built just now; build it again if it misleads."""
    try:
        with index_of(folder, place, progress, anew=anew) as index:
            there = _led_to(index, place, wanted)
            if there is not None:
                return there, index.fresh
    except Damaged as damaged:
        if anew:
            raise unusable(folder, place, damaged) from damaged
    return _looked_up(place, wanted, folder, progress, anew=True)


def _led_to(index: Index, place: Place, wanted: Choice) -> list[Found] | None:
    """Return what the candidates of an index hold; None when it was wrong and is not new."""
    (key,) = wanted.keys
    found: list[Found] = []
    for known in index.candidates([part or "" for part in key], place.expected):
        try:
            with held(place.path, index.manifest, known.before, known.sha256) as batch:
                there = _in_batch(place, batch, wanted)
        except Verdict:
            if index.fresh:
                raise
            return None
        if not there and not index.fresh:
            return None
        found += there
    return found


def _in_batch(place: Place, batch: Held, wanted: Choice) -> list[Found]:
    found: set[Row] = set()
    with named(batch.path, batch.file):
        rows = tuple(
            (table, tuple(values(line, table) for line in lines(pieces)))
            for table, pieces in chosen(batch.manifest, batch.blocks(), wanted, found)
        )
    return [Found(place, batch.file, batch.after.seq, batch.sha256, rows)] if found else []
