"""What was seen on a volume, held against what the database believes of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from shared.chain.batch import file_name
from shared.chain.manifest import MANIFEST_NAME
from shared.db.statement import statement

if TYPE_CHECKING:
    from uuid import UUID

    from shared.db.connect import Database
    from shared.volume.walk import Seen

# So many strangers of one directory are named; a scan keeps a hundred findings of a step anyway.
NAMED_MAX = 100


class Sighting(StrEnum):
    """What a scan may find out of order."""

    CHAIN_BROKEN = "CHAIN_BROKEN"
    DIGEST_DIFFERS = "DIGEST_DIFFERS"
    FILE_MISSING = "FILE_MISSING"
    DIRECTORY_MISSING = "DIRECTORY_MISSING"
    UNKNOWN_DIRECTORY = "UNKNOWN_DIRECTORY"
    UNRECORDED_FILE = "UNRECORDED_FILE"
    FOREIGN_ENTRY = "FOREIGN_ENTRY"
    HARMLESS_ENTRY = "HARMLESS_ENTRY"
    ENTRY_UNREADABLE = "ENTRY_UNREADABLE"
    LEDGER_CORRECTED = "LEDGER_CORRECTED"
    LEFTOVER_RESERVATION = "LEFTOVER_RESERVATION"


Finding = tuple[Sighting, dict[str, Any]]


@dataclass(frozen=True)
class Recorded:
    """What the database believes of a directory; the job's members are None where it has no job."""

    bytes: int | None
    job_id: UUID | None
    state: str | None
    batches: int
    reserved: int
    last_sha256: str | None
    units: dict[int, str]

    @classmethod
    def of(cls, control: Database, storage_id: str, seen: Seen) -> Recorded:
        """Look up what belongs to a directory that was seen."""
        numbers = [seq for seq, _ in seen.verified] or [0]
        row = control.transact(
            statement("shared.volume", "recorded"),
            {
                "storage_id": storage_id,
                "directory": seen.directory,
                "job_id": seen.job_id,
                "first": min(numbers),
                "last": max(numbers),
            },
            repeatable=True,
        )[0]
        return cls(
            bytes=row["bytes"],
            job_id=row["job_id"],
            state=row["state"],
            batches=row["batches"] or 0,
            reserved=row["reserved"] or 0,
            last_sha256=row["last_sha256"],
            units={int(seq): sha256 for seq, sha256 in (row["units"] or {}).items()},
        )

    def confirmed(self, seq: int) -> str | None:
        """Return the digest that was confirmed for a position; None where only the chain tells.

        The units of a job may have been archived and removed. What is left is its tail, and a chain that
        verified up to there and ends in it has no file that is not the one confirmed.
        """
        return self.units.get(seq) or (self.last_sha256 if seq == self.batches else None)

    @property
    def leftover(self) -> UUID | None:
        """Return the job if it was abandoned with bytes still set aside for a file."""
        return self.job_id if self.state == "ABANDONED" and self.reserved else None


def reconciled(seen: Seen, recorded: Recorded) -> list[Finding]:
    """Return everything about one directory that is not as the database believes."""
    where = {"directory": seen.directory}
    findings: list[Finding] = []
    if seen.unreadable is not None:
        file, cause = seen.unreadable.get("file"), seen.unreadable["cause"]
        findings.append((Sighting.ENTRY_UNREADABLE, where | {"file": file, "cause": cause}))
    if seen.job_id is not None:
        findings += _of_job(seen, recorded)
    # What only a scan ever measures, like the marker in the root, was never believed to be otherwise.
    believed = 0 if recorded.bytes is None and seen.job_id is not None else recorded.bytes
    if seen.bytes is not None and believed is not None and seen.bytes != believed:
        params = where | {"believed": believed, "found": seen.bytes}
        findings.append((Sighting.LEDGER_CORRECTED, params))
    if seen.releases and recorded.leftover is not None:
        params = where | {"bytes": recorded.reserved}
        findings.append((Sighting.LEFTOVER_RESERVATION, params))
    # Last: what is kept of many findings are the first.
    findings += [
        (Sighting.FOREIGN_ENTRY, where | {"name": name}) for name in seen.foreign[:NAMED_MAX]
    ]
    if seen.harmless:
        names = list(seen.harmless[:NAMED_MAX])
        findings.append((Sighting.HARMLESS_ENTRY, where | {"names": names}))
    return findings


def _of_job(seen: Seen, recorded: Recorded) -> list[Finding]:
    where = {"directory": seen.directory, "job": seen.job_id}
    if recorded.job_id is None:
        return [(Sighting.UNKNOWN_DIRECTORY, where)] if seen.present and seen.whole else []
    if not seen.present:
        missing = [(Sighting.DIRECTORY_MISSING, where | {"batches": recorded.batches})]
        return missing if recorded.batches else []
    findings: list[Finding] = [
        (Sighting.DIGEST_DIFFERS, where | {"file": file_name(seq), "found": sha256})
        for seq, sha256 in seen.verified
        if seq <= recorded.batches and recorded.confirmed(seq) not in (None, sha256)
    ]
    findings += [
        (Sighting.UNRECORDED_FILE, where | {"file": file_name(seq)})
        for seq, _ in seen.verified
        if seq > recorded.batches
    ]
    for damage in seen.damages:
        # Where a job has confirmed nothing yet, its directory may still be without a manifest.
        if recorded.batches or damage["cause"] != "MANIFEST_MISSING":
            findings.append((Sighting.CHAIN_BROKEN, where | damage))
    # Without a manifest that can be read there is no chain to reach the end of.
    begun = all(damage.get("file") != MANIFEST_NAME for damage in seen.damages)
    all_read = seen.whole and seen.unreadable is None and begun
    if all_read and seen.reached < recorded.batches:
        params = where | {"file": file_name(seen.reached + 1), "batches": recorded.batches}
        findings.append((Sighting.FILE_MISSING, params))
    return findings
