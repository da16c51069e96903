"""What the database knows of volumes: identity, bytes used, bytes set aside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.db.audit import Change, Signature, record
from shared.db.statement import statement
from shared.errors import Code, Missing, Refused

if TYPE_CHECKING:
    from shared.db.connect import Database, Row
    from shared.volume.identity import Volume


# How old the note of the last visit may be before a visit makes a new one.
NOTED_SECONDS = 5


@dataclass(frozen=True)
class Ledger:
    """A volume's account at the beginning of a tick, in bytes and in numbers of paused jobs."""

    used_bytes: int
    reserved_bytes: int
    waiting_jobs: int
    uncredentialed_jobs: int

    @property
    def taken_bytes(self) -> int:
        """Return what counts against the volume's budget."""
        return self.used_bytes + self.reserved_bytes


def visit(control: Database, volume: Volume) -> Ledger:
    """Record that the volume was seen, on first use its inodes too, and return its account.

    Raises ``Missing`` when the inodes are not those recorded: this is a copy of the volume, or it was
    restored from a backup, and an operator must say that it shall be used.
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
    _check_inodes(row, volume)
    return Ledger(row["used_bytes"], row["reserved"], row["waiting"], row["uncredentialed"])


def recognise(control: Database, volume: Volume) -> None:
    """Check that the volume is the one recorded, if it was ever used, and record nothing.

    Raises ``Missing`` as ``visit`` does.
    """
    for row in listed(control, volume.storage_id):
        _check_inodes(row, volume)


def listed(control: Database, storage_id: str | None = None) -> list[Row]:
    """Return the volumes the database knows, or the one asked for."""
    return control.transact(
        statement("shared.volume", "volumes"), {"storage_id": storage_id}, repeatable=True
    )


def adopt(control: Database, volume: Volume, signature: Signature) -> Row:
    """Accept this copy of a volume as the volume from now on.

    Raises ``Refused`` for one that was never used, or a stale revision.
    """
    params = {
        "storage_id": volume.storage_id,
        "root_inode": str(volume.root_inode),
        "marker_inode": str(volume.marker_inode),
    }
    with control.transaction() as connection:
        before = connection.execute(statement("shared.volume", "lock_volume"), params).fetchone()
        if before is None:
            raise Refused(Code.VOLUME_UNKNOWN, storage_id=volume.storage_id)
        if signature.revision not in (None, before["revision"]):
            raise Refused(Code.REVISION_STALE, seen=signature.revision, current=before["revision"])
        after = connection.execute(statement("shared.volume", "adopt"), params).fetchone()
        record(
            connection, signature, Change("adopt", "volume", volume.storage_id, None, before, after)
        )
    assert after is not None  # noqa: S101 - the row is locked, so the update found it
    return after


def directories(control: Database, storage_id: str, after: str, limit: int) -> dict[str, int]:
    """Return the bytes the ledger believes of directories by name, from after ``after``."""
    params = {"storage_id": storage_id, "after": after, "limit": limit}
    rows = control.transact(statement("shared.volume", "directories"), params, repeatable=True)
    return {row["directory"]: row["bytes"] for row in rows}


def _inodes(volume: Volume) -> dict[str, str]:
    return {"root_inode": str(volume.root_inode), "marker_inode": str(volume.marker_inode)}


def _check_inodes(row: Row, volume: Volume) -> None:
    if any(row[name] != inode for name, inode in _inodes(volume).items()):
        raise Missing(Code.STORAGE_UNAVAILABLE, cause="copied", storage_id=volume.storage_id)
