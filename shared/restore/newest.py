"""Roots that archives hold more than once: which they are, and that the newest of each is taken.

An archive is a series of snapshots, so a root whose time changed between two of them may be in both, and
every job that archives a window again repeats its roots. The rows that belong to a root are taken from the
batch that the root is taken from.
"""

from __future__ import annotations

import errno
import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.chain.batch import file_name, unescape
from shared.chain.text import copy_text
from shared.errors import Code, Verdict
from shared.restore.archives import named
from shared.restore.choose import Choice, chosen, is_followed
from shared.restore.held import temporary
from shared.restore.index import root_keys
from shared.restore.rows import blocks
from shared.volume.directory import batch_chunks, opened, readable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from shared.chain.manifest import Manifest, Table
    from shared.restore.rows import Block, Value


# A longer key is remembered by a digest behind a byte that no text in UTF-8 begins with.
KEY_BYTES = 40
DIGEST_MARK = b"\xff"
DIGEST_BYTES = 32
KEYS_SHOWN = 10
INSERTED_AT_ONCE = 10_000
CHAIN_STEP = 1_000_000_000
EVERY_ROOT = Choice(frozenset(), ())

# A nameless database: it is in memory until it outgrows that many KiB, and on the disk of temporary files
# beyond. Rows are in no order until all are there, and are then sorted once.
SCHEMA = """
PRAGMA cache_size = -65536;
CREATE TABLE root (kind INTEGER, key BLOB, place INTEGER);
"""
REPEATED = """
CREATE TABLE repeated AS
SELECT kind, key, max(place) AS newest FROM root GROUP BY kind, key HAVING count(*) > 1
"""
BY_KEY = "CREATE UNIQUE INDEX repeated_key ON repeated (kind, key)"
OLDER = """
CREATE TABLE older AS
SELECT key, place FROM root JOIN repeated USING (kind, key) WHERE place < newest ORDER BY place
"""
BY_PLACE = "CREATE INDEX older_place ON older (place)"
FORGET = "DROP TABLE root"
TOTALS = "SELECT (SELECT count(*) FROM repeated), (SELECT count(*) FROM older)"
SHOWN = "SELECT DISTINCT key FROM repeated WHERE key < ? ORDER BY key LIMIT ?"
AT = "SELECT key FROM older WHERE place = ?"


@dataclass(frozen=True)
class IsOlder:
    """Tells of a root of one batch, by its key, whether a newer state of it is taken elsewhere."""

    keys: frozenset[bytes]

    def __call__(self, own: tuple[Value, ...]) -> bool:
        """Tell whether the root with this key is left out."""
        return _remembered(_spelled(own)) in self.keys

    @property
    def digest(self) -> str:
        """Return a digest of the keys that are left out."""
        hashed = hashlib.sha256()
        for key in sorted(self.keys):
            hashed.update(len(key).to_bytes(4, "big") + key)
        return hashed.hexdigest()


OlderIn = Callable[[int], IsOlder | None]


@dataclass(frozen=True)
class Chain:
    """An archive to look through: the digests of its batches in order, as far as they are read."""

    path: Path
    manifest: Manifest
    digests: tuple[str, ...]


@dataclass(frozen=True)
class Repeated:
    """What is there more than once: how many roots, how many older occurrences, and some of the keys."""

    roots: int
    older: int
    keys: tuple[str, ...]
    _rows: sqlite3.Connection | None = None

    def of(self, chain: int) -> OlderIn:
        """Return the function that gives, for a batch of the chain at this place, its older roots.

        It gives None where the whole batch is taken. It works as long as ``repeated`` is open.
        """
        rows = self._rows
        if rows is None or not self.roots:
            return whole

        def older(seq: int) -> IsOlder | None:
            found = rows.execute(AT, (chain * CHAIN_STEP + seq,))
            keys = frozenset(key for (key,) in found)
            return IsOlder(keys) if keys else None

        return older


def whole(_seq: int) -> None:
    """Say of any batch that all its roots are taken."""


@contextmanager
def repeated(chains: Sequence[Chain]) -> Iterator[Repeated]:
    """Look through the roots of archives, oldest archive first, for those that occur more than once.

    Reads the roots of every batch once. Their keys go into a temporary database, which is on disk if it is
    large: about 15 bytes a root beside its key, and as much again while it is sorted. Raises ``Verdict``
    (ARCHIVE_BROKEN) and ``Refused`` (DIRECTORY_UNREADABLE, TEMPORARY_UNUSABLE).
    """
    if sum(len(chain.digests) for chain in chains) <= 1:
        # One batch is one snapshot: a key is in it once.
        yield Repeated(0, 0, ())
        return
    with closing(sqlite3.connect("", isolation_level=None)) as rows:
        with _writing():
            rows.executescript(SCHEMA)
            _fill(rows, chains)
            for statement in (REPEATED, BY_KEY, OLDER, BY_PLACE, FORGET):
                rows.execute(statement)
            roots, older = rows.execute(TOTALS).fetchone()
            shown = [key for (key,) in rows.execute(SHOWN, (DIGEST_MARK, KEYS_SHOWN))]
        yield Repeated(roots, older, tuple(map(_key_text, shown)), rows)


def taken(
    manifest: Manifest, found: Iterable[Block], older: IsOlder | None
) -> Iterator[tuple[Table, Iterator[bytes]]]:
    """Yield each table with the rows that are taken of a batch; they must be taken before the next table."""
    if older is None:
        yield from ((block.table, block.pieces) for block in found)
    else:
        yield from chosen(manifest, found, EVERY_ROOT, set(), older)


def pieces_of(
    manifest: Manifest, found: Iterable[Block], table: Table, older: IsOlder | None
) -> Iterator[bytes]:
    """Yield the rows that are taken of one table of a batch."""
    for each, pieces in taken(manifest, found, older):
        if each == table:
            yield from pieces
            return
        # Rows of a table above decide about those below.
        for _ in pieces if older is not None else ():
            continue


@contextmanager
def _writing() -> Iterator[None]:
    """Turn what SQLite says of its temporary files into ``Refused`` (TEMPORARY_UNUSABLE)."""
    with temporary():
        try:
            yield
        except sqlite3.Error as error:
            full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error


def _fill(rows: sqlite3.Connection, chains: Sequence[Chain]) -> None:
    kinds: dict[tuple[str, ...], int] = {}
    held: list[tuple[int, bytes, int]] = []
    rows.execute("BEGIN")
    for place, chain in enumerate(chains):
        root, key = chain.manifest.root, chain.manifest.key
        if not set(key) <= set(root.copied):
            # A key that is generated is in no batch: there is nothing to compare.
            continue
        if not is_followed(chain.manifest):
            # The rows that belong to an older root cannot be told from those of a newer one.
            continue
        kind = kinds.setdefault((root.schema, root.name, *key), len(kinds))
        for seq, digest in enumerate(chain.digests, start=1):
            at = place * CHAIN_STEP + seq
            held += ((kind, _remembered(each), at) for each in _keys(chain, seq, digest))
            if len(held) >= INSERTED_AT_ONCE:
                rows.executemany("INSERT INTO root VALUES (?, ?, ?)", held)
                held.clear()
    rows.executemany("INSERT INTO root VALUES (?, ?, ?)", held)
    rows.execute("COMMIT")


def _keys(chain: Chain, seq: int, digest: str) -> Iterator[bytes]:
    """Yield the keys of a batch's roots; the file must still be the one that verified."""
    hashed = hashlib.sha256()

    def stored() -> Iterator[bytes]:
        with readable(chain.path), opened(chain.path) as directory:
            for chunk in batch_chunks(directory, seq):
                hashed.update(chunk)
                yield chunk

    chunks, file = stored(), file_name(seq)
    with named(chain.path, file):
        found = blocks(chain.manifest, chunks)
        yield from root_keys(chain.manifest, next(found).pieces)
        for _ in chunks:
            continue
    if hashed.hexdigest() != digest:
        raise Verdict(Code.ARCHIVE_BROKEN, cause="changed", file=file, directory=str(chain.path))


def _remembered(key: bytes) -> bytes:
    if len(key) <= KEY_BYTES:
        return key
    return DIGEST_MARK + hashlib.blake2b(key, digest_size=DIGEST_BYTES).digest()


def _spelled(own: tuple[Value, ...]) -> bytes:
    return b"\t".join(copy_text(part or "") for part in own)


def _key_text(key: bytes) -> str:
    return ",".join(unescape(part) or "" for part in key.split(b"\t"))
