"""What the database knows of volumes: identity, bytes used, bytes set aside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.db.audit import Change, Signature, record
from shared.db.statement import statement
from shared.errors import Busy, Code, Missing, Refused
from shared.volume import current
from shared.volume.current import Settled

if TYPE_CHECKING:
    from shared.db.connect import Database, Row
    from shared.volume.identity import Volume


# An adoption looks at the volume outside its transaction; a tick that settles meanwhile has it look again.
LOOKS = 3

# How old the note of the last visit may be before a visit makes a new one.
NOTED_SECONDS = 5


@dataclass(frozen=True)
class Ledger:
    """A volume's account at the beginning of a tick, in bytes and in numbers of paused jobs.

    ``last`` is the file that was settled on it last, None where nothing was since it was adopted.
    """

    used_bytes: int
    reserved_bytes: int
    waiting_jobs: int
    uncredentialed_jobs: int
    last: Settled | None

    @property
    def taken_bytes(self) -> int:
        """Return what counts against the volume's budget."""
        return self.used_bytes + self.reserved_bytes


def visit(control: Database, volume: Volume) -> Ledger:
    """Record that the volume was seen, on first use its inodes too, and return its account.

    Raises ``Missing`` when the inodes are not those recorded, or the file that was settled last is not
    there: this is a copy of the volume, or it was restored from a backup, and an operator must say that it
    shall be used. While jobs wait for the volume the content of that file is checked too, as the first unit
    of a job does: what made them wait must not be gone merely because nobody looks.
    """
    params = {
        "storage_id": volume.storage_id,
        "noted_seconds": NOTED_SECONDS,
        **_inodes(volume),
    }
    text = statement("shared.volume", "visit")
    # Two first uses at once: the one that came second sees what the first recorded when it looks again.
    rows = control.transact(text, params, repeatable=True) or control.transact(
        text, params, repeatable=True
    )
    row = rows[0]
    _check(row, volume)
    return Ledger(
        row["used_bytes"], row["reserved"], row["waiting"], row["uncredentialed"], Settled.of(row)
    )


def recognise(control: Database, volume: Volume) -> None:
    """Check that the volume is the one recorded, if it was ever used, and record nothing.

    Raises ``Missing`` as ``visit`` does.
    """
    for row in listed(control, volume.storage_id):
        _check(row, volume)


def listed(control: Database, storage_id: str | None = None) -> list[Row]:
    """Return the volumes the database knows, or the one asked for."""
    return control.transact(
        statement("shared.volume", "volumes"), {"storage_id": storage_id}, repeatable=True
    )


@dataclass(frozen=True)
class Adopted:
    """A volume after it was adopted; ``lacks`` says what of the file settled last it does not have."""

    row: Row
    last: Settled | None
    lacks: Missing | None


def adopt(control: Database, volume: Volume, signature: Signature) -> Adopted:
    """Accept this copy of a volume, or an older state of it, as the volume from now on.

    The file settled last stays what the volume is known by where it is there whole, and else is forgotten
    until the next file is settled. Raises ``Refused`` for a volume that was never used, or a stale
    revision, ``Busy`` when ticks settle all the while, and ``Passing`` when the file cannot be read.
    """
    for _ in range(LOOKS):
        rows = listed(control, volume.storage_id)
        if not rows:
            raise Refused(Code.VOLUME_UNKNOWN, storage_id=volume.storage_id)
        last = Settled.of(rows[0])
        lacks = _lacks(volume, last)
        after = _adopt(control, volume, signature, last, keep=lacks is None)
        if after is not None:
            return Adopted(after, last, lacks)
    raise Busy(Code.STORAGE_BUSY, storage_id=volume.storage_id)


def _adopt(
    control: Database, volume: Volume, signature: Signature, seen: Settled | None, *, keep: bool
) -> Row | None:
    """Record the adoption; None when another file was settled since ``seen``."""
    params = {"storage_id": volume.storage_id, "keep": keep, **_inodes(volume)}
    with control.transaction() as connection:
        before = connection.execute(statement("shared.volume", "lock_volume"), params).fetchone()
        if before is None:
            raise Refused(Code.VOLUME_UNKNOWN, storage_id=volume.storage_id)
        if signature.revision not in (None, before["revision"]):
            raise Refused(Code.REVISION_STALE, seen=signature.revision, current=before["revision"])
        if Settled.of(before) != seen:
            return None
        after = connection.execute(statement("shared.volume", "adopt"), params).fetchone()
        record(
            connection, signature, Change("adopt", "volume", volume.storage_id, None, before, after)
        )
    return after


def _lacks(volume: Volume, last: Settled | None) -> Missing | None:
    try:
        current.check(volume, last, content=True)
    except Missing as missing:
        return missing
    return None


def directories(control: Database, storage_id: str, after: str, limit: int) -> dict[str, int]:
    """Return the bytes the ledger believes of directories by name, from after ``after``."""
    params = {"storage_id": storage_id, "after": after, "limit": limit}
    rows = control.transact(statement("shared.volume", "directories"), params, repeatable=True)
    return {row["directory"]: row["bytes"] for row in rows}


def _inodes(volume: Volume) -> dict[str, str]:
    return {"root_inode": str(volume.root_inode), "marker_inode": str(volume.marker_inode)}


def _check(row: Row, volume: Volume) -> None:
    if any(row[name] != inode for name, inode in _inodes(volume).items()):
        raise Missing(Code.STORAGE_UNAVAILABLE, cause="copied", storage_id=volume.storage_id)
    current.check(volume, Settled.of(row), content=row["waiting"] > 0)
