"""A server on this machine: a port for it, the wait until it answers, and its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

ADDRESS = "127.0.0.1"
START_SECONDS = 120
POLL_SECONDS = 0.1
LOG_LINES = 20


def free_port() -> int:
    """Return a port that nobody listened on just now."""
    with socket.create_server((ADDRESS, 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextmanager
def running(
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    log: Path,
    connect: Callable[[], HTTPConnection],
) -> Iterator[None]:
    """Run a server in the directory of its log, with no variables but these, while the block lasts.

    Raises ``RuntimeError`` with the end of its log where it does not come up.
    """
    with log.open("wb") as lines:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=lines,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(process, log, connect)
        yield
    finally:
        _end(process)


def _wait(
    process: subprocess.Popen[bytes], log: Path, connect: Callable[[], HTTPConnection]
) -> None:
    """Wait until a process answers."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        connection = connect()
        with suppress(OSError), closing(connection):
            connection.request("GET", "/_localstack/health")
            connection.getresponse()
            return
        time.sleep(POLL_SECONDS)
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    raise RuntimeError("The emulator did not come up:\n" + "\n".join(lines))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and everything of its session at once: it keeps nothing that could be lost."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
