"""The values a job is made of; all frozen, all as the database holds them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from shared.errors import Code

Json = dict[str, Any]


class State(StrEnum):
    """Where a job stands; the last two are closed."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    SUCCEEDED = "SUCCEEDED"
    ABANDONED = "ABANDONED"

    @property
    def closed(self) -> bool:
        """Tell whether nothing will ever happen to the job again."""
        return self in {State.SUCCEEDED, State.ABANDONED}


@dataclass(frozen=True)
class Job:
    """One job as recorded; see the comments of the table for what moves which field.

    ``input`` is fixed at creation, ``opening`` when the first unit begins, ``checkpoint`` moves with
    every settled unit. ``batches``, ``roots``, ``bytes`` and ``last_sha256`` show only what was settled.
    """

    id: UUID
    operation: str
    namespace_id: UUID
    kind: str | None
    plan_id: UUID | None
    plan_revision: int | None
    policy_revision: int | None
    storage_id: str | None
    batch_size: int
    page_size: int
    max_bytes: int
    input: Json
    opening: Json | None
    checkpoint: Json | None
    state: State
    revision: int
    generation: int
    owner: UUID | None
    due_at: datetime
    lease_until: datetime | None
    attempts: int
    takeovers: int
    failures: int
    batches: int
    roots: int
    bytes: int
    reserved: int
    last_sha256: str | None
    error_code: str | None
    error_params: Json | None
    errors: list[Json]
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Build a job from a row of ``tallystick.job``; further columns of the row are passed over."""
        values = {each.name: row[each.name] for each in fields(cls)}
        return cls(**values | {"state": State(row["state"])})

    @property
    def directory(self) -> str:
        """Return the name of the job's directory on its volume."""
        return f"{self.namespace_id}-{self.id}"


@dataclass(frozen=True)
class Fence:
    """What a holder believes of its job; every later write of the holder repeats all of it.

    Sequence and tail are part of it because a standby promoted after a failover may hand out the
    same generation a second time.
    """

    job_id: UUID
    owner: UUID
    generation: int
    seq: int
    tail: str | None

    def params(self) -> dict[str, object]:
        """Return the fence as parameters of a statement."""
        return {
            "job_id": self.job_id,
            "owner": self.owner,
            "generation": self.generation,
            "seq": self.seq,
            "tail": self.tail,
        }


@dataclass(frozen=True)
class Claim:
    """A job held by this invocation until its lease ends.

    ``reclaimed`` says that another holder's lease had run out; ``barred`` is the reason why nothing
    more may be exported, as it stood at the claim.
    """

    job: Job
    reclaimed: bool
    barred: Code | None = None

    @property
    def fence(self) -> Fence:
        """Return what every write of this holder must repeat."""
        job = self.job
        assert job.owner is not None  # noqa: S101 - a claimed job has an owner, by CHECK
        return Fence(job.id, job.owner, job.generation, job.batches, job.last_sha256)


@dataclass(frozen=True)
class Event:
    """One recovery event; where it has no job, it speaks of the node."""

    type: str
    severity: str
    done: bool
    reason_code: str | None = None
    reason_params: Json = field(default_factory=dict)


@dataclass(frozen=True)
class LedgerEntry:
    """The logical bytes that one directory of the volume is now known to hold."""

    directory: str
    bytes: int


@dataclass(frozen=True)
class Published:
    """The file of a unit on the volume; its size and digest are those of the unit."""

    directory: str
    file: str


@dataclass(frozen=True)
class Progress:
    """What one verified unit adds to its job, all of it read back from where it was put.

    A unit with a ``published`` file has the ledger entry of its directory too.
    """

    seq: int
    sha256: str | None
    bytes: int
    roots: int
    evidence: Json
    checkpoint: Json
    tail: str | None
    final: bool
    ledger: tuple[LedgerEntry, ...] = ()
    events: tuple[Event, ...] = ()
    released: tuple[UUID, ...] = ()
    published: Published | None = None


class Ending(StrEnum):
    """How a tick ended; what the loop, the shell and the alarms look at."""

    IDLE = "idle"
    PROGRESSED = "progressed"
    FINISHED = "finished"
    WAITING = "waiting"
    PAUSED = "paused"
    FAILED = "failed"
    STALE = "stale"
    UNCERTAIN = "uncertain"


@dataclass(frozen=True)
class Outcome:
    """The one result of a tick: how it ended, why, and until when to wait if waiting."""

    ending: Ending
    code: Code | None = None
    params: Json = field(default_factory=dict)
    wait_seconds: float | None = None
