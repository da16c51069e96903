"""The shapes in which outlooks and timelines leave the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handlers import shape
from shared.chain.batch import file_name
from shared.jobs.timeline import What
from shared.messages import words

if TYPE_CHECKING:
    from handlers.shape import Json
    from shared.db.connect import Row
    from shared.jobs.model import Job
    from shared.jobs.timeline import Moment
    from shared.progress import Outlook


def outlook(found: Outlook, tick_interval: float) -> Json:
    """Return how a plan or an open job stands; what is not known is null."""
    now, reason, left = found.situation, found.reason, found.backlog
    ticks = found.ticks
    return {
        **shape.told(str(reason.code), reason.params),
        "attention": reason.attention,
        "behind_seconds": _rounded(found.behind_seconds),
        "roots_to_go": left.roots if left else None,
        "exact": left.exact if left else None,
        "unknown": shape.error(found.unknown, {"kind": now.kind}) if found.unknown else None,
        "ticks_to_go": ticks,
        "roots_per_second": _rounded(found.roots_per_second),
        "drain_seconds": _rounded(found.drain_seconds),
        "seconds_at_interval": _rounded(ticks * tick_interval if ticks is not None else None),
        "job_bytes_left": now.job_bytes_left,
        "volume_bytes_left": found.volume_bytes_left,
        "next_run_seconds": _rounded(now.next_run_in),
        "last_tick_at": shape.time(now.ticked_at),
        "last_tick_seconds": _rounded(now.ticked_ago),
    }


def files(found: Job, units: list[Row]) -> Json | None:
    """Return where the files of an archive are and what the newest of them are; None for other jobs."""
    if found.operation != "archive":
        return None
    return {
        "directory": found.directory,
        "batches": found.batches,
        "bytes": found.bytes,
        "newest": [
            {"file": file_name(row["seq"])}
            | {name: row[name] for name in ("seq", "bytes", "sha256")}
            for row in units
        ],
    }


def moment(found: Moment, job: Job) -> Json:
    """Return one moment of a job's timeline with its words."""
    params = {"job": str(job.id), "kind": job.kind, **found.params}
    code = found.params.get("code") or found.name
    told = words(str(code), params).happened if found.what in (What.ERROR, What.EVENT) else None
    return {
        "at": shape.time(found.at),
        "what": str(found.what),
        "name": found.name,
        "code": found.params.get("code"),
        "seq": found.params.get("seq"),
        "actor": found.params.get("actor") if found.what is What.ACTION else None,
        "reason": found.params.get("reason") if found.what is What.ACTION else None,
        "message": told if told != code else None,
    }


def _rounded(value: float | None) -> float | None:
    return round(value, 3) if value is not None else None
