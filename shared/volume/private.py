"""Directories and files that only their owner may use, whatever the umask and the parent directory say.

Modes are set on descriptors, never by name: a name may lead somewhere else by the time it is looked up.
"""

from __future__ import annotations

import os
import stat
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shared.volume.files import READ, let_go

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PRIVATE = 0o700
PRIVATE_FILE = 0o600
UMASK = 0o077
# It lets nobody in. A directory inherits it from its parent, and `chmod 0700` does not take it away.
HARMLESS = stat.S_ISGID

# The umask belongs to the process: two threads that set it and put it back would leave it wrong.
_one_thread = threading.Lock()


@contextmanager
def private_umask() -> Iterator[None]:
    """Let what is made in the block be private from the first moment, and usable by its owner."""
    with _one_thread:
        before = os.umask(UMASK)
        try:
            yield
        finally:
            os.umask(before)


def is_private(mode: int) -> bool:
    """Tell whether a directory of this mode lets its owner in and nobody else."""
    return stat.S_IMODE(mode) & ~HARMLESS == PRIVATE


def make_directory(dir_fd: int, name: str) -> bool:
    """Make a directory of mode 0700; False when something has the name already. Raises ``OSError``."""
    try:
        with private_umask():
            os.mkdir(name, PRIVATE, dir_fd=dir_fd)
    except FileExistsError:
        return False
    fd = os.open(name, READ | os.O_DIRECTORY, dir_fd=dir_fd)
    try:
        _set(fd, PRIVATE)
    finally:
        let_go(fd)
    return True


def open_file(dir_fd: int, name: str, flags: int) -> int:
    """Open a file, made with mode 0600 where ``flags`` say so and it is not there; raises ``OSError``."""
    with private_umask():
        fd = os.open(name, flags, PRIVATE_FILE, dir_fd=dir_fd)
    try:
        _set(fd, PRIVATE_FILE)
    except BaseException:
        let_go(fd)
        raise
    return fd


def make_private(path: Path) -> None:
    """Give a file of ours, which no link may stand for, mode 0600; raises ``OSError``."""
    fd = os.open(path, READ)
    try:
        _set(fd, PRIVATE_FILE)
    finally:
        let_go(fd)


def _set(fd: int, mode: int) -> None:
    status = os.fstat(fd)
    # What another user put there is not ours to change; those who go on with it check its owner.
    if stat.S_IMODE(status.st_mode) != mode and status.st_uid == os.geteuid():
        os.fchmod(fd, mode)
