"""The archives that reading commands take their rows from, and what must be said about them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from handlers.cli.answer import console

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from handlers.shape import Json
    from shared.restore.held import Links


@contextmanager
def chains_of(target: str, expected: str | None, namespace: str | None) -> Iterator[list[Links]]:
    """Return the chains meant, their links compared, and say what is not proven, or there twice."""
    from dataclasses import replace

    from handlers.cli.places import places
    from shared.restore.held import linked_files
    from shared.restore.newest import Chain, repeated

    chains = [linked_files(place) for place in places(target, expected, namespace)]
    chains, notes = _taken(chains)
    for links in chains:
        about = {"directory": str(links.path), "count": links.unrecorded}
        if not links.anchored:
            notes.append(note("read-not-anchored", about))
        if links.unrecorded:
            notes.append(note("read-unrecorded", about))
    with repeated([Chain(each.path, each.manifest, each.digests) for each in chains]) as twice:
        if twice.roots:
            about = {"roots": twice.roots, "older": twice.older, "keys": list(twice.keys)}
            notes.append(note("read-roots-repeated", about))
        tell(notes)
        yield [replace(each, older=twice.of(place)) for place, each in enumerate(chains)]


def _taken(chains: list[Links]) -> tuple[list[Links], list[Json]]:
    """Return the chains without those whose window a later one holds whole, and say which these are."""
    from shared.restore.overlap import left_out, reach_of_chain

    if len(chains) == 1:
        return chains, []
    left = left_out([reach_of_chain(each) for each in chains])
    notes = []
    for place, instead in left.items():
        about = {
            "directory": str(chains[place].path),
            "job": chains[place].manifest.job,
            "batches": len(chains[place].digests),
            "by": chains[instead].manifest.job,
        }
        notes.append(note("read-left-out", about))
    return [each for place, each in enumerate(chains) if place not in left], notes


def note(code: str, params: Json) -> Json:
    """Return something to know about archives, with its words."""
    from handlers import shape

    told = shape.told(code, params)
    return {name: told[name] for name in ("code", "params", "message")}


def tell(notes: Iterable[Json]) -> None:
    """Print notes on standard error."""
    out = None
    for each in notes:
        out = out or console(errors=True)
        out.print(each["message"], soft_wrap=True)
