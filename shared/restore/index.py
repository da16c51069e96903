"""Where roots lie, remembered: a derived file per archive that can be thrown away at any time.

It holds, for a hash of each root's key, the number of the batch, and for each batch the digest it was
verified with. Nothing it says is an answer: the batch is copied, verified and searched itself, and an
index that turns out to be wrong is built again.
"""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING

from shared.chain.batch import file_name, unescape
from shared.chain.canonical import canonical_json, parse_json
from shared.chain.manifest import MANIFEST_NAME, MANIFEST_READ_BYTES
from shared.chain.text import copy_text
from shared.chain.verdict import Broken, Reason
from shared.chain.verify import Position, start
from shared.errors import Code, Refused, Verdict
from shared.restore.archives import named
from shared.restore.choose import PADDED
from shared.restore.held import held
from shared.restore.rows import lines
from shared.volume.directory import (
    batch_chunks,
    batch_numbers,
    opened,
    readable,
)
from shared.volume.files import opened_file, read_whole
from shared.volume.listing import listed
from shared.volume.private import private_umask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from shared.chain.manifest import Manifest
    from shared.restore.archives import Place
    from shared.restore.held import Held

    Progress = Callable[[int, int], None]

# Part of the file's name: another form of index is another file.
VERSION = 1
HASH_BYTES = 8
BUSY_SECONDS = 30.0
# Entries are written in the order of their hashes, this many at a time: so the tree is filled, not shaken.
FLUSH_ENTRIES = 250_000
BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

SCHEMA = """
CREATE TABLE IF NOT EXISTS batch (seq INTEGER PRIMARY KEY, sha256 TEXT NOT NULL, after TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS entry (hash INTEGER, seq INTEGER, PRIMARY KEY (hash, seq)) WITHOUT ROWID;
"""


class Damaged(Exception):
    """SQLite cannot make sense of an index file, or it holds what was never written to it."""


@dataclass(frozen=True)
class Known:
    """What an index remembers of one batch: its digest, and the place in the chain before it."""

    before: Position
    sha256: str


@dataclass(frozen=True)
class Index:
    """An open index that is as far as its archive; ``fresh`` when every batch was verified just now."""

    path: Path
    manifest: Manifest
    rows: sqlite3.Connection
    fresh: bool

    def candidates(self, key: Iterable[str], expected: str | None) -> list[Known]:
        """Return the batches that may hold a key, newest first, none past the expected tail."""
        text = b"\t".join(copy_text(part) for part in key)
        found = self.rows.execute("SELECT seq FROM entry WHERE hash = ?", (hash_of(text),))
        end = self._end(expected)
        numbers = sorted((seq for (seq,) in found if seq <= end), reverse=True)
        return [self._known(seq) for seq in numbers]

    def _end(self, expected: str | None) -> int:
        if expected is None:
            return _last(self.rows)[0]
        row = self.rows.execute("SELECT seq FROM batch WHERE sha256 = ?", (expected,)).fetchone()
        if row is None:
            number, tail, _ = _last(self.rows)
            with named(self.path, file_name(number) if number else MANIFEST_NAME):
                raise Broken(Reason.TAIL_NOT_FOUND, expected=expected, tail=tail)
        end: int = row[0]
        return end

    def _known(self, seq: int) -> Known:
        query = "SELECT sha256, after FROM batch WHERE seq IN (?, ?) ORDER BY seq"
        found = self.rows.execute(query, (seq - 1, seq)).fetchall()
        if len(found) != len((seq - 1, seq)):
            raise Damaged
        return Known(_position(found[0][1]), found[1][0])


def hash_of(key: bytes) -> int:
    """Return the number that stands for a key: 64 bits, signed as SQLite has them."""
    return int.from_bytes(blake2b(key, digest_size=HASH_BYTES).digest(), "big", signed=True)


@contextmanager
def index_of(
    folder: Path, place: Place, progress: Progress, *, anew: bool = False
) -> Iterator[Index]:
    """Open the index of an archive, having brought it up to what lies in the directory.

    Raises ``Damaged``, ``Refused`` (INDEX_UNUSABLE, DIRECTORY_UNREADABLE) and ``Verdict``
    (ARCHIVE_BROKEN).
    """
    file = _file(folder, place)
    if anew:
        _discard(file)
    with _opened(file) as rows:
        yield _grown(rows, place, progress)


def unusable(folder: Path, place: Place, error: Exception) -> Refused:
    """Return what to tell when even a new index is no good."""
    return _unusable(_file(folder, place), error.__cause__ or error)


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    """Open an index file; one that is not an index is thrown away."""
    try:
        # It holds keys of rows. SQLite makes its other files with the mode of this one.
        with private_umask():
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            rows = _connected(file)
    except (OSError, sqlite3.Error) as error:
        raise _unusable(file, error) from error
    with closing(rows):
        try:
            yield rows
        except sqlite3.Error as error:
            if _code(error) in BUSY:
                raise _unusable(file, error) from error
            raise Damaged from error


def _connected(file: Path) -> sqlite3.Connection:
    try:
        return _prepared(file)
    except sqlite3.Error as error:
        if _code(error) in BUSY:
            raise
        _discard(file)
        return _prepared(file)


def _prepared(file: Path) -> sqlite3.Connection:
    rows = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        rows.executescript(SCHEMA)
        rows.execute("SELECT seq, sha256, after FROM batch LIMIT 1")
        rows.execute("SELECT hash, seq FROM entry LIMIT 1")
    except BaseException:
        rows.close()
        raise
    return rows


def _grown(rows: sqlite3.Connection, place: Place, progress: Progress) -> Index:
    """Add the batches that an index does not know yet; begin again where it knows others."""
    path = place.path
    with readable(path), opened(path) as directory:
        with named(path, MANIFEST_NAME):
            content, _ = read_whole(directory, MANIFEST_NAME, MANIFEST_READ_BYTES)
            manifest, begin = start(content)
        known = _matches(rows, begin, directory)
        if known and not _is_there(directory, _last(rows)[0] + 1):
            return Index(path, manifest, rows, fresh=False)
        with named(path, MANIFEST_NAME):
            numbers = batch_numbers(listed(directory))
    try:
        if known:
            _extend(rows, path, manifest, numbers, progress)
    except Verdict:
        # A file that was damaged when it was indexed, and is not any more, breaks the link to the next.
        known = False
    if not known:
        _clear(rows, begin)
        _extend(rows, path, manifest, numbers, progress)
    return Index(path, manifest, rows, fresh=not known)


def _matches(rows: sqlite3.Connection, begin: Position, directory: int) -> bool:
    """Tell whether an index was built from this manifest and from files that are still there.

    Of these the last one is hashed: it stands for all before it.
    """
    first = rows.execute("SELECT sha256, after FROM batch WHERE seq = 0").fetchone()
    if first is None or first[0] != begin.tail or _position(first[1]) != begin:
        return False
    seq, sha256, _ = _last(rows)
    if not seq:
        return True
    digest = hashlib.sha256()
    try:
        for chunk in batch_chunks(directory, seq):
            digest.update(chunk)
    except FileNotFoundError:
        return False
    return digest.hexdigest() == sha256


def _is_there(directory: int, seq: int) -> bool:
    """Tell whether there is a batch that the index may not know; a listing would cost more with each one."""
    try:
        with opened_file(directory, file_name(seq)):
            return True
    except FileNotFoundError:
        return False


def _extend(
    rows: sqlite3.Connection,
    path: Path,
    manifest: Manifest,
    numbers: Sequence[int],
    progress: Progress,
) -> None:
    _, _, position = _last(rows)
    new = [seq for seq in numbers if seq > position.seq]
    for last, seq in pairwise([position.seq, *new]):
        with named(path, file_name(last + 1)):
            if seq != last + 1:
                raise Broken(Reason.FILE_MISSING, found=seq)
    batches: list[tuple[int, str, str]] = []
    entries: list[tuple[int, int]] = []
    for seq in new:
        with held(path, manifest, position) as batch:
            entries += ((hash_of(key), seq) for key in keys(batch))
            position = batch.after
        batches.append((seq, position.tail, _text(position)))
        if len(entries) >= FLUSH_ENTRIES:
            _flush(rows, batches, entries)
        progress(seq, numbers[-1])
    _flush(rows, batches, entries)


def keys(batch: Held) -> Iterator[bytes]:
    """Yield the key of each root of a batch, as one spelling of COPY text."""
    return root_keys(batch.manifest, next(batch.blocks()).pieces)


def root_keys(manifest: Manifest, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the key of each root in a block of roots, as one spelling of COPY text."""
    root = manifest.root
    types = {column.name: column.type for column in root.columns}
    for name in manifest.key:
        if name not in root.copied:
            raise Refused(
                Code.CHOICE_INVALID, cause="join-generated", table=root.label, column=name
            )
    places = [root.copied.index(name) for name in manifest.key]
    padded = [PADDED.fullmatch(types[name]) is not None for name in manifest.key]
    furthest = max(places) + 1
    rows = lines(pieces)
    if len(places) == 1 and not padded[0]:
        place = places[0]
        for line in rows:
            field = line.split(b"\t", furthest)[place]
            yield _spelled(field) if b"\\" in field else field
        return
    for line in rows:
        fields = line.split(b"\t", furthest)
        parts = [_spelled(fields[place]) for place in places]
        yield b"\t".join(
            part.rstrip(b" ") if strip else part for part, strip in zip(parts, padded, strict=True)
        )


def _spelled(field: bytes) -> bytes:
    if b"\\" not in field:
        return field
    try:
        return copy_text(unescape(field) or "")
    except ValueError as error:
        raise Verdict(Code.ARCHIVE_BROKEN, cause=str(Reason.ROW_ESCAPE)) from error


def _flush(
    rows: sqlite3.Connection,
    batches: list[tuple[int, str, str]],
    entries: list[tuple[int, int]],
) -> None:
    entries.sort()
    # Another process may have come as far at the same time: it wrote the same.
    rows.execute("BEGIN IMMEDIATE")
    rows.executemany("INSERT OR IGNORE INTO entry VALUES (?, ?)", entries)
    rows.executemany("INSERT OR REPLACE INTO batch VALUES (?, ?, ?)", batches)
    rows.execute("COMMIT")
    batches.clear()
    entries.clear()


def _clear(rows: sqlite3.Connection, begin: Position) -> None:
    rows.execute("BEGIN IMMEDIATE")
    rows.execute("DELETE FROM entry")
    rows.execute("DELETE FROM batch")
    rows.execute("INSERT INTO batch VALUES (0, ?, ?)", (begin.tail, _text(begin)))
    rows.execute("COMMIT")


def _last(rows: sqlite3.Connection) -> tuple[int, str, Position]:
    query = "SELECT seq, sha256, after FROM batch ORDER BY seq DESC LIMIT 1"
    seq, sha256, after = rows.execute(query).fetchone()
    return seq, sha256, _position(after)


def _text(position: Position) -> str:
    return canonical_json(position.to_json()).decode("ascii")


def _position(text: object) -> Position:
    """Read a position; one that cannot be read is as good as a file that SQLite cannot read."""
    try:
        value = parse_json(str(text).encode())
        if isinstance(value, dict):
            return Position.from_json(value)
    except (Broken, ValueError) as error:
        raise sqlite3.DatabaseError(text) from error
    raise sqlite3.DatabaseError(text)


def _file(folder: Path, place: Place) -> Path:
    # By place, too: a copy that is not as far must not take turns with the original.
    where = hashlib.sha256(str(place.path.resolve()).encode()).hexdigest()
    return folder / f"{place.manifest.job}-{where[:16]}.{VERSION}.sqlite"


def _discard(file: Path) -> None:
    for name in (file, file.with_name(file.name + "-journal")):
        try:
            name.unlink(missing_ok=True)
        except OSError as error:
            raise _unusable(file, error) from error


def _code(error: sqlite3.Error) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if code is not None else None


def _unusable(file: Path, error: BaseException) -> Refused:
    detail = getattr(error, "sqlite_errorname", None) or getattr(error, "strerror", None)
    return Refused(Code.INDEX_UNUSABLE, file=str(file), detail=detail or type(error).__name__)
