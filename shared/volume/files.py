"""Plain files relative to a directory descriptor, never following a link, and what their errors mean."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from shared.errors import Code, Missing, Passing, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

CHUNK = 1024 * 1024
# Without O_NONBLOCK, opening a pipe that somebody put there would wait for its other end.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# So many entries are read that are no batch files or job directories, whose number has no limit.
ENTRIES_MAX = 100_000
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def errno_name(error: OSError) -> str:
    """Return the symbolic name of an operating system error, for the parameters of a code."""
    return errno.errorcode.get(error.errno or 0, "EUNKNOWN")


@contextmanager
def storage_errors(fd: int | None = None, **params: object) -> Iterator[None]:
    """Turn what the operating system says of the volume into a trouble.

    A full volume is a verdict; with ``fd``, a descriptor on it, what it has none of is told: bytes or
    inodes. One that is mounted read-only is not there to be worked with. Everything else passes: only bytes
    that were read can prove damage.
    """
    try:
        yield
    except OSError as error:
        cause = errno_name(error)
        if error.errno == errno.EROFS:
            raise Missing(Code.STORAGE_UNAVAILABLE, cause="read-only", **params) from error
        if error.errno == errno.ENOSPC and (free := _free_without_inodes(fd)):
            raise Verdict(Code.STORAGE_LIMIT, cause="inodes", free=free, **params) from error
        if error.errno in FULL:
            raise Verdict(Code.STORAGE_LIMIT, cause=cause, **params) from error
        raise Passing(Code.STORAGE_FAILED, cause=cause, **params) from error


def _free_without_inodes(fd: int | None) -> int:
    """Return the free bytes of a file system that has room but no inode left; 0 in every other case."""
    if fd is None:
        return 0
    with suppress(OSError):
        found = os.fstatvfs(fd)
        # Network file systems may count no inodes at all.
        if found.f_files > 0 and found.f_favail == 0:
            return found.f_bavail * found.f_frsize
    return 0


def let_go(fd: int) -> None:
    """Close a descriptor that nothing was written through.

    An error of ``close`` tells of bytes that were not written; there are none here, and the descriptor is
    gone whatever is said.
    """
    with suppress(OSError):
        os.close(fd)


def read_whole(dir_fd: int, name: str, limit: int) -> tuple[bytes, os.stat_result]:
    """Return the bytes (at most ``limit``) and status of a regular file; raises ``OSError``."""
    fd = os.open(name, READ, dir_fd=dir_fd)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", name)
        return read_up_to(fd, limit), status
    finally:
        let_go(fd)


def read_up_to(fd: int, limit: int) -> bytes:
    """Return the bytes of an open file to its end, at most ``limit``; one call may return fewer."""
    pieces = []
    while limit > 0 and (piece := os.read(fd, min(limit, CHUNK))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def write_all(fd: int, content: bytes) -> None:
    """Write all of ``content``, which one call need not do; raises ``OSError``."""
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def chunks_of(fd: int) -> Iterator[bytes]:
    """Yield the bytes of an open file from where it stands to its end."""
    while piece := os.read(fd, CHUNK):
        yield piece


@contextmanager
def opened_file(dir_fd: int, name: str) -> Iterator[int]:
    """Open a regular file for reading and close it again; raises ``OSError``."""
    fd = os.open(name, READ, dir_fd=dir_fd)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", name)
        yield fd
    finally:
        let_go(fd)


@contextmanager
def opened_directory(dir_fd: int, name: str) -> Iterator[int]:
    """Open a directory below another and close it again; raises ``OSError``."""
    fd = os.open(name, READ | os.O_DIRECTORY, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        let_go(fd)


def shown(name: str) -> str:
    """Return a name as it can be stored and printed: bytes that are no UTF-8 are spelled out."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def entries_of(dir_fd: int) -> Generator[os.DirEntry[str]]:
    """Yield the entries of a directory as it gives them: in no order, and however many there are."""
    # Opened afresh: reading moves a position that descriptors of one opening share.
    with opened_directory(dir_fd, ".") as fd, os.scandir(fd) as entries:
        yield from entries


def is_in(dir_fd: int, name: str) -> bool:
    """Tell whether a directory lists a name."""
    with closing(entries_of(dir_fd)) as entries:
        return any(entry.name == name for entry in entries)


def names_in(dir_fd: int, expected: Callable[[str], bool] = lambda _: False) -> list[str]:
    """Return the names in a directory, sorted.

    Raises ``Verdict`` beyond ``ENTRIES_MAX`` names, not counting those that are ``expected``.
    """
    names, others = [], 0
    with closing(entries_of(dir_fd)) as entries:
        for entry in entries:
            names.append(entry.name)
            others += not expected(entry.name)
            if others > ENTRIES_MAX:
                raise too_many_entries()
    return sorted(names)


def too_many_entries() -> Verdict:
    """Return what is said of a directory with more than ``ENTRIES_MAX`` entries that do not belong to it."""
    return Verdict(Code.STORAGE_LIMIT, cause="too-many-entries", limit=ENTRIES_MAX)
