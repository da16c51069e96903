"""A process of a function, caught while it writes a batch and killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

PROCESSES = Path("/proc")
# Between two looks at processes, and at what one of them writes.
BIRTH_SECONDS = 0.05
WRITING_SECONDS = 0.0005
# What was killed is gone when the kernel has come to it.
DEATH_SECONDS = 10.0


@dataclass(frozen=True)
class Killed:
    """A process that is no more: its environment, and how much of its batch it had written."""

    process: int
    variables: dict[str, str]
    written_bytes: int


def in_mid_batch(function: str, volume: Path, seconds: float) -> Killed:
    """Wait for a process of a function that has begun a file and not published it, and send it SIGKILL."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = [process for process in _processes() if _function(process) == function]
        if not found:
            time.sleep(BIRTH_SECONDS)
            continue
        begun = _begun(volume)
        if begun is None:
            time.sleep(WRITING_SECONDS)
            continue
        for process in found:
            if killed := _killed(process, begun):
                return killed
    pytest.fail(f"no process of {function} wrote a batch within {seconds:.0f} s")


def left(stack: str) -> list[int]:
    """Return the processes of functions of a stack that was taken down; those that die have time to."""
    until = time.monotonic() + DEATH_SECONDS
    while True:
        found = [process for process in _processes() if _function(process).startswith(f"{stack}-")]
        if not found or time.monotonic() > until:
            return found
        time.sleep(BIRTH_SECONDS)


def _begun(volume: Path) -> Path | None:
    """Return a file that somebody writes and has not published, once there is something in it."""
    with suppress(OSError):
        return next((file for file in volume.glob(".tmp/*") if file.stat().st_size), None)
    return None


def _killed(process: int, begun: Path) -> Killed | None:
    """Kill a process if a file is open in it; it is stopped first, so that it has no time to finish."""
    os.kill(process, signal.SIGSTOP)
    with suppress(OSError):
        written = begun.stat()
        if (written.st_dev, written.st_ino) in set(_open_files(process)):
            variables = _variables(process)
            os.kill(process, signal.SIGKILL)
            return Killed(process, variables, written.st_size)
    os.kill(process, signal.SIGCONT)
    return None


def _processes() -> Iterator[int]:
    return (int(entry.name) for entry in PROCESSES.iterdir() if entry.name.isdigit())


def _function(process: int) -> str:
    return _variables(process).get("AWS_LAMBDA_FUNCTION_NAME", "")


def _variables(process: int) -> dict[str, str]:
    """Return the environment that a process was started with; nothing of one that is not ours, or gone."""
    with suppress(OSError):
        pairs = (PROCESSES / str(process) / "environ").read_bytes().decode(errors="replace")
        return dict(pair.split("=", 1) for pair in pairs.split("\0") if "=" in pair)
    return {}


def _open_files(process: int) -> Iterator[tuple[int, int]]:
    """Yield device and inode of what a process has open, whatever names it has for them."""
    for entry in (PROCESSES / str(process) / "fd").iterdir():
        with suppress(OSError):
            found = entry.stat()
            yield found.st_dev, found.st_ino
