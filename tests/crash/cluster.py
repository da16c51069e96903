"""A Postgres of our own that keeps what it promises, and can be killed."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from shared.db import embedded
from shared.db.migrate import migrate
from tests.conftest import TEST_PG_BIN
from tests.worlds import one

TEMPLATE = "template_of_ours"


@contextmanager
def running(home: Path) -> Iterator[Cluster]:
    """Start a server below ``home`` and stop it in the end, whatever was done to it."""
    try:
        yield Cluster(home)
    finally:
        embedded.stop(home)


class Cluster:
    """A server below ``home``, from the start."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.dsn = self.start()

    def start(self) -> str:
        """Start it if it does not run; it recovers first, from what is on the disk."""
        binaries = Path(TEST_PG_BIN) if TEST_PG_BIN else None
        return embedded.start(self.home, durable=True, binaries=binaries)

    def restart(self) -> None:
        """Stop it and start it again, so that settings come into force."""
        self.stop()
        self.dsn = self.start()

    def stop(self) -> None:
        """Stop it as an operator would."""
        embedded.stop(self.home)

    def template(self) -> str:
        """Make a migrated database to be copied, and return its name."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE template0".encode())
        migrate(urlunsplit(urlsplit(self.dsn)._replace(path=f"/{TEMPLATE}")))
        return TEMPLATE

    def kill(self) -> None:
        """End every process of it at once, as the kernel or a power cut would."""
        postmaster = self._postmaster()
        # Stopped first: a dead child is not replaced, nor does the last checkpoint of a shutdown run.
        os.kill(postmaster, signal.SIGSTOP)
        for pid in (*_children(postmaster), postmaster):
            with suppress(ProcessLookupError):
                _kill(pid)

    def kill_one(self) -> None:
        """End the process of one session, or without any another's: the server ends all, and recovers."""
        text = (
            "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND backend_type IN ('client backend', 'checkpointer') ORDER BY backend_type DESC"
        )
        os.kill(one(self.dsn, text), signal.SIGKILL)

    def _postmaster(self) -> int:
        return int(embedded.Embedded(self.home).pid_file.read_text().split()[0])


def _kill(pid: int) -> None:
    """End a process and wait until it has: before that it would still pass for a running server."""
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        select.select([process], [], [])
    finally:
        os.close(process)


def _children(parent: int) -> list[int]:
    listed = (Path("/proc") / str(parent) / "task" / str(parent) / "children").read_text()
    return [int(pid) for pid in listed.split()]
