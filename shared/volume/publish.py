"""Publishing a file: written once, under a name by position, durable before anybody is told.

The order is the safety: write a temporary file, make it durable, read it back, give it its name with
``link`` (which never replaces anything), make the name durable. A crash before ``link`` leaves an orphan
in ``.tmp``; a crash after it leaves a whole file that the next holder adopts.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.errors import Code, Missing, Passing, Verdict
from shared.volume.files import (
    READ,
    chunks_of,
    is_in,
    let_go,
    opened_directory,
    opened_file,
    read_up_to,
    storage_errors,
    write_all,
)
from shared.volume.identity import TEMP
from shared.volume.private import make_directory, open_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shared.volume.identity import Volume

CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Temp:
    """A durable file in ``.tmp`` that has no name of its own yet."""

    name: str
    inode: int
    size: int
    sha256: str


def write_temp(volume: Volume, chunks: Iterable[bytes]) -> Temp:
    """Write ``chunks`` into a new temporary file and make it durable.

    A failed fsync is never tried again, since the kernel may have dropped what it could not write: the
    file is thrown away and the unit done anew. Raises what ``storage_errors`` makes of system errors,
    and lets errors of ``chunks`` pass after removing the file.
    """
    name = secrets.token_hex(16)
    digest, size = hashlib.sha256(), 0
    with storage_errors(volume.fd), opened_directory(volume.fd, TEMP) as temp:
        fd = open_file(temp, name, CREATE)
        try:
            _check_owner(volume, fd)
            for chunk in chunks:
                write_all(fd, chunk)
                digest.update(chunk)
                size += len(chunk)
            os.fsync(fd)
            inode = os.fstat(fd).st_ino
        except BaseException:
            let_go(fd)
            # What cannot be removed now is an orphan, and what is told is why it came to that.
            with suppress(OSError):
                os.unlink(name, dir_fd=temp)
            raise
        os.close(fd)
    return Temp(name, inode, size, digest.hexdigest())


def discard(volume: Volume, temp: Temp) -> None:
    """Remove a temporary file that will not be published, or has been."""
    with storage_errors(), opened_directory(volume.fd, TEMP) as fd, suppress(FileNotFoundError):
        os.unlink(temp.name, dir_fd=fd)


@contextmanager
def opened_temp(volume: Volume, temp: Temp) -> Iterator[int]:
    """Open a temporary file again, to read back what was written."""
    with (
        storage_errors(),
        opened_directory(volume.fd, TEMP) as directory,
        opened_file(directory, temp.name) as fd,
    ):
        yield fd


@contextmanager
def job_directory(volume: Volume, name: str, *, create: bool) -> Iterator[int]:
    """Open a job's directory; ``create`` makes it and makes its name durable.

    Raises ``Verdict`` (FILE_CHECK_FAILED) when a directory that must be there is not.
    """
    with storage_errors(volume.fd, directory=name):
        if create:
            make_directory(volume.fd, name)
            # Also when it was there: whoever made it may have died before this.
            os.fsync(volume.fd)
        try:
            fd = os.open(name, READ | os.O_DIRECTORY, dir_fd=volume.fd)
        except FileNotFoundError:
            raise _missing(volume.fd, name) from None
    try:
        yield fd
    finally:
        let_go(fd)


def publish(volume: Volume, temp: Temp, directory: int, name: str) -> bool:
    """Give a temporary file its name, once; True when it is ours, False when the name holds another file.

    Any error of ``link`` may hide a success whose answer was lost, and a lookup may be stale: so the
    name is opened and the inode compared. False leaves it to the caller to judge the file that is there.
    """
    try:
        with opened_directory(volume.fd, TEMP) as fd:
            os.link(temp.name, name, src_dir_fd=fd, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        return _whose(temp, directory, name, error)
    return True


def make_durable(directory: int, adopted: str | None = None) -> None:
    """Make the names in a directory durable, and before them an adopted file, written by who knows whom."""
    with storage_errors():
        if adopted is not None:
            with opened_file(directory, adopted) as fd:
                os.fsync(fd)
        os.fsync(directory)


def read_published(directory: int, name: str, limit: int) -> bytes:
    """Return at most ``limit`` bytes of a small published file; raises as ``published`` does."""
    with published(directory, name) as fd:
        return read_up_to(fd, limit)


@contextmanager
def published(directory: int, name: str) -> Iterator[int]:
    """Open a published file for reading.

    Raises ``Verdict`` (FILE_CHECK_FAILED) when a confirmed file is not there, or is no file.
    """
    with storage_errors(file=name):
        try:
            fd = _open(directory, name)
        except FileNotFoundError:
            raise _missing(directory, name) from None
        try:
            yield fd
        finally:
            let_go(fd)


def sha256_of(fd: int) -> str:
    """Return the SHA-256 of an open file from where it stands to its end."""
    digest = hashlib.sha256()
    with storage_errors():
        for chunk in chunks_of(fd):
            digest.update(chunk)
    return digest.hexdigest()


def is_listed(directory: int, name: str) -> bool:
    """Tell whether a name shows in the listing of its directory.

    The listing is asked and not the name: a client remembers a name it once missed, for half a minute.
    """
    with storage_errors():
        return is_in(directory, name)


def _whose(temp: Temp, directory: int, name: str, link_error: OSError) -> bool:
    with storage_errors(directory, file=name):
        try:
            fd = _open(directory, name)
        except FileNotFoundError:
            # Not there, so the link did fail, and its own error says why.
            raise link_error from None
        try:
            return os.fstat(fd).st_ino == temp.inode
        finally:
            let_go(fd)


def _open(directory: int, name: str) -> int:
    """Open a regular file; raises ``Verdict`` where the name is something else, ``OSError`` otherwise."""
    try:
        fd = os.open(name, READ, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Verdict(Code.FILE_CHECK_FAILED, cause="not-a-file", file=name) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        let_go(fd)
        raise Verdict(Code.FILE_CHECK_FAILED, cause="not-a-file", file=name)
    return fd


def _missing(directory: int, name: str) -> Verdict | Passing:
    """Tell a name that is gone from one that this client merely cannot see: the listing decides."""
    if is_in(directory, name):
        return Passing(Code.STORAGE_FAILED, cause="ENOENT", file=name)
    return Verdict(Code.FILE_CHECK_FAILED, cause="missing", file=name)


def _check_owner(volume: Volume, fd: int) -> None:
    # As root in a directory of another user, files would come to belong to root.
    if os.fstat(fd).st_uid != volume.owner:
        raise Missing(Code.STORAGE_UNAVAILABLE, cause="owner")
