"""What happened lately: errors and refusals of a day, and evidence that waits on the volume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.db.statement import statement
from shared.doctor.finding import Finding, Severity, Subject
from shared.errors import Code

if TYPE_CHECKING:
    from shared.db.connect import Database, Row

LATELY_SECONDS = 24 * 3600
COUNTED_MAX = 1000


def look(control: Database) -> Row:
    """Count what happened in the last day; no further than ``COUNTED_MAX``."""
    params = {"seconds": LATELY_SECONDS, "limit": COUNTED_MAX}
    (row,) = control.transact(statement("shared.doctor", "recent_events"), params, repeatable=True)
    return row


def judged(row: Row, evidence: int) -> list[Finding]:
    """Return what is worth a look; whatever still stands still is told elsewhere."""
    counts = {"errors": row["errors"], "refusals": row["refusals"], "evidence": evidence}
    return [
        Finding(Code.EVENTS_RECENT, Subject.EVENTS, Severity.INFO, {"cause": cause, "count": count})
        for cause, count in counts.items()
        if count
    ]
