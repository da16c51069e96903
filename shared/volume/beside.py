"""A directory that is no volume: its files get their names from a working directory beside it.

The directory holds nothing but its archive at any moment, so that anybody may verify it at any moment;
what is still being written lies in ``.NAME.export`` next to it, on the same file system.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shared.errors import Busy, Code, Refused
from shared.volume import lock
from shared.volume.files import READ, errno_name, let_go, names_in, opened_directory
from shared.volume.identity import EVIDENCE, LOCK, PRIVATE, TEMP, Volume

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Place:
    """An open directory to publish into, and the working directory as the volume to publish from."""

    directory: int
    work: Volume


@contextmanager
def opened_beside(path: Path) -> Iterator[Place]:
    """Open a directory, made with mode 0700 where it is not there, with a working directory of its own.

    Only one process at a time gets it; what a killed one left unpublished is removed. Raises ``Refused``
    (EXPORT_DIRECTORY) when it cannot serve.
    """
    # As it is written: where the last part is a link, that is refused below and not followed.
    whole = Path(os.path.abspath(path))
    beside = f".{whole.name}.export"
    with _refusing(path), _opened(whole.parent) as parent, ExitStack() as stack:
        made = _make(parent, whole.name)
        directory = _private(stack, parent, whole.name, path)
        _make(parent, beside)
        work = _private(stack, parent, beside, path)
        volume = stack.enter_context(_held(_as_volume(work, directory, path), path))
        try:
            yield Place(directory, volume)
        finally:
            _clear(parent, work, beside)
            if made:
                # Nothing came of it: a directory that holds something stays.
                with suppress(OSError):
                    os.rmdir(whole.name, dir_fd=parent)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, READ | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        let_go(fd)


def _make(parent: int, name: str) -> bool:
    try:
        os.mkdir(name, PRIVATE, dir_fd=parent)
    except FileExistsError:
        made = False
    else:
        made = True
    # Also when it was there: whoever made it may have died before this.
    os.fsync(parent)
    return made


def _private(stack: ExitStack, parent: int, name: str, path: Path) -> int:
    """Open a directory that must be ours alone; raises ``OSError`` or ``Refused``."""
    try:
        fd = os.open(name, READ | os.O_DIRECTORY, dir_fd=parent)
    except OSError as error:
        # With O_DIRECTORY a link is answered as "not a directory"; people are told what it is.
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if error.errno == errno.ENOTDIR and stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, "symbolic link", name) from error
        raise
    stack.callback(let_go, fd)
    status = os.fstat(fd)
    if status.st_uid != os.geteuid():
        raise Refused(Code.EXPORT_DIRECTORY, directory=str(path), cause="owner")
    if stat.S_IMODE(status.st_mode) != PRIVATE:
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        raise Refused(Code.EXPORT_DIRECTORY, directory=str(path), cause="mode", mode=mode)
    return fd


def _as_volume(work: int, directory: int, path: Path) -> Volume:
    status = os.fstat(work)
    if status.st_dev != os.fstat(directory).st_dev:
        # A file cannot get a name on another file system.
        raise Refused(Code.EXPORT_DIRECTORY, directory=str(path), cause="mount-point")
    return Volume(work, "", status.st_uid, status.st_ino, 0)


@contextmanager
def _held(volume: Volume, path: Path) -> Iterator[Volume]:
    try:
        with lock.held(volume):
            lock.prepare(volume)
            yield volume
    except Busy as busy:
        raise Refused(
            Code.EXPORT_DIRECTORY, directory=str(path), cause="busy", since=busy.params.get("since")
        ) from busy


def _clear(parent: int, work: int, name: str) -> None:
    """Take the working directory away; what cannot be removed is found empty by the next export."""
    with suppress(OSError):
        with opened_directory(work, TEMP) as temp:
            for each in names_in(temp):
                os.unlink(each, dir_fd=temp)
        os.rmdir(TEMP, dir_fd=work)
        os.rmdir(EVIDENCE, dir_fd=work)
        os.unlink(LOCK, dir_fd=work)
        os.rmdir(name, dir_fd=parent)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refused(
            Code.EXPORT_DIRECTORY, directory=str(path), cause=errno_name(error)
        ) from error
