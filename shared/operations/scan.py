"""Scan: the next entries of a volume are verified and reconciled with what the database believes."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.errors import Verdict
from shared.jobs.model import Claim, Event, LedgerEntry, Progress
from shared.operations.work import Operation, Work
from shared.volume import ledger
from shared.volume.reconcile import Recorded, Sighting, reconciled
from shared.volume.walk import Bounds, Place, Seen, entries, walk

if TYPE_CHECKING:
    from uuid import UUID

# A scan leaves the larger part of its deadline unused: it is in nobody's way if the next unit comes soon.
WALK_SHARE = 0.5
FINDINGS_MAX = 100
# How often a step is tried anew for something that cannot be read, before that is reported and passed over.
TRIES = 2
SEVERITY = {
    Sighting.LEDGER_CORRECTED: "info",
    Sighting.UNRECORDED_FILE: "info",
    Sighting.FOREIGN_ENTRY: "warning",
    Sighting.HARMLESS_ENTRY: "info",
    Sighting.UNKNOWN_DIRECTORY: "warning",
    Sighting.LEFTOVER_RESERVATION: "info",
}
RANK = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True)
class Stretch:
    """The next stretch of the walk: from where, through which names, within which bounds."""

    claim: Claim
    place: Place
    names: tuple[str, ...]
    bounds: Bounds


@dataclass(frozen=True)
class Reconciled:
    """What a stretch showed, beside what the database believes."""

    seen: tuple[Seen, ...]
    place: Place | None
    findings: tuple[tuple[Sighting, dict[str, Any]], ...]
    ledger: tuple[LedgerEntry, ...]
    released: tuple[UUID, ...]


def next_stretch(work: Work, claim: Claim) -> Stretch:
    """Find where the walk stands, and what lies ahead: on the volume, or only in the ledger."""
    if claim.barred is not None:
        raise Verdict(claim.barred, kind=claim.job.kind)
    volume = work.storage.volume
    place = Place.from_json(claim.job.checkpoint)
    # A directory uses up one of the step's files at least, but for the one that the walk is in: so the
    # bound is met before these names end, unless no others are left.
    limit = claim.job.page_size + 2
    believed = ledger.directories(work.control, volume.storage_id, place.after, limit)
    names = heapq.nsmallest(limit, {*entries(volume, place, limit), *believed})
    seconds = work.deadline.left() * WALK_SHARE
    may_pass = claim.job.failures < TRIES
    return Stretch(claim, place, tuple(names), Bounds(claim.job.page_size, seconds, may_pass))


def look(work: Work, stretch: Stretch) -> tuple[tuple[Seen, ...], Place | None]:
    """Walk the stretch, verifying every file with code that did not write it."""
    return walk(work.storage.volume, stretch.place, stretch.names, stretch.bounds)


def reconcile(
    work: Work, _stretch: Stretch, walked: tuple[tuple[Seen, ...], Place | None]
) -> Reconciled:
    """Compare what was seen with jobs, units and ledger."""
    seen, place = walked
    storage_id = work.storage.volume.storage_id
    findings: list[tuple[Sighting, dict[str, Any]]] = []
    entries_now, released = [], []
    for each in seen:
        recorded = Recorded.of(work.control, storage_id, each)
        findings += reconciled(each, recorded)
        if each.bytes is not None:
            entries_now.append(LedgerEntry(each.directory, each.bytes))
        if recorded.leftover is not None and each.releases:
            released.append(recorded.leftover)
    return Reconciled(seen, place, tuple(findings), tuple(entries_now), tuple(released))


def progress_of(stretch: Stretch, reconciled_: Reconciled) -> Progress:
    """Say what the settle shall record; the walk is over when no place to go on from is left."""
    files = sum(each.files for each in reconciled_.seen)
    # Errors first: many strangers in one directory must not keep the damage of another from being named.
    ranked = sorted(reconciled_.findings, key=lambda each: RANK[SEVERITY.get(each[0], "error")])
    findings = ranked[:FINDINGS_MAX]
    return Progress(
        seq=stretch.claim.job.batches + 1,
        sha256=None,
        bytes=sum(each.verified_bytes for each in reconciled_.seen),
        roots=files,
        evidence={
            "directories": sum(1 for each in reconciled_.seen if each.whole),
            "files": files,
            "findings": [{"code": str(code), **params} for code, params in findings],
            "findings_left_out": len(reconciled_.findings) - len(findings),
        },
        checkpoint=(reconciled_.place or stretch.place).to_json(),
        tail=None,
        final=reconciled_.place is None,
        ledger=reconciled_.ledger,
        events=tuple(_event(code, params) for code, params in findings),
        released=reconciled_.released,
    )


def _event(code: Sighting, params: dict[str, Any]) -> Event:
    severity = SEVERITY.get(code, "error")
    return Event("scan-finding", severity, done=False, reason_code=code, reason_params=params)


SCAN = Operation[Stretch, tuple[tuple[Seen, ...], Place | None], Reconciled](
    name="scan",
    needs_volume=True,
    next_unit=next_stretch,
    do=look,
    verify=reconcile,
    record=progress_of,
)
