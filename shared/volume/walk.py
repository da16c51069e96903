"""Walking a volume in bounded steps, in the order of names, verifying what is passed."""

from __future__ import annotations

import os
import re
import stat
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.chain.batch import file_name, file_number
from shared.chain.manifest import MANIFEST_NAME, MANIFEST_READ_BYTES
from shared.chain.verdict import Broken, Reason
from shared.chain.verify import Position, start, verify_batch
from shared.errors import Code, Passing
from shared.volume.files import (
    chunks_of,
    errno_name,
    names_in,
    opened_directory,
    opened_file,
    read_whole,
    shown,
    storage_errors,
)
from shared.volume.identity import EVIDENCE, LOCK, MARKER, TEMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.chain.manifest import Manifest
    from shared.volume.identity import Volume

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
JOB_DIRECTORY = re.compile(rf"{_UUID}-({_UUID})")
OWN_ENTRIES = frozenset({MARKER, LOCK, TEMP, EVIDENCE})
# No wait lets anybody in.
LASTING = frozenset({"EACCES", "EPERM"})
# The ledger's name for what lies in the root itself and in its working directories.
ROOT = ""


@dataclass(frozen=True)
class Bounds:
    """How far one step may go: this many files, this many seconds."""

    files: int
    seconds: float
    # Whether an error of reading may have passed by the next try; once it was tried often enough, it is told.
    may_pass: bool = True


@dataclass(frozen=True)
class Place:
    """Where a walk stands: the last name done with, and how far into the next directory it came."""

    last: str | None = None
    position: Position | None = None

    @property
    def after(self) -> str:
        """Return the name after which the walk goes on."""
        return self.last or ROOT

    def to_json(self) -> dict[str, Any]:
        """Return the place as a checkpoint."""
        position = self.position.to_json() if self.position else None
        return {"last": self.last, "position": position}

    @staticmethod
    def from_json(value: Mapping[str, Any] | None) -> Place:
        """Read what ``to_json`` gave; None is the beginning."""
        if value is None:
            return Place()
        position = value["position"]
        return Place(value["last"], Position.from_json(position) if position else None)


@dataclass(frozen=True)
class Seen:
    """What one step saw of one directory.

    ``verified`` are numbers and digests of the batch files that verified in this step, ``reached`` the
    number the chain verified up to, ``broken`` what stopped it, ``unreadable`` what could not be read and
    why, which proves nothing. ``whole`` says that the walk is done with
    the directory; ``bytes`` are those of all its regular files, None where nothing was measured.
    """

    directory: str
    present: bool
    whole: bool
    bytes: int | None
    files: int = 0
    verified_bytes: int = 0
    verified: tuple[tuple[int, str], ...] = ()
    reached: int = 0
    broken: dict[str, Any] | None = None
    unreadable: dict[str, Any] | None = None
    foreign: tuple[str, ...] = ()

    @property
    def job_id(self) -> str | None:
        """Return the job whose directory this is, by its name."""
        match = JOB_DIRECTORY.fullmatch(self.directory)
        return match[1] if match else None

    @property
    def releases(self) -> bool:
        """Tell whether all that lies here was seen, so that what was set aside for more may be given back."""
        return self.whole and self.unreadable is None


@dataclass
class _Budget:
    files: int
    ends: float
    may_pass: bool
    used: int = field(default=0)

    def spent(self) -> bool:
        """Tell whether the step is over; never before its first file, so every step gets somewhere."""
        return self.used > 0 and (self.used >= self.files or time.monotonic() >= self.ends)


def entries(volume: Volume, place: Place) -> list[str]:
    """Return the names in the root that the walk has not done with, without those of the volume itself.

    As they are shown: that is how they are ordered, stored and told.
    """
    with storage_errors():
        names = map(shown, names_in(volume.fd))
    return [name for name in names if name not in OWN_ENTRIES and name > place.after]


def walk(
    volume: Volume, place: Place, names: Iterable[str], bounds: Bounds
) -> tuple[tuple[Seen, ...], Place | None]:
    """Walk on from ``place`` through ``names`` until a bound is met.

    Returns what was seen and the place to go on from, None when the walk is over. A directory or file that
    cannot be read is reported and passed over, for it would keep all others from being verified; where the
    error may pass it raises ``Passing`` first, as often as ``bounds`` say.
    """
    budget = _Budget(bounds.files, time.monotonic() + bounds.seconds, bounds.may_pass)
    seen = []
    if place.last is None:
        seen.append(_root(volume))
        place = Place(ROOT)
    for name in names:
        if budget.spent():
            return tuple(seen), place
        looked, position = _directory(volume, name, place.position, budget)
        seen.append(looked)
        if not looked.whole:
            return tuple(seen), Place(place.last, position)
        place = Place(name)
    return tuple(seen), None


def _root(volume: Volume) -> Seen:
    total = 0
    with storage_errors():
        total += sum(file_sizes(volume.fd, (MARKER, LOCK)).values())
        for name in (TEMP, EVIDENCE):
            with opened_directory(volume.fd, name) as directory:
                total += sum(file_sizes(directory, names_in(directory)).values())
    return Seen(ROOT, present=True, whole=True, bytes=total)


def _directory(
    volume: Volume, name: str, position: Position | None, budget: _Budget
) -> tuple[Seen, Position | None]:
    # Going on inside a directory is counted by its files alone, or a step of one would get nowhere.
    budget.used += position is None
    with storage_errors(entry=name):
        status = _status(volume.fd, _real(volume, name))
        if status is None:
            return Seen(name, present=False, whole=True, bytes=0), None
        if not stat.S_ISDIR(status.st_mode) or not JOB_DIRECTORY.fullmatch(name):
            size = status.st_size if stat.S_ISREG(status.st_mode) else None
            return Seen(name, present=True, whole=True, bytes=size, foreign=(name,)), None
        try:
            with opened_directory(volume.fd, name) as directory:
                return _job(directory, name, position, budget)
        except (OSError, Passing) as error:
            cause = _lasting(error, budget)
            seen = Seen(name, present=True, whole=True, bytes=None, unreadable={"cause": cause})
            return seen, None


def _lasting(error: OSError | Passing, budget: _Budget) -> str:
    """Return the cause of an error of reading that stays; raises the error where it may pass."""
    cause = errno_name(error) if isinstance(error, OSError) else str(error.params.get("cause"))
    if budget.may_pass and cause not in LASTING:
        raise error
    return cause


def _job(
    directory: int, name: str, position: Position | None, budget: _Budget
) -> tuple[Seen, Position | None]:
    names = names_in(directory)
    sizes = file_sizes(directory, names)
    foreign = [shown(each) for each in names if each not in sizes or not _is_ours(each)]
    seen = _Chain(directory, sizes)
    seen.walk(position, budget)
    return (
        Seen(
            directory=name,
            present=True,
            whole=seen.whole,
            bytes=sum(sizes.values()) if seen.whole else None,
            files=len(seen.verified) + (position is None and seen.position is not None),
            verified_bytes=seen.verified_bytes,
            verified=tuple(seen.verified),
            reached=seen.position.seq if seen.position else 0,
            broken=seen.broken,
            unreadable=seen.unreadable,
            foreign=tuple(foreign) if seen.whole else (),
        ),
        seen.position,
    )


class _Chain:
    """The files of one chain, verified one after the other until there is no next or a bound is met."""

    def __init__(self, directory: int, sizes: Mapping[str, int]) -> None:
        self._directory = directory
        self._sizes = sizes
        self.position: Position | None = None
        self.verified: list[tuple[int, str]] = []
        self.verified_bytes = 0
        self.broken: dict[str, Any] | None = None
        self.unreadable: dict[str, Any] | None = None
        self.whole = False

    def walk(self, position: Position | None, budget: _Budget) -> None:
        file = MANIFEST_NAME
        try:
            manifest, beginning = self._begin()
            self.position = position or beginning
            while (file := file_name(self.position.seq + 1)) in self._sizes:
                if budget.spent():
                    return
                budget.used += 1
                self._next(manifest, self.position, file)
        except Broken as broken:
            self.broken = {"file": file, "cause": str(broken.reason), **broken.params}
        except OSError as error:
            self.unreadable = {"file": file, "cause": _lasting(error, budget)}
        self._look_for_gap()
        self.whole = True

    def _begin(self) -> tuple[Manifest, Position]:
        if MANIFEST_NAME not in self._sizes:
            raise Broken(Reason.MANIFEST_MISSING)
        content, _ = read_whole(self._directory, MANIFEST_NAME, MANIFEST_READ_BYTES)
        return start(content)

    def _next(self, manifest: Manifest, position: Position, file: str) -> None:
        with opened_file(self._directory, file) as fd:
            proof, self.position = verify_batch(manifest, position, chunks_of(fd))
        self.verified.append((proof.header.seq, proof.sha256))
        self.verified_bytes += proof.bytes

    def _look_for_gap(self) -> None:
        """A number that is missing hides every later file from a walk that follows the numbers."""
        if self.broken is not None or self.unreadable is not None or self.position is None:
            return
        numbers = [number for name in self._sizes if (number := file_number(name)) is not None]
        if numbers and max(numbers) > self.position.seq:
            self.broken = {"file": file_name(self.position.seq + 1), "cause": "FILE_MISSING"}


def _real(volume: Volume, name: str) -> str:
    """Return the entry of the root that is shown under ``name``; itself, but for names of other bytes."""
    if "\\x" not in name:
        return name
    return next((real for real in names_in(volume.fd) if shown(real) == name), name)


def _is_ours(name: str) -> bool:
    return name == MANIFEST_NAME or file_number(name) is not None


def file_sizes(directory: int, names: Iterable[str]) -> dict[str, int]:
    """Return the sizes of those entries that are regular files."""
    found = {}
    for name in names:
        status = _status(directory, name)
        if status is not None and stat.S_ISREG(status.st_mode):
            found[name] = status.st_size
    return found


def _status(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Passing(Code.STORAGE_FAILED, cause=errno_name(error), entry=name) from error
