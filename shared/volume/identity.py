"""Which directory is the volume, and whether it is the one the database knows."""

from __future__ import annotations

import os
import re
import secrets
import stat
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.errors import Code, Missing, Refused
from shared.volume.files import errno_name, let_go, read_whole, write_all
from shared.volume.private import is_private, make_directory, open_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MARKER = ".storage-id"
LOCK = ".lock"
TEMP = ".tmp"
EVIDENCE = ".evidence"
STORAGE_ID = re.compile(r"[0-9a-f]{32}")

# A mount whose server is gone blocks its callers for good; a probe that takes longer found no volume.
PROBE_SECONDS = 5.0


@dataclass(frozen=True)
class Volume:
    """An open volume: the descriptor of its root, and what tells it from a copy of itself.

    ``fd`` is open only inside ``opened``. Inode numbers are compared with what the database recorded
    when the volume was first used: a copied directory has others.
    """

    fd: int
    storage_id: str
    owner: int
    root_inode: int
    marker_inode: int


def initialise(root: Path, storage_id: str | None = None) -> str:
    """Make ``root`` a volume and return its storage id (32 lowercase hex digits).

    With ``storage_id`` it becomes that volume, and one that is that volume already stays as it is: safe
    to run again. Without, the id is fresh. The directory is made with mode 0700 if it is not there.
    Raises ``Refused`` when it is a volume already (another one), holds anything, is not private to its
    owner, or cannot be written.
    """
    try:
        _make(root)
        with _root(root) as (fd, _):
            names = set(os.listdir(fd))
            if MARKER not in names:
                # A run that was cut short has left these two, and nothing else.
                if names - {TEMP, EVIDENCE}:
                    raise Refused(Code.VOLUME_EXISTS, root=str(root), cause="not-empty")
                wanted = storage_id or secrets.token_hex(16)
                if _mark(fd, wanted):
                    return wanted
            found, _ = _marker(fd)
            # Whoever gave it its marker may have died before this.
            os.fsync(fd)
    except Missing as missing:
        raise Refused(missing.code, **missing.params) from missing
    except OSError as error:
        unavailable = _unavailable(error, root)
        raise Refused(unavailable.code, **unavailable.params) from error
    if storage_id is None:
        raise Refused(Code.VOLUME_EXISTS, root=str(root))
    if found != storage_id:
        raise Refused(
            Code.VOLUME_EXISTS, root=str(root), cause="other", expected=storage_id, found=found
        )
    return storage_id


@contextmanager
def opened(root: Path, storage_id: str) -> Iterator[Volume]:
    """Open the volume at ``root`` and check that it is ``storage_id``, private, and no symbolic link.

    Raises ``Missing`` (STORAGE_UNAVAILABLE) naming what is wrong.
    """
    with _root(root) as (fd, status):
        found, marker = _marker(fd)
        if found != storage_id:
            raise Missing(
                Code.STORAGE_UNAVAILABLE, cause="other-volume", expected=storage_id, found=found
            )
        if marker.st_uid != status.st_uid:
            raise Missing(Code.STORAGE_UNAVAILABLE, cause="owner", root=str(root))
        yield Volume(fd, storage_id, status.st_uid, status.st_ino, marker.st_ino)


def check_writable(volume: Volume, root: Path) -> None:
    """Check that the volume is mounted for writing; raises ``Missing`` (STORAGE_UNAVAILABLE)."""
    if os.fstatvfs(volume.fd).f_flag & os.ST_RDONLY:
        raise Missing(Code.STORAGE_UNAVAILABLE, cause="read-only", root=str(root))


def probe(root: Path, storage_id: str, seconds: float = PROBE_SECONDS) -> None:
    """Find out within ``seconds`` whether the volume is there; raises ``Missing`` when not.

    The probe runs on a thread of its own, because a dead mount answers no signal: the thread may hang
    for as long as the mount does, the caller goes on.
    """
    answer: list[Missing | None] = []

    def look() -> None:
        try:
            with opened(root, storage_id):
                answer.append(None)
        except Missing as missing:
            answer.append(missing)
        except OSError as error:
            answer.append(_unavailable(error, root))

    thread = threading.Thread(target=look, name="probe", daemon=True)
    thread.start()
    thread.join(seconds)
    if not answer:
        raise Missing(Code.STORAGE_UNAVAILABLE, cause="no-answer", seconds=seconds, root=str(root))
    if answer[0] is not None:
        raise answer[0]


def _make(root: Path) -> None:
    """Make the root with mode 0700; its parents, where they are not there, are made as the umask says."""
    absent = [each for each in (root, *root.parents) if not each.exists()]
    if not root.parent.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
    parent = os.open(root.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not root.name or not make_directory(parent, root.name):
            return
    finally:
        let_go(parent)
    # All that will ever be durable in the volume hangs on these names.
    for made in absent:
        fd = os.open(made.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _mark(fd: int, storage_id: str) -> bool:
    """Give the root its marker, whole or not at all; returns False when it has one by now."""
    for name in (TEMP, EVIDENCE):
        make_directory(fd, name)
    temp = f"{TEMP}/{secrets.token_hex(16)}"
    marker = open_file(fd, temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
    try:
        write_all(marker, f"{storage_id}\n".encode())
        os.fsync(marker)
    finally:
        os.close(marker)
    try:
        # Commit point: before it this is a directory, after it a volume.
        os.link(temp, MARKER, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
    except FileExistsError:
        return False
    finally:
        os.unlink(temp, dir_fd=fd)
    os.fsync(fd)
    return True


@contextmanager
def _root(root: Path) -> Iterator[tuple[int, os.stat_result]]:
    try:
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise _unavailable(error, root) from error
    try:
        try:
            status = os.fstat(fd)
        except OSError as error:
            raise _unavailable(error, root) from error
        if not is_private(status.st_mode):
            raise Missing(
                Code.STORAGE_UNAVAILABLE,
                cause="mode",
                root=str(root),
                mode=f"{stat.S_IMODE(status.st_mode):04o}",
            )
        yield fd, status
    finally:
        let_go(fd)


def _marker(fd: int) -> tuple[str, os.stat_result]:
    try:
        content, status = read_whole(fd, MARKER, limit=64)
    except FileNotFoundError as error:
        raise Missing(Code.STORAGE_UNAVAILABLE, cause="no-marker") from error
    except OSError as error:
        raise Missing(Code.STORAGE_UNAVAILABLE, cause="marker-unreadable") from error
    text = content.decode("ascii", "replace").removesuffix("\n")
    if not STORAGE_ID.fullmatch(text):
        raise Missing(Code.STORAGE_UNAVAILABLE, cause="marker-malformed")
    return text, status


def _unavailable(error: OSError, root: Path) -> Missing:
    causes = {
        "ENOENT": "not-there",
        "ELOOP": "symbolic-link",
        "ENOTDIR": "not-a-directory",
        "EROFS": "read-only",
    }
    name = errno_name(error)
    return Missing(Code.STORAGE_UNAVAILABLE, cause=causes.get(name, name), root=str(root))
