"""Whether a volume is current: whether it has the file that was settled on it last.

A clone of a block device, or a volume restored from an older snapshot, has the marker and the inode numbers
of the first one. Used in turn, the two would come to hold different files without a word. So the database
names the file that was settled last, and a volume without that file is not used until an operator adopts it.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.errors import Code, Missing, Passing
from shared.volume.files import opened_directory, opened_file, storage_errors
from shared.volume.publish import is_listed, sha256_of

if TYPE_CHECKING:
    from shared.db.connect import Row
    from shared.volume.identity import Volume

# What stands in place of the directory or the file is something else, so the file is not there.
_SOMETHING_ELSE = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EINVAL})


@dataclass(frozen=True)
class Settled:
    """The file that was settled last on a volume: where it lies, its size in bytes, and its digest."""

    directory: str
    file: str
    bytes: int
    sha256: str

    @classmethod
    def of(cls, row: Row) -> Settled | None:
        """Return what the row of a volume names; None where nothing was settled since it was adopted."""
        if row["last_file"] is None:
            return None
        return cls(row["last_directory"], row["last_file"], row["last_bytes"], row["last_sha256"])


def check(volume: Volume, last: Settled | None, *, content: bool) -> None:
    """Check that the file settled last is there and has its size, and with ``content`` also its digest.

    Raises ``Missing`` (STORAGE_UNAVAILABLE) where it is not so, and ``Passing`` where the file cannot be
    read, or is listed and cannot be opened yet: a network file system may hide a name for half a minute.
    """
    if last is None:
        return
    with storage_errors(directory=last.directory, file=last.file):
        try:
            with (
                opened_directory(volume.fd, last.directory) as directory,
                opened_file(directory, last.file) as fd,
            ):
                size = os.fstat(fd).st_size
                if size != last.bytes:
                    raise _refused(volume, last, "last-size", expected=last.bytes, found=size)
                if content and (digest := sha256_of(fd)) != last.sha256:
                    raise _refused(volume, last, "last-digest", expected=last.sha256, found=digest)
        except FileNotFoundError:
            raise _not_there(volume, last) from None
        except OSError as error:
            if error.errno not in _SOMETHING_ELSE:
                raise
            raise _refused(volume, last, "last-missing") from error


def _not_there(volume: Volume, last: Settled) -> Missing | Passing:
    """Tell a file that is not there from one that this client cannot see yet: the listing decides."""
    try:
        listed = is_listed(volume.fd, last.directory)
        if listed:
            with opened_directory(volume.fd, last.directory) as directory:
                listed = is_listed(directory, last.file)
    except FileNotFoundError:
        # The directory is listed and hidden.
        listed = True
    if listed:
        place = {"directory": last.directory, "file": last.file}
        return Passing(Code.STORAGE_FAILED, cause="ENOENT", **place)
    return _refused(volume, last, "last-missing")


def _refused(volume: Volume, last: Settled, cause: str, **params: object) -> Missing:
    return Missing(
        Code.STORAGE_UNAVAILABLE,
        cause=cause,
        storage_id=volume.storage_id,
        directory=last.directory,
        file=last.file,
        **params,
    )
