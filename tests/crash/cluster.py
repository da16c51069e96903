"""A Postgres of our own that keeps what it promises, and can be killed."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

from shared.db import embedded
from tests.conftest import TEST_PG_BIN
from tests.worlds import one


class Cluster:
    """A server below ``home``, from the start."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.dsn = self.start()

    def start(self) -> str:
        """Start it if it does not run; it recovers first, from what is on the disk."""
        binaries = Path(TEST_PG_BIN) if TEST_PG_BIN else None
        return embedded.start(self.home, durable=True, binaries=binaries)

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
