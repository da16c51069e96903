"""One batch into its tables: streamed, counted, and committed together with its record."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from psycopg import sql

from shared.chain.batch import file_name
from shared.chain.verdict import Broken
from shared.errors import Code, Verdict
from shared.restore import records
from shared.restore.archives import opened_batch
from shared.restore.choose import chosen
from shared.restore.newest import taken, whole
from shared.restore.rows import blocks
from shared.restore.target import transaction
from shared.restore.trouble import target_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shared.catalog.names import TableName
    from shared.chain.manifest import Table
    from shared.chain.verify import BatchProof
    from shared.restore.archives import Archive
    from shared.restore.choose import Choice
    from shared.restore.newest import OlderIn
    from shared.restore.rows import Block, Value
    from shared.restore.target import Connection

STAGE = sql.Identifier("pg_temp", "tallystick_rows")


@dataclass(frozen=True)
class Errand:
    """What is done with each batch of an archive: where its rows go, which, and what if they are there.

    ``skip`` leaves rows alone that are there by any unique constraint. ``older`` tells which roots of a batch
    are left out, as the archives hold a newer state of them.
    """

    names: tuple[TableName, ...]
    choice: Choice | None
    skip: bool
    older: OlderIn = whole

    def purpose(self, seq: int) -> str:
        """Return what stands in the record of a batch."""
        older = self.older(seq)
        return records.purpose(self.names, self.choice, older.digest if older else None)


@dataclass(frozen=True)
class Loaded:
    """What became of a batch, by table: rows brought, and rows left as they were."""

    restored: tuple[int, ...]
    skipped: tuple[int, ...]


@dataclass(frozen=True)
class _Batch:
    """A batch being read: where, and which it must turn out to be."""

    archive: Archive
    proof: BatchProof

    @property
    def place(self) -> dict[str, object]:
        return {
            "file": file_name(self.proof.header.seq),
            "directory": str(self.archive.path),
        }


def load(
    connection: Connection,
    archive: Archive,
    proof: BatchProof,
    errand: Errand,
    found: set[tuple[Value, ...]],
) -> Loaded | None:
    """Bring the rows of one verified batch, all or none; None when they had been brought before.

    The bytes are hashed again on their way: a file that is no longer the one that verified is never
    committed. Keys of chosen roots are added to ``found``. Raises ``Verdict`` (ARCHIVE_BROKEN,
    RESTORE_CONFLICT) and what ``target_errors`` makes of everything else.
    """
    batch = _Batch(archive, proof)
    with _read(batch) as stored:
        parts = _parts(batch, stored, errand, found)
        first = next(parts)
        if errand.choice is not None and first[1] is None:
            return Loaded((0,) * len(errand.names), (0,) * len(errand.names))
        with target_errors(**batch.place), transaction(connection):
            if not records.record(connection, proof, errand.purpose(proof.header.seq)):
                _drain(first[1])
                return None
            counts = []
            for (table, pieces), name in zip(chain([first], parts), errand.names, strict=True):
                place = {"table": str(name), **batch.place}
                with target_errors(**place):
                    sent, took, left = _sent(connection, table, pieces or (), name, errand)
                if sent != took + left:
                    # Only a trigger can make rows vanish on their way without an error.
                    counted = {"sent": sent, "copied": took, "left": left}
                    raise Verdict(Code.RESTORE_CONFLICT, cause="rows-vanished", **counted, **place)
                counts.append((took, left))
            stored.check(batch)
    restored, skipped = zip(*counts, strict=True)
    return Loaded(restored, skipped)


def counted(
    archive: Archive, proof: BatchProof, errand: Errand, found: set[tuple[Value, ...]]
) -> tuple[int, ...]:
    """Count the rows of a batch that an errand takes, by table; nothing is written."""
    batch = _Batch(archive, proof)
    with _read(batch) as stored:
        counts = tuple(_drain(pieces) for _, pieces in _parts(batch, stored, errand, found))
        stored.check(batch)
    return counts


class _Stored:
    """The stored bytes on their way to the target, hashed as they pass."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._digest = hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self._digest.update(chunk)
            yield chunk

    def check(self, batch: _Batch) -> None:
        """Take the rest, and refuse bytes that are not those that verified."""
        for chunk in self._chunks:
            self._digest.update(chunk)
        if self._digest.hexdigest() != batch.proof.sha256:
            raise Verdict(Code.ARCHIVE_BROKEN, cause="changed", **batch.place)


@contextmanager
def _read(batch: _Batch) -> Iterator[_Stored]:
    try:
        with opened_batch(batch.archive, batch.proof.header.seq) as chunks:
            yield _Stored(chunks)
    except Broken as broken:
        # It verified a moment ago: only a file that was changed since can be broken now.
        raise Verdict(Code.ARCHIVE_BROKEN, cause="changed", **batch.place) from broken


def _parts(
    batch: _Batch, stored: _Stored, errand: Errand, found: set[tuple[Value, ...]]
) -> Iterator[tuple[Table, Iterator[bytes] | None]]:
    """Yield each table with its rows; None for the root when no row of it was chosen."""
    manifest = batch.archive.manifest
    source: Iterator[Block] = blocks(manifest, stored)
    older = errand.older(batch.proof.header.seq)
    if errand.choice is None:
        yield from taken(manifest, source, older)
        return
    for table, pieces in chosen(manifest, source, errand.choice, found, older):
        head = next(pieces, None)
        yield table, None if head is None else chain([head], pieces)


def _sent(
    connection: Connection, table: Table, pieces: Iterable[bytes], name: TableName, errand: Errand
) -> tuple[int, int, int]:
    """Send the rows of one table; return how many were sent, how many it took, how many were there."""
    target = sql.Identifier(name.schema, name.name)
    if errand.skip:
        return _inserted(connection, table, pieces, target)
    return *_copied(connection, table, pieces, target), 0


def _inserted(
    connection: Connection, table: Table, pieces: Iterable[bytes], target: sql.Identifier
) -> tuple[int, int, int]:
    """Insert the rows that are not there, by way of a temporary table with the same columns.

    Made of a query it has the types and none of the rules: what a row breaks, it breaks in the target. Rows
    that were there and rows that a trigger swallowed are both not inserted. The server tells them apart only
    in the account it gives of running the statement.
    """
    columns = _listed(table)
    connection.execute(
        sql.SQL(
            "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA"
        ).format(STAGE, columns, target)
    )
    sent, _ = _copied(connection, table, pieces, STAGE)
    listed = sql.SQL("({})").format(columns) if table.copied else sql.SQL("")
    insert = sql.SQL(
        "INSERT INTO {} {} OVERRIDING SYSTEM VALUE SELECT {} FROM {} ON CONFLICT DO NOTHING RETURNING 1"
    ).format(target, listed, columns, STAGE)
    explained = connection.execute(
        sql.SQL("EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF, FORMAT JSON) {}").format(insert)
    ).fetchone()
    connection.execute(sql.SQL("DROP TABLE {}").format(STAGE))
    assert explained is not None  # noqa: S101 - EXPLAIN has one row
    node = explained["QUERY PLAN"][0]["Plan"]
    # PostgreSQL 18 counts rows with decimals.
    return sent, round(node["Actual Rows"]), round(node["Conflicting Tuples"])


def _copied(
    connection: Connection, table: Table, pieces: Iterable[bytes], target: sql.Identifier
) -> tuple[int, int]:
    """Stream rows as they are into a table by COPY; return how many were sent and how many it took."""
    listed = sql.SQL("({}) ").format(_listed(table)) if table.copied else sql.SQL("")
    statement = sql.SQL("COPY {} {}FROM STDIN").format(target, listed)
    sent = 0
    cursor = connection.cursor()
    with cursor.copy(statement) as copy:
        for piece in pieces:
            sent += piece.count(b"\n")
            copy.write(piece)
    return sent, cursor.rowcount


def _listed(table: Table) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, table.copied))


def _drain(pieces: Iterable[bytes] | None) -> int:
    return sum(piece.count(b"\n") for piece in pieces or ())
