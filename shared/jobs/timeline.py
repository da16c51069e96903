"""What happened to a job, in order: its making, units, errors, recovery, what operators did, its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from shared.db.statement import statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from shared.db.connect import Database, Row
    from shared.jobs.model import Job

ACTIONS_MAX = 20


class What(StrEnum):
    """What a moment of a timeline tells of."""

    CREATED = "created"
    UNIT = "unit"
    ERROR = "error"
    EVENT = "event"
    ACTION = "action"
    CLOSED = "closed"


@dataclass(frozen=True)
class Moment:
    """One thing that happened: ``name`` says which error, event or action, ``params`` the rest of it."""

    at: datetime
    what: What
    name: str
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Kept:
    """What is kept of a job beside its row: its first unit and its last, and what operators did."""

    ends: list[Row]
    actions: list[Row]


def kept(control: Database, job_id: UUID) -> Kept:
    """Read what a timeline needs and no other question asks for; actions are the newest few."""
    params = {"job_id": job_id, "limit": ACTIONS_MAX}
    return Kept(
        control.transact(statement("shared.jobs", "unit_ends"), params, repeatable=True),
        control.transact(statement("shared.jobs", "actions"), params, repeatable=True),
    )


def timeline(job: Job, events: Sequence[Row], beside: Kept) -> list[Moment]:
    """Return the moments of a job, oldest first, as far as they are kept."""
    moments = [Moment(job.created_at, What.CREATED, "created")]
    moments += [
        Moment(row["settled_at"], What.UNIT, "settled", {"seq": row["seq"]}) for row in beside.ends
    ]
    moments += _events(events)
    moments += _errors(job, events)
    moments += [
        Moment(
            row["occurred_at"],
            What.ACTION,
            row["action"],
            {"actor": row["actor"], "reason": row["reason"]},
        )
        for row in beside.actions
    ]
    # What happened in the same moment stays in the order above; and the end is the end, though the entries
    # that the same transaction wrote bear a later microsecond.
    moments.sort(key=lambda moment: moment.at)
    if job.closed_at is not None:
        moments.append(Moment(job.closed_at, What.CLOSED, str(job.state)))
    return moments


def _events(events: Iterable[Row]) -> list[Moment]:
    return [
        Moment(
            row["occurred_at"],
            What.EVENT,
            row["type"],
            {"code": row["reason_code"], **(row["reason_params"] or {})},
        )
        # They come newest first.
        for row in reversed(list(events))
    ]


def _errors(job: Job, events: Iterable[Row]) -> list[Moment]:
    """Return the errors whose event is not among those that are kept: each is told once."""
    told = {(row["reason_code"], row["attempt"]) for row in events}
    return [
        Moment(datetime.fromisoformat(error["at"]), What.ERROR, error["code"], error["params"])
        for error in job.errors
        if (error["code"], error["attempt"]) not in told
    ]
