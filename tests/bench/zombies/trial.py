"""One trial: a database with one job in it, workers that are real processes, and what is seen of them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from shared.db import embedded
from shared.db.connect import Row, connect
from tests.bench import ground
from tests.bench.zombies.job import TABLES
from tests.bench.zombies.systems import OPEN, Tried

Process = subprocess.Popen[bytes]

ROOT = Path(__file__).parents[3]
COMMAND_SECONDS = 60
# Nobody who has not begun by then will: ten times what a system needs to take a worker for dead.
PATIENCE_SECONDS = 30.0
# What a worker does late, it does within this.
QUIET_SECONDS = 4.0
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Seen:
    """What a trial came to: who had the effect, in order, how the job stands, and what else was seen."""

    effects: tuple[str, ...]
    state: str
    history: str
    remark: str = ""


@dataclass
class Trial:
    """A job of one system on a database of its own.

    ``python`` runs the system's module; ``server`` is the home of the server, ``home`` that of the logs.
    """

    tried: Tried
    python: Path
    server: Path
    url: str
    home: Path
    job: str = ""
    workers: list[Process] = field(default_factory=list)

    def command(self, *words: str) -> str:
        """Drive the system and return what it printed; raises where it refuses."""
        with (self.home / "commands.log").open("ab") as log:
            done = subprocess.run(
                self._line(*words),
                cwd=ROOT,
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                check=True,
                timeout=COMMAND_SECONDS,
            )
        return done.stdout.decode().strip()

    def start(self, name: str, place: str | None = None) -> Process:
        """Start a worker, in the place of another where its system knows places."""
        with (self.home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                self._line("work", name, place or name),
                cwd=ROOT,
                env=self._environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.workers.append(process)
        return process

    def begun(self, name: str) -> bool:
        """Wait until a worker has begun the job, and tell whether it did."""
        return until(lambda: name in self.names("started"))

    def closed(self) -> bool:
        """Wait until the job is in the hands of nobody, and tell whether it came to that."""
        return until(lambda: self.stands()["state"] not in OPEN)

    def stands(self) -> Row:
        """Return the state of the job and its history, as its system's tables tell them."""
        found = self.ask(self.tried.query, self.job)
        return found[0] if found else {"state": "(gone)", "history": ""}

    def names(self, table: str) -> tuple[str, ...]:
        """Return who began the job, or who had its effect, in order."""
        found = self.ask(f"SELECT worker FROM {table} WHERE job = %s ORDER BY at", self.job)
        return tuple(row["worker"] for row in found)

    def ask(self, statement: str, *values: str) -> list[Row]:
        """Return the rows of a statement."""
        with connect(self.url) as connection:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall()

    def seen(self, remark: str = "") -> Seen:
        """Give whoever is late the time to act, and look."""
        time.sleep(QUIET_SECONDS)
        stands = self.stands()
        return Seen(self.names("effect"), str(stands["state"]), str(stands["history"]), remark)

    def _line(self, command: str, *words: str) -> list[str]:
        module = f"tests.bench.zombies.{self.tried.module}"
        return [str(self.python), "-m", module, command, self.url, *words]

    def _environment(self) -> dict[str, str]:
        return os.environ | dict(self.tried.settings)


def send(worker: Process, number: signal.Signals) -> None:
    """Send a signal to a worker and to whatever it started."""
    os.killpg(worker.pid, number)


def until(met: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
    """Wait until something is so, and tell whether it became so in time."""
    ends = time.monotonic() + seconds
    while not met():
        if time.monotonic() > ends:
            return False
        time.sleep(POLL_SECONDS)
    return True


@contextmanager
def trial(tried: Tried, python: Path, server: Path, home: Path) -> Iterator[Trial]:
    """Make the database and the job, and end all workers afterwards."""
    home.mkdir(parents=True, exist_ok=True)
    name = f"{home.parent.name}_{home.name}".replace("-", "_")
    address = embedded.start(server)
    ground.database(address, name)
    url = urlsplit(address)._replace(path=f"/{name}").geturl()
    here = Trial(tried, python, server, url, home)
    with connect(here.url) as connection:
        for statement in TABLES:
            connection.execute(statement.encode())
    here.command("install")
    here.job = here.command("submit")
    try:
        yield here
    finally:
        for worker in here.workers:
            if worker.poll() is None:
                send(worker, signal.SIGKILL)
                worker.wait()
