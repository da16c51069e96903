"""Walking a volume in bounded steps, in the order of names, verifying what is passed."""

from __future__ import annotations

import errno
import heapq
import os
import re
import stat
import time
from bisect import bisect_right
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shared.chain.batch import file_name
from shared.chain.manifest import MANIFEST_NAME, MANIFEST_READ_BYTES
from shared.chain.verdict import Broken, Reason
from shared.chain.verify import Position, damage_of, start, verify_on
from shared.errors import Code, Passing, Verdict
from shared.volume.files import (
    chunks_of,
    entries_of,
    errno_name,
    names_in,
    opened_directory,
    opened_file,
    read_whole,
    shown,
    storage_errors,
)
from shared.volume.identity import EVIDENCE, LOCK, MARKER, TEMP
from shared.volume.listing import is_harmless, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from shared.chain.manifest import Manifest
    from shared.volume.identity import Volume
    from shared.volume.listing import Listing

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
JOB_DIRECTORY = re.compile(rf"{_UUID}-({_UUID})")
OWN_ENTRIES = frozenset({MARKER, LOCK, TEMP, EVIDENCE})
# What opening says where no regular file has the name: none, a link, a directory or a device.
NO_FILE = frozenset({errno.ENOENT, errno.ELOOP, errno.EINVAL, errno.ENXIO})
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
    number of the last file that was looked at, ``damages`` all that was wrong with them, ``unreadable`` what
    could not be read and why, which proves nothing. ``whole`` says that the walk is done with the directory;
    ``bytes`` are those of all its regular files, None where nothing was measured. ``harmless`` are entries
    that file systems and desktops leave.
    """

    directory: str
    present: bool
    whole: bool
    bytes: int | None
    files: int = 0
    verified_bytes: int = 0
    verified: tuple[tuple[int, str], ...] = ()
    reached: int = 0
    damages: tuple[dict[str, Any], ...] = ()
    unreadable: dict[str, Any] | None = None
    foreign: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()

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


def entries(volume: Volume, place: Place, limit: int) -> list[str]:
    """Return the next names in the root that the walk has not done with, at most ``limit`` of them.

    Without those of the volume itself, and as they are shown: that is how they are ordered, stored and told.
    """
    with storage_errors(), closing(entries_of(volume.fd)) as found:
        names = (shown(entry.name) for entry in found)
        ahead = (name for name in names if name not in OWN_ENTRIES and name > place.after)
        return heapq.nsmallest(limit, ahead)


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
            seen = Seen(name, present=True, whole=True, bytes=size)
            if is_harmless(name):
                return replace(seen, harmless=(name,)), None
            return replace(seen, foreign=(name,)), None
        try:
            with opened_directory(volume.fd, name) as directory:
                return _job(directory, name, position, budget)
        except (OSError, Passing) as error:
            return _unread(name, _lasting(error, budget)), None
        except Verdict as too_many:
            # What fills one directory must not keep the others from being verified.
            return _unread(name, str(too_many.params["cause"])), None


def _unread(name: str, cause: str) -> Seen:
    return Seen(name, present=True, whole=True, bytes=None, unreadable={"cause": cause})


def _lasting(error: OSError | Passing, budget: _Budget) -> str:
    """Return the cause of an error of reading that stays; raises the error where it may pass."""
    cause = errno_name(error) if isinstance(error, OSError) else str(error.params.get("cause"))
    if budget.may_pass and cause not in LASTING:
        raise error
    return cause


def _job(
    directory: int, name: str, position: Position | None, budget: _Budget
) -> tuple[Seen, Position | None]:
    seen = _Chain(directory)
    there = seen.walk(position, budget)
    return (
        Seen(
            directory=name,
            present=True,
            whole=there is not None,
            bytes=there.bytes if there else None,
            files=len(seen.verified) + (position is None and seen.position is not None),
            verified_bytes=seen.verified_bytes,
            verified=tuple(seen.verified),
            reached=seen.position.seq if seen.position else 0,
            damages=tuple(seen.damages),
            unreadable=seen.unreadable,
            foreign=tuple(sorted((*there.foreign, *there.irregular))) if there else (),
            harmless=there.harmless if there else (),
        ),
        seen.position,
    )


class _Chain:
    """The files of one chain, verified one after the other until there is no next or a bound is met."""

    def __init__(self, directory: int) -> None:
        self._directory = directory
        self.position: Position | None = None
        self.verified: list[tuple[int, str]] = []
        self.verified_bytes = 0
        self.damages: list[dict[str, Any]] = []
        self.unreadable: dict[str, Any] | None = None

    def walk(self, position: Position | None, budget: _Budget) -> Listing | None:
        """Verify on from ``position``; return what lies in the directory once the last file was reached."""
        try:
            manifest, beginning = self._begin()
        except Broken as broken:
            self.damages.append({"file": MANIFEST_NAME, **damage_of(broken)})
            return listed(self._directory, measured=True)
        except OSError as error:
            self.unreadable = {"file": MANIFEST_NAME, "cause": _lasting(error, budget)}
            return listed(self._directory, measured=True)
        self.position = position or beginning
        # The next file is opened by its name, so a step does not read the whole directory. Where it does
        # not open, the listing decides whether it is there and which file comes next.
        there: Listing | None = None
        seq = self.position.seq + 1
        while not budget.spent():
            try:
                opened = self._next(manifest, self.position, seq)
            except OSError as error:
                # Files after it are not looked at: what links to bytes that nobody has read proves little.
                self.unreadable = {"file": file_name(seq), "cause": _lasting(error, budget)}
                return there or listed(self._directory, measured=True)
            if opened:
                budget.used += 1
                seq += 1
                continue
            there = there or listed(self._directory, measured=True)
            ahead = bisect_right(there.numbers, self.position.seq)
            if ahead == len(there.numbers):
                return there
            if there.numbers[ahead] == seq:
                raise Passing(Code.STORAGE_FAILED, cause="ENOENT", entry=file_name(seq))
            seq = there.numbers[ahead]
        return None

    def _begin(self) -> tuple[Manifest, Position]:
        try:
            content, _ = read_whole(self._directory, MANIFEST_NAME, MANIFEST_READ_BYTES)
        except OSError as error:
            if error.errno not in NO_FILE:
                raise
            raise Broken(Reason.MANIFEST_MISSING) from None
        return start(content)

    def _next(self, manifest: Manifest, position: Position, seq: int) -> bool:
        """Verify a file, whatever was wrong before it; False where there is none."""
        try:
            with opened_file(self._directory, file_name(seq)) as fd:
                proof, self.position, damages = verify_on(manifest, position, seq, _Stored(fd))
        except OSError as error:
            if error.errno not in NO_FILE:
                raise
            return False
        self.damages += map(damage_of, damages)
        if proof is not None:
            self.verified.append((proof.header.seq, proof.sha256))
            self.verified_bytes += proof.bytes
        return True


@dataclass(frozen=True)
class _Stored:
    """The bytes of an open file from its beginning, read anew whenever they are iterated."""

    fd: int

    def __iter__(self) -> Iterator[bytes]:
        os.lseek(self.fd, 0, os.SEEK_SET)
        return chunks_of(self.fd)


def _real(volume: Volume, name: str) -> str:
    """Return the entry of the root that is shown under ``name``; itself, but for names of other bytes."""
    if "\\x" not in name:
        return name
    with closing(entries_of(volume.fd)) as found:
        return next((entry.name for entry in found if shown(entry.name) == name), name)


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
