"""A batch as a file: read from one snapshot of the source, and proven from what was written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.archive.count import window_rows
from shared.archive.examine import STRUCTURAL
from shared.archive.opening import fitted
from shared.archive.page import batch, first_key_query
from shared.archive.shape import difference
from shared.archive.source import GONE, snapshot, source_errors
from shared.catalog.names import TableName
from shared.chain.batch import file_name
from shared.chain.verdict import Broken
from shared.chain.verify import BatchProof, verify_batch
from shared.errors import Code, TooMuch, Trouble, Verdict
from shared.volume import publish
from shared.volume.files import chunks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import psycopg

    from shared.archive.count import WindowRows
    from shared.archive.page import Page
    from shared.archive.shape import Difference, Opening
    from shared.chain.manifest import Manifest
    from shared.chain.verify import Position
    from shared.db.connect import Row
    from shared.volume.identity import Volume
    from shared.volume.publish import Temp

KEY_SECONDS = 5.0
# Bytes that are no text in the database's encoding, or that UTF-8 has no letter for.
UNREADABLE = frozenset({"22021", "22P05"})


@dataclass(frozen=True)
class Reading:
    """What pages are read by: what the tables must still fit, what was fixed of them, the reader's name.

    ``reader`` is how the reader shows in ``pg_stat_activity``. ``counted`` is called with the rows in the
    window, counted in the snapshot of the final batch; without it they are not counted.
    """

    definition: dict[str, Any]
    opening: Opening
    reader: str
    counted: Callable[[WindowRows], None] | None = None


def page_bytes(
    connection: psycopg.Connection[Row], reading: Reading, page: Page
) -> Generator[bytes, None, None]:
    """Yield the bytes of a batch, from a snapshot of its own.

    Raises ``Verdict`` (SCHEMA_CHANGED) when the tables are no longer what the first look found.
    """
    opening = reading.opening
    tables = [TableName(table.schema, table.name) for table in opening.shape.tables]
    try:
        with snapshot(
            connection, tables, name=reading.reader, seconds=page.deadline.left(), lock=True
        ) as facts:
            if changed := difference(opening.shape, fitted(reading.definition, facts)):
                raise _schema_changed(changed)
            partitioned = facts[0].row["kind"] == "p"
            final = yield from batch(connection, opening, page, partitioned=partitioned)
            if final and reading.counted is not None:
                reading.counted(window_rows(connection, opening, page.deadline.left()))
    except Verdict as verdict:
        if verdict.params.get("cause") in GONE | STRUCTURAL:
            raise Verdict(Code.SCHEMA_CHANGED, **verdict.params) from verdict
        raise
    except TooMuch as too_much:
        if too_much.params.get("sqlstate") in UNREADABLE:
            too_much.params["encoding"] = opening.encoding
        if page.size == 1 and "key" not in too_much.params:
            too_much.params |= _key_of_first(connection, reading, page)
        raise


def proof_of_temp(
    volume: Volume, manifest: Manifest, position: Position, temp: Temp
) -> tuple[BatchProof, Position]:
    """Read back what was written, before it gets its name; raises ``Verdict`` when it is not that."""
    with publish.opened_temp(volume, temp) as fd:
        proof, after = proof_of(manifest, position, fd)
    if proof.sha256 != temp.sha256:
        raise Verdict(
            Code.FILE_CHECK_FAILED, cause="read-back", expected=temp.sha256, found=proof.sha256
        )
    return proof, after


def proof_of(manifest: Manifest, position: Position, fd: int) -> tuple[BatchProof, Position]:
    """Verify an open file as the next of the chain, and say where the chain then stands.

    Raises ``Verdict`` (FILE_CHECK_FAILED).
    """
    try:
        return verify_batch(manifest, position, chunks_of(fd))
    except Broken as broken:
        raise Verdict(
            Code.FILE_CHECK_FAILED,
            file=file_name(position.seq + 1),
            cause=str(broken.reason),
            **broken.params,
        ) from broken


def _key_of_first(
    connection: psycopg.Connection[Row], reading: Reading, page: Page
) -> dict[str, Any]:
    """Name the one root of a page that could not even be read; no name where that fails too."""
    query = first_key_query(reading.opening, page.header.after)
    try:
        with (
            snapshot(connection, [], name=reading.reader, seconds=KEY_SECONDS, lock=False),
            source_errors(),
        ):
            found = connection.execute(query).fetchone()
    except Trouble:
        return {}
    return {"key": found["key"]} if found else {}


def _schema_changed(changed: Difference) -> Verdict:
    return Verdict(
        Code.SCHEMA_CHANGED,
        cause="replaced" if changed.replaced else "columns",
        table=changed.table,
        column=changed.column,
        before=changed.before,
        now=changed.now,
    )
