"""Log lines: what a tick came to, and how lines look on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from shared.jobs.model import Ending

if TYPE_CHECKING:
    from handlers.shape import Json
    from shared.tick import Report

SERVICE = "tallystick"
MESSAGE = "tick"
LEVELS = {
    Ending.IDLE: logging.INFO,
    Ending.PROGRESSED: logging.INFO,
    Ending.FINISHED: logging.INFO,
    Ending.FAILED: logging.ERROR,
}
log = logging.getLogger(SERVICE)


def start(level: str, form: str) -> None:
    """Write what is logged from now on to standard error, as ``text`` or as ``json``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines() if form == "json" else Text())
    logging.basicConfig(level=level, handlers=[handler])
    if level != "DEBUG":
        # What the driver warns of while a broken connection is put away is said by our own errors.
        logging.getLogger("psycopg").setLevel(logging.ERROR)


def told(report: Report) -> None:
    """Write the line of a tick, where ordinary lines are asked for at all."""
    if log.isEnabledFor(logging.INFO):
        log.log(level(report), MESSAGE, extra={"fields": fields(report)})


def level(report: Report) -> int:
    """Return how loud a tick's line is: a warning unless it got somewhere, found nothing, or failed."""
    return LEVELS.get(report.outcome.ending, logging.WARNING)


def fields(report: Report) -> Json:
    """Return the members of a tick's line: codes, counts, times; no row value, no parameter, no secret."""
    outcome, job = report.outcome, report.job
    code, note = outcome.code, report.note
    return {
        "outcome": str(outcome.ending),
        "code": str(code) if code else None,
        "note": str(note.code) if note else None,
        "operation": job.operation if job else None,
        "namespace_id": str(job.namespace_id) if job else None,
        "kind": job.kind if job else None,
        "job": str(job.id) if job else None,
        "generation": job.generation if job else None,
        "attempt": job.attempts if job else None,
        "unit": report.seq,
        "roots": outcome.params.get("roots", 0) if not code else 0,
        "rows": outcome.params.get("rows", 0) if not code else 0,
        "bytes": outcome.params.get("bytes", 0) if not code else 0,
        "reclaimed": report.reclaimed,
        "scheduled": report.scheduled,
        "wait_seconds": outcome.wait_seconds,
        "oldest_due_seconds": report.oldest_due_seconds,
        "volume_used_bytes": report.volume_used_bytes,
        "volume_max_bytes": report.volume_max_bytes,
        "seconds": report.seconds,
        "phases": dict(report.phases),
    }


class Lines(logging.Formatter):
    """One JSON object to a line, with the keys that Powertools for AWS Lambda gives its lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: Json = {
            "level": record.levelname,
            "location": f"{record.funcName}:{record.lineno}",
            "message": record.getMessage(),
            "timestamp": at.isoformat(timespec="milliseconds"),
            "service": SERVICE,
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class Text(logging.Formatter):
    """A line for people: level, name, message, then what is there of a tick's members."""

    def __init__(self) -> None:
        """Begin each line with its level and the name of its logger."""
        super().__init__("%(levelname)s:%(name)s:%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        members = getattr(record, "fields", {})
        there = (f" {name}={value}" for name, value in members.items() if value not in (None, {}))
        return super().format(record) + "".join(there)
