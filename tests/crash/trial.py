"""One trial: a copy of a world, a tick to which something happens, recovery, and the judge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shared.errors import Code
from shared.jobs.model import State
from shared.jobs.rules import Action
from tests.crash.follow import Act
from tests.crash.inject import Launcher, Run, launcher
from tests.crash.judge import Allowed
from tests.crash.mould import Mould, cast, found_by_units, mould
from tests.crash.scene import Scene
from tests.operations import stage
from tests.operations.stage import Stage
from tests.worlds import one

ROUNDS = 6


@dataclass(frozen=True)
class Ground:
    """Where trials of one world take place."""

    server: str
    mould: Mould
    launcher: Launcher

    @contextmanager
    def world(self) -> Iterator[Scene]:
        with cast(self.mould, self.server) as made:
            yield made

    def tick(self, world: Scene, *acts: Act, timeout: float | None = None) -> Run:
        """Tick once in a process of its own, to which ``acts`` happen."""
        return self.launcher.run(
            world.stage.node, *acts, operation=self.mould.operation, timeout=timeout
        )

    def faults(self, world: Scene, allowed: Allowed | None = None) -> list[str]:
        """Ask the judge, and compare what units say with an undisturbed run."""
        faults = world.faults(allowed)
        if allowed is None and (found := found_by_units(world.stage, self.mould.operation)) != (
            self.mould.found
        ):
            faults.append(f"its units say {found} and not {self.mould.found}")
        return faults


@contextmanager
def ground(name: str, server: str, template: str, place: Path) -> Iterator[Ground]:
    """Make a world to copy and a process to tick in."""
    with mould(name, server, template, place) as made, launcher() as process:
        yield Ground(server, made, process)


def recover(here: Stage) -> None:
    """Do what time and operators do: leases and backoffs end, what failed is retried, ticks go on."""
    sessions_end(here)
    for _ in range(ROUNDS):
        stage.expire(here)
        stage.due_now(here)
        here.until_idle()
        jobs = stage.jobs(here)
        if jobs and all(job.state is State.SUCCEEDED for job in jobs):
            return
        for job in jobs:
            if job.state is State.FAILED and job.error_code == Code.STORAGE_LIMIT:
                stage.act(here, job, Action.RETRY)


def sessions_end(here: Stage) -> None:
    """Wait until the server has noticed that a client is gone: nothing of it can commit after that."""
    text = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    stage.wait_for(lambda: one(here.control, text) == 0)
