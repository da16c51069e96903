"""What the tests of reading start from: a kind fitted to tables, and pages of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import psycopg
from psycopg import sql

from shared.archive import kinds as kinds_file
from shared.archive import window
from shared.archive.copying import copied as lines_of
from shared.archive.examine import Finding, examine, tables_of
from shared.archive.opening import fitted
from shared.archive.page import Page, batch, cursor_of, root_query
from shared.archive.shape import Opening, Shape
from shared.archive.source import snapshot
from shared.chain.batch import Header
from shared.chain.frame import decompressed
from shared.clock import Deadline
from shared.db.connect import Row, connect

CUTOFF = "2021-01-01 00:00:00+00"
PAGES_MAX = 50


def execute(dsn: str, *statements: str) -> None:
    """Run statements, each in a transaction of its own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def definition_of(kind: str) -> dict[str, Any]:
    (found,) = kinds_file.parse(f"[kinds.it]\n{kind}", "kinds.toml", "application")
    return found.definition


def findings_of(dsn: str, kind: str) -> tuple[Shape | None, tuple[Finding, ...]]:
    """Hold a kind against the tables there are."""
    definition = definition_of(kind)
    with (
        connect(dsn) as connection,
        snapshot(connection, tables_of(definition), name="t", seconds=20, lock=False) as facts,
    ):
        return examine(definition, facts)


def opening_of(dsn: str, kind: str, cutoff: str = CUTOFF) -> Opening:
    shape, findings = findings_of(dsn, kind)
    assert shape is not None, findings
    return Opening(shape, None, cutoff, None, "db", "UTF8", 0)


def page_of(
    connection: psycopg.Connection[Row],
    kind: str,
    opening: Opening,
    after: tuple[str, ...] | None,
    size: int,
) -> bytes:
    """Read one page in a snapshot of its own, as a unit does, and return the text of its batch."""
    header = Header("job", 1, "0" * 64, after, "test")
    tables = tables_of(definition_of(kind))
    with snapshot(connection, tables, name="tallystick job 1", seconds=20, lock=True) as facts:
        assert fitted(definition_of(kind), facts) == opening.shape
        stored = list(batch(connection, opening, Page(header, size, Deadline.after(20))))
    return b"".join(decompressed([b"".join(stored)]))


def rows_of(text: bytes) -> list[list[bytes]]:
    """Return the lines of each table of a batch, in their order."""
    blocks: list[list[bytes]] = []
    inside = False
    for line in text.split(b"\n"):
        if inside and line == b"\\.":
            inside = False
        elif inside:
            blocks[-1].append(line)
        elif line.startswith(b"COPY "):
            blocks.append([])
            inside = True
    return blocks


def copied(dsn: str, select: str, settings: Sequence[str]) -> list[bytes]:
    """Return the lines of COPY text for a query, under given settings."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for setting in settings:
            connection.execute(f"SET {setting}".encode())
        with connection.cursor().copy(f"COPY ({select}) TO STDOUT".encode()) as copy:
            return b"".join(bytes(piece) for piece in copy).split(b"\n")[:-1]


@contextmanager
def up_to_now() -> Iterator[None]:
    """Let windows end at the very clock of the source, until the end of the block."""
    with mock.patch.object(window, "MARGIN_SECONDS", 0):
        yield


def paged(
    dsn: str,
    opening: Opening,
    size: int,
    *,
    change: Callable[[str], str] = str,
    between: Callable[[], object] = lambda: None,
) -> list[bytes]:
    """Read the roots of a window page by page, and return their lines.

    ``change`` takes a rule out of the query of a page, ``between`` happens after the first one.
    """
    found: list[bytes] = []
    after = opening.after
    with connect(dsn) as connection:
        for number in range(PAGES_MAX):
            text = change(root_query(opening, after, size).as_string(connection))
            page = list(lines_of(connection, sql.Composed([sql.SQL(text)])))
            found += [line.removesuffix(b"\n") for line in page]
            if len(page) < size:
                break
            after = cursor_of(opening.shape, page[-1])
            if number == 0:
                between()
    return found
