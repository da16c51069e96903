"""What is examined: one node's part of an installation, and the connections it is looked at through."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.archive.source import SourceConnection
from shared.clock import Deadline
from shared.db.connect import Database, Dsn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from shared.archive.kinds import NamedKind
    from shared.errors import Refused

# No check begins later, and none takes long: short enough for a monitor that asks every minute.
EXAMINATION_SECONDS = 10.0


@dataclass(frozen=True)
class Installation:
    """What one node knows of its installation; sizes are in bytes.

    ``control_dsn`` is None where no database is configured or running. ``kinds`` are those of the
    deployment and the built-in ones; ``kinds_problem`` is why the deployment's could not be read.
    """

    control_dsn: Dsn | None
    sources: Mapping[str, Dsn]
    kinds: Mapping[str, NamedKind]
    kinds_problem: Refused | None
    root: Path | None
    storage_id: str | None
    volume_max_bytes: int


@dataclass(frozen=True)
class Ground:
    """What the checks stand on: the installation, the time there is, and connections not yet opened."""

    installation: Installation
    deadline: Deadline
    control: Database | None
    sources: Mapping[str, SourceConnection]


@contextmanager
def opened(installation: Installation) -> Iterator[Ground]:
    """Give an examination its time and its connections, and close them again."""
    deadline = Deadline.after(EXAMINATION_SECONDS)
    dsn = installation.control_dsn
    # Nothing is repeated: what does not answer at once is what an examination is there to find.
    control = Database(dsn, deadline, retries=0) if dsn is not None else None
    sources = {name: SourceConnection(dsn) for name, dsn in installation.sources.items()}
    try:
        yield Ground(installation, deadline, control, sources)
    finally:
        if control is not None:
            control.close()
        for source in sources.values():
            source.close()
