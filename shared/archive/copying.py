"""Rows as the source prints them: the lines of one COPY, as they arrive."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

import psycopg
from psycopg.pq import ExecStatus

from shared.archive.source import trouble_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from psycopg import sql
    from psycopg.pq.abc import PGconn, PGresult

    from shared.db.connect import Row


# Rows are gathered to pieces of this size before they are compressed and hashed.
PIECE_BYTES = 256 * 1024


def copied(connection: psycopg.Connection[Row], query: sql.Composed) -> Iterator[bytes]:
    """Yield the lines of COPY text that ``query`` gives, each with its newline.

    Straight from libpq: a third faster than the cursor's iterator, and the same bytes. Never its blocking
    read, which would keep every other thread of the process from running for as long as the server is silent.
    """
    raw = connection.pgconn
    arrival = select.poll()
    arrival.register(raw.socket, select.POLLIN)
    result = raw.exec_(query.as_string(connection).encode())
    if result.status != ExecStatus.COPY_OUT:
        raise trouble_of(psycopg.errors.error_from_result(result))
    while True:
        size, line = raw.get_copy_data(1)
        if size > 0:
            yield bytes(line)
        elif size == 0:
            _taken_in(raw, arrival)
        else:
            break
    # All of them are taken before an error is told: a connection with results left could not even roll back.
    results = list(_results(raw, arrival))
    for ended in results:
        if ended.status != ExecStatus.COMMAND_OK:
            raise trouble_of(psycopg.errors.error_from_result(ended))


def _results(raw: PGconn, arrival: select.poll) -> Iterator[PGresult]:
    while True:
        while raw.is_busy():
            _taken_in(raw, arrival)
        if (ended := raw.get_result()) is None:
            return
        yield ended


def _taken_in(raw: PGconn, arrival: select.poll) -> None:
    """Wait until the server has sent something, and take it in."""
    arrival.poll()
    raw.consume_input()


def pieces(rows: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Gather lines until they are worth compressing and hashing together."""
    lines: list[bytes] = []
    size = 0
    for line in rows:
        lines.append(line)
        size += len(line)
        if size >= PIECE_BYTES:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines
