"""The lock of a volume: a POSIX lock on one file, held from before the claim to the end of the tick."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from shared.errors import Busy, Code, Missing
from shared.volume.files import errno_name, let_go, names_in, opened_directory, storage_errors
from shared.volume.identity import EVIDENCE, LOCK, TEMP
from shared.volume.private import make_directory, open_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.volume.identity import Volume

WAIT_SECONDS = 1.0
POLL_SECONDS = 0.05

# POSIX locks belong to the process: a second thread would be granted the same lock, and closing any
# descriptor of the lock file would drop it for both. So one thread at a time, and one descriptor.
_one_thread = threading.Lock()


@contextmanager
def held(volume: Volume, wait_seconds: float = WAIT_SECONDS) -> Iterator[int]:
    """Hold the volume's lock, and lend the descriptor of its file.

    Raises ``Busy`` with the time since which another process holds it.
    """
    if not _one_thread.acquire(timeout=wait_seconds):
        raise Busy(Code.STORAGE_BUSY, storage_id=volume.storage_id)
    try:
        fd = _open(volume)
        try:
            _lock(volume, fd, wait_seconds)
            yield fd
        finally:
            let_go(fd)
    finally:
        _one_thread.release()


def _open(volume: Volume) -> int:
    # Read-write, because NFS grants an exclusive lock only on a descriptor that may write.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with storage_errors(volume.fd, file=LOCK):
        fd = open_file(volume.fd, LOCK, flags)
        owner = os.fstat(fd).st_uid
    if owner != volume.owner:
        let_go(fd)
        raise Missing(Code.STORAGE_UNAVAILABLE, cause="owner")
    return fd


def _lock(volume: Volume, fd: int, wait_seconds: float) -> None:
    give_up = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EACCES, errno.EAGAIN}:
                raise Missing(Code.STORAGE_UNAVAILABLE, cause=errno_name(error)) from error
            if time.monotonic() >= give_up:
                since = datetime.fromtimestamp(os.fstat(fd).st_mtime, UTC)
                raise Busy(
                    Code.STORAGE_BUSY,
                    storage_id=volume.storage_id,
                    since=since.isoformat(timespec="seconds"),
                ) from error
            time.sleep(POLL_SECONDS)
        else:
            # The time of change tells those who wait since when the lock is held.
            with storage_errors(file=LOCK):
                os.utime(fd)
            return


def prepare(volume: Volume) -> None:
    """Make the working directories if need be and empty ``.tmp``; the caller holds the lock.

    Nobody else publishes while the lock is held, so whatever is in ``.tmp`` is an orphan's or a zombie's.
    """
    with storage_errors(volume.fd):
        for name in (TEMP, EVIDENCE):
            make_directory(volume.fd, name)
        with opened_directory(volume.fd, TEMP) as temp:
            for name in names_in(temp):
                # A directory is none of ours, and would keep every tick from its work.
                if not stat.S_ISDIR(os.stat(name, dir_fd=temp, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=temp)
