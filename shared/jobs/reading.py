"""Questions of people about jobs: by the beginning of an id, what is open, which chains there are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from shared.db.statement import statement
from shared.errors import Code, Refused
from shared.jobs.model import Job

if TYPE_CHECKING:
    from shared.db.connect import Database, Row

BEGINNING = re.compile(r"[0-9a-f]{8,32}")
UUID_DIGITS = 32


@dataclass(frozen=True)
class OpenJobs:
    """Numbers of open jobs: pending or running, paused, failed."""

    working: int
    paused: int
    failed: int

    @property
    def only_stuck(self) -> bool:
        """Tell whether all that is open waits for an operator or for something that is missing."""
        return self.working == 0 and self.paused + self.failed > 0


@dataclass(frozen=True)
class NamedJob:
    """A job and the name of its namespace."""

    job: Job
    namespace: str

    @classmethod
    def from_row(cls, row: Row) -> NamedJob:
        """Build it from a row of ``tallystick.job`` with the name beside it."""
        return cls(Job.from_row(row), row["namespace"])


def open_jobs(control: Database) -> OpenJobs:
    """Count the open jobs."""
    row = control.transact(_sql("open_counts"), {}, repeatable=True)[0]
    return OpenJobs(row["working"], row["paused"], row["failed"])


def is_job(text: str) -> bool:
    """Tell whether a text is a job id, or could be the beginning of one."""
    return BEGINNING.fullmatch(text.lower().replace("-", "")) is not None


def find(control: Database, text: str) -> UUID:
    """Return the job whose id begins with a text of at least 8 hex digits.

    Raises ``Refused`` (JOB_UNKNOWN) when there is none, there are several, or it is no id.
    """
    digits = text.lower().replace("-", "")
    if not BEGINNING.fullmatch(digits):
        raise Refused(Code.JOB_UNKNOWN, job=text, cause="malformed")
    bounds = {
        "first": UUID(digits.ljust(UUID_DIGITS, "0")),
        "last": UUID(digits.ljust(UUID_DIGITS, "f")),
    }
    rows = control.transact(_sql("between_ids"), bounds, repeatable=True)
    if len(rows) > 1:
        raise Refused(Code.JOB_UNKNOWN, job=text, cause="ambiguous")
    if not rows:
        raise Refused(Code.JOB_UNKNOWN, job=text)
    found: UUID = rows[0]["id"]
    return found


def tails(control: Database) -> list[NamedJob]:
    """Return of each kind the newest job whose chain has a confirmed tail."""
    return [NamedJob.from_row(row) for row in control.transact(_sql("tails"), {}, repeatable=True)]


def archived(control: Database, storage_id: str) -> list[NamedJob]:
    """Return the jobs of a volume that have confirmed batches, oldest first."""
    rows = control.transact(_sql("archived"), {"storage_id": storage_id}, repeatable=True)
    return [NamedJob.from_row(row) for row in rows]


def _sql(name: str) -> str:
    return statement("shared.jobs", name)
