"""The volume: the right directory, private and ours, able to do what publishing asks of it, and with room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.doctor import mount
from shared.doctor.finding import Finding, Severity, Subject, of_error
from shared.errors import Busy, Code, Missing
from shared.jobs import rules

if TYPE_CHECKING:
    from pathlib import Path

    from shared.db.connect import Row
    from shared.volume.trial import Trial

NEARLY_FULL = 0.9
# Two batches of the largest page, and then some: with less, the next tick may find no room.
FREE_LEAST_BYTES = 512 * rules.MEBIBYTE


def judged(trial: Trial, root: Path) -> list[Finding]:
    """Return what is wrong with the volume by itself; that somebody works on it is no fault."""
    findings = [
        of_error(
            trouble, Subject.VOLUME, Severity.INFO if isinstance(trouble, Busy) else Severity.ERROR
        )
        for trouble in trial.troubles
    ]
    # Where it could not be opened, asking how it is mounted might hang.
    if trial.inodes is not None and (found := mount.holding(mount.mounts(), root.resolve())):
        findings += mount.judged(found)
    return findings


def judged_account(trial: Trial | None, row: Row | None, limit: int, needed: int) -> list[Finding]:
    """Return what is wrong with the volume given the database's account of it.

    ``limit`` is the budget, ``needed`` the bytes that a failed job asked for beyond it (0: none did).
    """
    if row is None:
        return []
    findings = []
    inodes = trial.inodes if trial else None
    if inodes not in (None, (row["root_inode"], row["marker_inode"])):
        params = {"cause": "copied", "storage_id": str(row["storage_id"])}
        copied = Missing(Code.STORAGE_UNAVAILABLE, **params)
        findings.append(of_error(copied, Subject.VOLUME))
    elif trial is not None and trial.lacks is not None:
        findings.append(of_error(trial.lacks, Subject.VOLUME))
    used = int(row["used_bytes"]) + int(row["reserved"])
    room = {"used": used, "limit": limit, "wanted": wanted(limit, used + needed)}
    if used >= limit or (needed and used + needed > limit):
        full = {"cause": "volume-budget", **room}
        findings.append(Finding(Code.STORAGE_LIMIT, Subject.VOLUME, Severity.ERROR, full))
    elif used >= limit * NEARLY_FULL:
        nearly = {"cause": "budget", **room}
        findings.append(Finding(Code.VOLUME_NEARLY_FULL, Subject.VOLUME, Severity.WARNING, nearly))
    return findings + judged_free(trial.free_bytes if trial else None, limit - used)


def judged_free(free: int | None, left: int) -> list[Finding]:
    """Compare the room on the file system with what the budget promises."""
    if free is None or free >= left:
        return []
    severity = Severity.ERROR if free < FREE_LEAST_BYTES else Severity.WARNING
    params = {"cause": "disk", "free": free, "left": left}
    return [Finding(Code.VOLUME_NEARLY_FULL, Subject.VOLUME, severity, params)]


def wanted(limit: int, used: int) -> int:
    """Return a budget to propose: half as much again, and never less than what is asked for now."""
    larger = max(limit, used)
    return min(rules.BUDGET_MAX, larger + max(larger // 2, rules.MEBIBYTE))
