"""Ticks in a row: until nothing is due, or every interval until told to stop."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shared.jobs.model import Ending
from shared.tick import Node, Report, Wanted, tick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


def watched(node: Node, wanted: Wanted, timeout_seconds: float) -> Report:
    """Run one tick under a watchdog, as the platform would.

    A process that hangs beyond ``timeout_seconds`` is ended by SIGALRM, whatever it is blocked in, so
    that it can never work on beyond its lease.
    """
    signal.setitimer(signal.ITIMER_REAL, timeout_seconds)
    if first_process := os.getpid() == 1:
        # The kernel spares the first process of a container every signal it has no handler for, and a
        # handler would wait for whatever hangs. A thread that needs no interpreter ends it instead.
        faulthandler.dump_traceback_later(timeout_seconds, exit=True)
    try:
        return tick(node, wanted)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if first_process:
            faulthandler.cancel_dump_traceback_later()


def until_idle(
    node: Node, wanted: Wanted, timeout_seconds: float, told: Callable[[Report], None]
) -> Report:
    """Tick until nothing is due at once, and return the last report; stops at a boundary on SIGTERM."""
    with stopping() as stop:
        while True:
            report = watched(node, wanted, timeout_seconds)
            told(report)
            if stop.is_set() or not wants_more(report):
                return report


def every(
    node: Node,
    wanted: Wanted,
    timeout_seconds: float,
    interval_seconds: float,
    told: Callable[[Report], None],
) -> None:
    """Tick every interval, and again at once while there is work, until SIGTERM or SIGINT."""
    with stopping() as stop:
        while not stop.is_set():
            report = watched(node, wanted, timeout_seconds)
            told(report)
            if not wants_more(report):
                # Nodes that were started together drift apart.
                stop.wait(interval_seconds * random.uniform(0.9, 1.1))  # noqa: S311 - jitter


def wants_more(report: Report) -> bool:
    """Tell whether the next tick should follow at once.

    A job was claimed, so there may be others, and whatever became of that one decides when it is due
    again. With the database away there is nothing to look for.
    """
    return report.job is not None and report.outcome.ending is not Ending.UNCERTAIN


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Turn SIGTERM and SIGINT into an event that is looked at between ticks.

    The unit in hand is finished and settled first: it is bounded, and the watchdog bounds it again.
    Once it was heard the process is leaving, and the signal stays ignored: ``timeout`` and service managers
    send it to the process and to its group, and the second must not turn a good end into a death.
    """
    stop = threading.Event()

    def ask(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {each: signal.signal(each, ask) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_IGN if stop.is_set() else handler)
