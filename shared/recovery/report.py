"""The recovery report: events newest first, searched and in pages."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from shared.db.statement import statement

if TYPE_CHECKING:
    from uuid import UUID

    from shared.db.connect import Database, Row


@dataclass(frozen=True)
class Query:
    """Which events to show; ``before`` is the last event of the page seen before."""

    namespace_id: UUID | None = None
    job_id: UUID | None = None
    before: UUID | None = None
    search: str | None = None
    limit: int = 20


def newest(control: Database, query: Query) -> list[Row]:
    """Return the events asked for, newest first."""
    return control.transact(statement("shared.recovery", "newest"), asdict(query), repeatable=True)
