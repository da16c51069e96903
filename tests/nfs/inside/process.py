"""A process beside the test, forked: in this guest an import takes seconds."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[int]:
    """Do ``work`` in a process of its own for as long as the block lasts; yield its number."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - said, and told by the status
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(status)
    try:
        yield pid
    finally:
        kill(pid)


def kill(pid: int) -> None:
    """End a process without a word; one that has ended stays as it is."""
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        return


def ended(pid: int) -> None:
    """Wait for a process to end well."""
    _, status = os.waitpid(pid, 0)
    assert status == 0
