"""What an operation is, and what it is given to work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from shared.archive.window import HIDDEN_MARGIN_SECONDS
from shared.errors import Code, Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.archive.source import SourceConnection
    from shared.clock import Deadline
    from shared.db.connect import Database
    from shared.jobs.model import Claim, Progress
    from shared.volume.identity import Volume
    from shared.volume.ledger import Ledger

Unit = TypeVar("Unit")
Done = TypeVar("Done")
Proof = TypeVar("Proof")


@dataclass(frozen=True)
class Held:
    """A volume whose lock this invocation holds, and its account when the tick began."""

    volume: Volume
    ledger: Ledger


@dataclass(frozen=True)
class Work:
    """The outside world as an operation may touch it during one unit.

    ``sources`` are the databases rows may be read from, by the name a kind uses for them;
    ``volume_max_bytes`` is the budget of the volume; ``writer`` names this program and its version;
    ``hidden_margin_seconds`` is how long before the source's clock a window ends at the latest where
    running transactions cannot be seen.
    """

    control: Database
    sources: Mapping[str, SourceConnection]
    held: Held | None
    deadline: Deadline
    volume_max_bytes: int
    writer: str
    hidden_margin_seconds: int = HIDDEN_MARGIN_SECONDS

    @property
    def storage(self) -> Held:
        """Return the held volume; raises ``Missing`` where there is none."""
        if self.held is None:
            raise Missing(Code.STORAGE_UNAVAILABLE, cause="not-configured")
        return self.held


@dataclass(frozen=True)
class Operation(Generic[Unit, Done, Proof]):
    """A kind of work as the tick sees it.

    ``next_unit`` reads the checkpoint and decides what comes next; ``do`` does it, once, bounded;
    ``verify`` proves it from the place it was put; ``record`` says, without touching anything, what
    shall be settled. Each may raise a ``Trouble``, or ``Stale`` when the claim was lost.
    """

    name: str
    needs_volume: bool
    next_unit: Callable[[Work, Claim], Unit]
    do: Callable[[Work, Unit], Done]
    verify: Callable[[Work, Unit, Done], Proof]
    record: Callable[[Unit, Proof], Progress]
