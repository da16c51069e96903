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

from shared.errors import Busy, Code, Passing, Refused
from shared.volume import lock
from shared.volume.files import READ, errno_name, let_go, names_in, opened_directory
from shared.volume.identity import EVIDENCE, LOCK, TEMP, Volume
from shared.volume.private import is_private, make_directory

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
        try:
            made = _make(parent, whole.name)
            directory = _private(stack, parent, whole.name, path)
            _make(parent, beside)
            work = _private(stack, parent, beside, path)
        except FileNotFoundError as error:
            # What was there a moment ago was taken away by the export that had made it.
            raise _busy(path) from error
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
    try:
        fd = os.open(path, READ | os.O_DIRECTORY)
    except OSError as error:
        if _is_link(error, path):
            raise Refused(Code.EXPORT_DIRECTORY, directory=str(path), cause="below-link") from error
        raise
    try:
        yield fd
    finally:
        let_go(fd)


def _make(parent: int, name: str) -> bool:
    made = make_directory(parent, name)
    # Also when it was there: whoever made it may have died before this.
    os.fsync(parent)
    return made


def _private(stack: ExitStack, parent: int, name: str, path: Path) -> int:
    """Open a directory that must be ours alone; raises ``OSError`` or ``Refused``."""
    try:
        fd = os.open(name, READ | os.O_DIRECTORY, dir_fd=parent)
    except OSError as error:
        if _is_link(error, name, parent):
            raise OSError(errno.ELOOP, "symbolic link", name) from error
        raise
    stack.callback(let_go, fd)
    status = os.fstat(fd)
    if status.st_uid != os.geteuid():
        raise Refused(Code.EXPORT_DIRECTORY, directory=str(path), cause="owner")
    if not is_private(status.st_mode):
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        raise Refused(Code.EXPORT_DIRECTORY, directory=str(path), cause="mode", mode=mode)
    return fd


def _as_volume(work: int, directory: int, path: Path) -> Volume:
    status = os.fstat(work)
    if status.st_dev != os.fstat(directory).st_dev:
        # A file cannot get a name on another file system.
        raise Refused(Code.EXPORT_DIRECTORY, directory=str(path), cause="mount-point")
    return Volume(work, "", status.st_uid, status.st_ino, 0)


def _is_link(error: OSError, name: str | Path, parent: int | None = None) -> bool:
    """Tell whether opening a directory failed on a link: with O_DIRECTORY that reads "not a directory"."""
    if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
        return False
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    return stat.S_ISLNK(status.st_mode)


@contextmanager
def _held(volume: Volume, path: Path) -> Iterator[Volume]:
    with ExitStack() as stack:
        try:
            fd = stack.enter_context(lock.held(volume))
        except Busy as busy:
            raise _busy(path, busy.params.get("since")) from busy
        except Passing as passing:
            if passing.params.get("cause") == "ENOENT":
                raise _busy(path) from passing
            raise
        if os.fstat(fd).st_nlink == 0:
            # The export that made it took it away with its directory: it is the lock of nothing now.
            raise _busy(path)
        lock.prepare(volume)
        yield volume


def _busy(path: Path, since: object = None) -> Refused:
    return Refused(Code.EXPORT_DIRECTORY, directory=str(path), cause="busy", since=since)


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
