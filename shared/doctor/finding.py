"""What a check finds: a code, how bad it is, and the names its words need."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from shared.errors import TallystickError

if TYPE_CHECKING:
    from collections.abc import Iterable


class Severity(StrEnum):
    """How bad a thing is; in this order, the last is the worst.

    ``ok``: nothing was found. ``info``: worth knowing, and perhaps meant so. ``warning``: will become an
    error, or hides one. ``error``: work stands still, or would when it is next due.
    """

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Subject(StrEnum):
    """What is looked at, in the order of the report: what comes later may need what comes before."""

    DATABASE = "database"
    SOURCE = "source"
    VOLUME = "volume"
    CLOCKS = "clocks"
    SCHEDULE = "schedule"
    JOBS = "jobs"
    LEDGER = "ledger"
    EVENTS = "events"
    # Of a deployment on AWS, as its own services see it.
    FUNCTIONS = "functions"
    SCHEDULES = "schedules"
    TICKS = "ticks"
    QUEUES = "queues"
    ALARMS = "alarms"


ON_AWS = (Subject.FUNCTIONS, Subject.SCHEDULES, Subject.TICKS, Subject.QUEUES, Subject.ALARMS)


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    ``code`` is one of the codes of errors or of the problems of kinds. ``sql`` are the statements that mend
    it, whole and quoted, to be run by somebody who may.
    """

    code: str
    subject: Subject
    severity: Severity
    params: dict[str, Any] = field(default_factory=dict)
    sql: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """What was found about one subject; ``skipped_for`` is the code that kept some or all of it unseen."""

    subject: Subject
    findings: tuple[Finding, ...] = ()
    skipped_for: str | None = None

    @property
    def severity(self) -> Severity:
        """Return how bad the worst finding is."""
        return worst(self.findings)


def worst(findings: Iterable[Finding]) -> Severity:
    """Return the worst severity among findings; ``ok`` when there are none."""
    order = list(Severity)
    return max((found.severity for found in findings), key=order.index, default=Severity.OK)


def of_error(
    error: TallystickError, subject: Subject, severity: Severity = Severity.ERROR
) -> Finding:
    """Return a finding that tells an error which stopped a check."""
    return Finding(str(error.code), subject, severity, dict(error.params))
