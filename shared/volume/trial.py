"""What a volume can do, tried out: one small file is written, synced, read back, linked, and removed.

It happens in ``.tmp`` and under the volume's lock, so no tick ever meets the file.
"""

from __future__ import annotations

import os
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.errors import Code, Missing, Passing, TallystickError
from shared.volume import current, identity, lock, publish
from shared.volume.files import (
    entries_of,
    errno_name,
    names_in,
    opened_directory,
    read_up_to,
    storage_errors,
)
from shared.volume.walk import file_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shared.volume.current import Settled
    from shared.volume.identity import Volume

# A dead mount answers no signal: what takes longer is left to its thread.
TRIAL_SECONDS = 6.0
TRIED = b"tallystick trial\n"


@dataclass(frozen=True)
class Trial:
    """What was seen of a volume; ``troubles`` are what stopped or marred the look.

    ``inodes`` are those of root and marker, as the database records them, None when the volume could not be
    opened; ``sizes`` the bytes of regular files by directory; ``evidence`` counts files that wait there;
    ``lacks`` says what of the file settled last is not there.
    """

    troubles: tuple[TallystickError, ...] = ()
    inodes: tuple[str, str] | None = None
    free_bytes: int | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    evidence: int = 0
    lacks: Missing | None = None


@dataclass(frozen=True)
class Believed:
    """What the database believes of a volume: the file settled last, and whose sizes shall be measured.

    ``waiting`` says that jobs wait for the volume; then the content of the file is checked, as ticks do.
    """

    last: Settled | None = None
    waiting: bool = False
    directories: Sequence[str] = ()


def tried(root: Path, storage_id: str, believed: Believed, seconds: float = TRIAL_SECONDS) -> Trial:
    """Try a volume out, and compare it with what is believed of it, within ``seconds``."""
    answer: list[Trial] = []
    fault: list[Exception] = []

    def look() -> None:
        try:
            answer.append(_opened(root, storage_id, believed))
        except Exception as error:  # noqa: BLE001 - raised by the thread that waits
            fault.append(error)

    thread = threading.Thread(target=look, name="trial", daemon=True)
    thread.start()
    thread.join(seconds)
    if fault:
        raise fault[0]
    if not answer:
        late = Missing(Code.STORAGE_UNAVAILABLE, cause="no-answer", seconds=seconds, root=str(root))
        return Trial((late,))
    return answer[0]


def _opened(root: Path, storage_id: str, believed: Believed) -> Trial:
    try:
        with identity.opened(root, storage_id) as volume:
            return _trial(volume, believed)
    except Missing as missing:
        return Trial((missing,))
    except OSError as error:
        cause = errno_name(error)
        return Trial((Missing(Code.STORAGE_UNAVAILABLE, cause=cause, root=str(root)),))


def _trial(volume: Volume, believed: Believed) -> Trial:
    troubles: list[TallystickError] = []
    sizes: dict[str, int] = {}
    lacks = None
    try:
        with lock.held(volume):
            _write_and_link(volume)
            sizes = _sizes(volume, believed.directories)
    except TallystickError as error:
        troubles.append(error)
    try:
        current.check(volume, believed.last, content=believed.waiting)
    except Missing as missing:
        lacks = missing
    except TallystickError as error:
        troubles.append(error)
    status = os.fstatvfs(volume.fd)
    return Trial(
        troubles=tuple(troubles),
        inodes=(str(volume.root_inode), str(volume.marker_inode)),
        free_bytes=status.f_bavail * status.f_frsize,
        sizes=sizes,
        evidence=_evidence(volume),
        lacks=lacks,
    )


def _write_and_link(volume: Volume) -> None:
    """Do as publishing does; raises what stops that."""
    if identity.TEMP not in os.listdir(volume.fd):
        # The first tick makes it.
        return
    temp = publish.write_temp(volume, [TRIED])
    try:
        with publish.opened_temp(volume, temp) as fd:
            if read_up_to(fd, len(TRIED) + 1) != TRIED:
                raise Passing(Code.STORAGE_FAILED, cause="read-back")
        with storage_errors(), opened_directory(volume.fd, identity.TEMP) as directory:
            _link(temp.name, directory)
            os.fsync(directory)
    finally:
        publish.discard(volume, temp)


def _link(name: str, directory: int) -> None:
    second = secrets.token_hex(16)
    try:
        os.link(name, second, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        raise Passing(Code.STORAGE_FAILED, cause="no-links", problem=errno_name(error)) from error
    finally:
        # After an error too: the answer to a link that was made may have been lost.
        with suppress(FileNotFoundError):
            os.unlink(second, dir_fd=directory)


def _sizes(volume: Volume, directories: Sequence[str]) -> dict[str, int]:
    found = {}
    with storage_errors():
        for name in directories:
            try:
                with opened_directory(volume.fd, name) as fd:
                    found[name] = sum(
                        file_sizes(fd, (entry.name for entry in entries_of(fd))).values()
                    )
            except FileNotFoundError:
                found[name] = 0
    return found


def _evidence(volume: Volume) -> int:
    try:
        with opened_directory(volume.fd, identity.EVIDENCE) as fd:
            return len(names_in(fd))
    except FileNotFoundError:
        return 0
