"""Makes the jobs of plans that are due, a bounded number per tick."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

from shared.db.statement import statement
from shared.jobs import rules

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

    from shared.db.connect import Database


# How old the note of the last tick may be before a tick makes a new one.
NOTED_SECONDS = 5


@dataclass(frozen=True)
class KnownKind:
    """A kind this node can make jobs of: its canonical definition, and the one namespace it belongs to.

    ``namespace`` is None for a kind whose rows name their namespace themselves.
    """

    kind: str
    namespace: str | None
    definition: dict[str, Any]


@dataclass(frozen=True)
class Scheduled:
    """The jobs that were made, and the seconds for which the oldest due job has waited (0 for none)."""

    jobs: list[UUID]
    oldest_due_seconds: float


def schedule(
    control: Database,
    kinds: Iterable[KnownKind],
    operations: Iterable[str],
    ticked: Iterable[str] = (),
) -> Scheduled:
    """Make at most ``DUE_PLANS_MAX`` jobs; doing it again makes none twice.

    ``ticked`` are the operations this tick came by for, noted even where it can make no job of them.
    """
    params = asked(kinds, operations) | {"ticked": list(ticked)}
    rows = control.transact(statement("shared.plans", "schedule"), params, repeatable=True)
    made = [row["id"] for row in rows if row["id"] is not None]
    return Scheduled(made, round(rows[0]["oldest_due_seconds"], 3))


def asked(
    kinds: Iterable[KnownKind], operations: Iterable[str], plans_max: int = rules.DUE_PLANS_MAX
) -> dict[str, object]:
    """Return the parameters of the scheduling statement; nothing is noted as ticked."""
    return {
        "kinds": Jsonb([asdict(kind) for kind in kinds]),
        "operations": list(operations),
        "ticked": [],
        "noted_seconds": NOTED_SECONDS,
        "farthest_seconds": rules.FARTHEST_PLAN_SECONDS,
        "plans_max": plans_max,
    }


@dataclass(frozen=True)
class LastTick:
    """When a tick last came by for an operation, and how long ago by the database's clock."""

    operation: str
    ticked_at: datetime
    age_seconds: float


def last_ticks(control: Database) -> dict[str, LastTick]:
    """Return the last tick of every operation that was ever ticked for, by its name."""
    rows = control.transact(statement("shared.plans", "last_ticks"), {}, repeatable=True)
    return {row["operation"]: LastTick(**row) for row in rows}
