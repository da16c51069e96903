"""The ledger: what is believed of the volume adds up, and is what lies there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.db.statement import statement
from shared.doctor.finding import Finding, Severity, Subject
from shared.errors import Code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.db.connect import Database, Row

# Measuring is for a glance; a scan measures everything.
DIRECTORIES_MAX = 10
# Jobs that were abandoned before they wrote anything have none: so many are passed over at most.
LOOKED_AT_MAX = 100
# Adding up so many takes some tens of milliseconds; more of them are left to the scan.
ADDED_UP_MAX = 50_000

# The row is locked first: who settles meanwhile adds to the sum after it was put right.
MENDED_SUM = (
    "BEGIN;",
    "SELECT FROM tallystick.volume WHERE storage_id = 'STORAGE_ID' FOR UPDATE;",
    (
        "UPDATE tallystick.volume SET used_bytes ="
        " (SELECT coalesce(sum(bytes), 0) FROM tallystick.ledger WHERE storage_id = 'STORAGE_ID')"
        " WHERE storage_id = 'STORAGE_ID';"
    ),
    "COMMIT;",
)


def believed(control: Database, storage_id: str) -> dict[str, int]:
    """Return the bytes believed of the directories of the newest jobs, by name."""
    params = {
        "storage_id": storage_id,
        "limit": DIRECTORIES_MAX,
        "looked_at": LOOKED_AT_MAX,
    }
    rows = control.transact(
        statement("shared.doctor", "newest_directories"), params, repeatable=True
    )
    return {row["directory"]: row["bytes"] for row in rows}


def sums(control: Database, storage_id: str) -> tuple[int, int] | None:
    """Return the bytes used as kept and as added up.

    None for a volume that was never used, or that has more than ``ADDED_UP_MAX`` directories.
    """
    params = {"storage_id": storage_id, "directories_max": ADDED_UP_MAX}
    rows = control.transact(statement("shared.doctor", "account_sum"), params, repeatable=True)
    if not rows or rows[0]["directories_bytes"] is None:
        return None
    return (rows[0]["used_bytes"], rows[0]["directories_bytes"])


def judged(storage_id: str, kept: tuple[int, int] | None) -> list[Finding]:
    """Return whether the sum that is kept is what the directories add up to."""
    if kept is None or kept[0] == kept[1]:
        return []
    params = {"cause": "sum", "believed": kept[0], "found": kept[1]}
    lines = tuple(line.replace("STORAGE_ID", storage_id) for line in MENDED_SUM)
    return [Finding(Code.LEDGER_DRIFT, Subject.LEDGER, Severity.WARNING, params, lines)]


def judged_directories(
    before: Mapping[str, int], after: Mapping[str, int], sizes: Mapping[str, int], scan: Row | None
) -> list[Finding]:
    """Return which directories are not as believed, as one finding; ``scan`` is the plan that mends it.

    What was believed before and after measuring must agree, or a tick settled in between.
    """
    drifted = {
        name: (after[name], size)
        for name, size in sizes.items()
        if name in after and before.get(name) == after[name] != size
    }
    if not drifted:
        return []
    params = {
        "directories": sorted(drifted),
        "believed": sum(each[0] for each in drifted.values()),
        "found": sum(each[1] for each in drifted.values()),
        **_mended_by(scan),
    }
    return [Finding(Code.LEDGER_DRIFT, Subject.LEDGER, Severity.WARNING, params)]


def _mended_by(scan: Row | None) -> dict[str, str]:
    if scan is None or not scan["enabled"]:
        return {"cause": "no-scan"}
    return {"cause": "scanning"} if scan["active_job_id"] is not None else {}
