"""A process that ticks until it is killed, as a node's loop does."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from shared import loop
from shared.tick import Node, Report, Wanted

WATCHDOG_SECONDS = 60.0
INTERVAL_SECONDS = 0.3
RAISED = "raised"


@dataclass
class Ticker:
    """One such process; ``node`` is what it ticks for, ``lied_to`` that no lock of its is one."""

    pid: int
    node: Node
    lied_to: bool
    stopped: bool = False

    def stop(self) -> None:
        """Let it stand still, whatever it is doing."""
        os.kill(self.pid, signal.SIGSTOP)
        self.stopped = True

    def go_on(self) -> None:
        """Let it go on as if nothing had been."""
        os.kill(self.pid, signal.SIGCONT)
        self.stopped = False

    def kill(self) -> None:
        """End it without a word."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def started(node: Node, told: Path, *, lied_to: bool) -> Ticker:
    """Fork a process that ticks and appends to ``told`` what became of each tick.

    It has imported everything already, so that what is killed is a tick. No thread and no connection of
    the forking process may be open.
    """
    pid = os.fork()
    if pid == 0:
        _tick_on(node, told, lied_to=lied_to)
    return Ticker(pid, node, lied_to)


def _tick_on(node: Node, told: Path, *, lied_to: bool) -> None:
    # Nothing of the process that forked is to be done here: neither its handlers nor its cleaning up.
    try:
        if lied_to:
            fcntl.lockf = _granted
        # One write a line, so that a line is there or is not.
        with told.open("ab", buffering=0) as file:
            loop.every(
                node,
                Wanted(),
                WATCHDOG_SECONDS,
                INTERVAL_SECONDS,
                lambda report: _tell(file, report),
            )
    except BaseException:  # noqa: BLE001 - whatever it is, the round has to know
        with told.open("ab", buffering=0) as file:
            file.write(_line([RAISED, traceback.format_exc()]))
    finally:
        os._exit(1)


def _tell(file: IO[bytes], report: Report) -> None:
    file.write(_line([report.outcome.ending, report.outcome.code]))


def _line(said: list[str | None]) -> bytes:
    return json.dumps(said).encode() + b"\n"


def _granted(*_args: object) -> None:
    """Say that the lock was granted, and grant none."""
