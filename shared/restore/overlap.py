"""Archives of one kind whose windows overlap because a job was abandoned, and which of them is taken.

The job after an abandoned one archives its window again, from its beginning. What the abandoned job had
archived until then is in both archives, as two series of snapshots: one of them is taken, the whole one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.chain.batch import HEADER_MARK, file_name
from shared.chain.canonical import parse_json
from shared.chain.frame import decompressed
from shared.chain.text import Text
from shared.chain.verdict import Broken, Reason
from shared.chain.verify import Position, verify_batch
from shared.restore.archives import named
from shared.volume.directory import batch_chunks, opened, readable

if TYPE_CHECKING:
    from shared.chain.manifest import Cursor, Manifest
    from shared.restore.archives import Archive
    from shared.restore.held import Links

NUMBER = re.compile(r"-?[0-9]+")
# As the server prints times in UTC: such texts are in the order of the times.
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ ][0-9:.]+(\+00)?)?")


@dataclass(frozen=True)
class Reach:
    """How far an archive comes: up to which root, and whether a final batch says that this is its end."""

    manifest: Manifest
    final: bool
    last: Cursor | None


def reach_of(archive: Archive) -> Reach:
    """Return how far a verified archive comes."""
    if not archive.batches:
        return Reach(archive.manifest, final=False, last=archive.manifest.window.after)
    end = archive.batches[-1].end
    return Reach(archive.manifest, end.final, end.last)


def reach_of_chain(links: Links) -> Reach:
    """Return how far a chain comes, from its last batch alone, which is verified.

    Raises ``Verdict`` (ARCHIVE_BROKEN) and ``Refused`` (DIRECTORY_UNREADABLE).
    """
    manifest, seq = links.manifest, len(links.digests)
    if not seq:
        return Reach(manifest, final=False, last=manifest.window.after)
    with readable(links.path), opened(links.path) as fd, named(links.path, file_name(seq)):
        line = Text(decompressed(batch_chunks(fd, seq))).line()
        header = parse_json(line.removeprefix(HEADER_MARK), place="header")
        after = header.get("after") if isinstance(header, dict) else None
        before = links.digests[seq - 2] if seq > 1 else links.begin.tail
        cursor = tuple(map(str, after)) if isinstance(after, list) else None
        position = Position(seq - 1, before, cursor, 0, 0, 0, final=False)
        proof, _ = verify_batch(manifest, position, batch_chunks(fd, seq))
        if proof.sha256 != links.digests[-1]:
            raise Broken(Reason.PREV_MISMATCH, expected=links.digests[-1], found=proof.sha256)
    return Reach(manifest, proof.end.final, proof.end.last)


def left_out(found: Sequence[Reach]) -> dict[int, int]:
    """Return the places of archives that are left out, each with the place of the one taken instead.

    ``found`` are the archives of one kind, oldest first. One is left out if it has no end and a later one,
    which has, holds everything between its beginning and the place it came to. The last may be at work
    still, and is always taken.
    """
    places = range(len(found))
    taken: dict[int, int] = {}
    for place in places:
        if found[place].final:
            continue
        later = [other for other in places[place + 1 :] if _covers(found, other, place)]
        if later:
            taken[place] = later[-1]
    return taken


def _covers(found: Sequence[Reach], later: int, earlier: int) -> bool:
    """Tell whether a finished archive, with finished ones before it, covers what another came to."""
    whole, part = found[later], found[earlier]
    if not whole.final or not _alike(whole.manifest, part.manifest):
        return False
    if not _ends_before(part, whole.manifest.window.cutoff):
        return False
    begins = whole.manifest.window.after
    before = [
        each for each in found[:later] if each.final and _alike(each.manifest, whole.manifest)
    ]
    while begins not in (None, part.manifest.window.after):
        joined = [each for each in before if each.last == begins]
        if not joined:
            return False
        before.remove(joined[-1])
        begins = joined[-1].manifest.window.after
    return True


def _alike(one: Manifest, other: Manifest) -> bool:
    """Tell whether two archives hold rows chosen and ordered alike."""
    return (one.definition, one.namespace, one.key, _time_type(one)) == (
        other.definition,
        other.namespace,
        other.key,
        _time_type(other),
    )


def _time_type(manifest: Manifest) -> str:
    return next(each.type for each in manifest.root.columns if each.name == manifest.time)


def _ends_before(part: Reach, cutoff: str) -> bool:
    """Tell whether an archive came no further than a cutoff; not where the texts cannot be compared."""
    if part.last is None or part.last == part.manifest.window.after:
        return True
    time = part.last[0]
    if NUMBER.fullmatch(time) and NUMBER.fullmatch(cutoff):
        return int(time) < int(cutoff)
    return bool(DAY.fullmatch(time) and DAY.fullmatch(cutoff)) and time < cutoff
