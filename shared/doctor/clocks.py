"""Clocks side by side: this node's, the control database's, the source's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.doctor.finding import Finding, Severity, Subject
from shared.errors import Code

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

WARNING_SECONDS = 5.0
ERROR_SECONDS = 300.0


@dataclass(frozen=True)
class Reading:
    """How far a database's clock is ahead of this node's, and how far off that may be; in seconds."""

    ahead: float
    unsure: float


def reading(before: float, database: datetime, after: float) -> Reading:
    """Return what a database's time says, asked for between two instants of this node's clock."""
    return Reading(database.timestamp() - (before + after) / 2, (after - before) / 2)


def judged(readings: Mapping[str, Reading]) -> list[Finding]:
    """Return which clocks are apart, by the names ``control`` and ``source``.

    Times that Tallystick keeps and compares are the control database's; the end of a window is the
    source's business too. This node's clock only dates its log lines and evidence.
    """
    control, source = readings.get("control"), readings.get("source")
    node = Reading(0.0, 0.0)
    findings = []
    if first := control or source:
        findings += _apart("node", node, first)
    if control and source:
        findings += _apart("source", source, control)
    return findings


def _apart(whose: str, reading: Reading, against: Reading) -> list[Finding]:
    ahead = reading.ahead - against.ahead
    surely = abs(ahead) - reading.unsure - against.unsure
    if surely < WARNING_SECONDS:
        return []
    severity = Severity.ERROR if surely >= ERROR_SECONDS else Severity.WARNING
    cause = f"{whose}-ahead" if ahead > 0 else f"{whose}-behind"
    params = {"cause": cause, "seconds": round(abs(ahead), 1)}
    return [Finding(Code.CLOCK_SKEW, Subject.CLOCKS, severity, params)]
