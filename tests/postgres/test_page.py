"""What the reading of rows does to the rest of its process, and what it says of one that breaks off."""

from __future__ import annotations

import threading

import psycopg
import pytest
from psycopg import sql

from shared.archive.copying import copied
from shared.db.connect import connect
from shared.errors import Trouble

# A first row that fills the server's buffer is sent; then it is silent for a second.
SILENT = sql.SQL(
    "COPY (SELECT CASE n WHEN 1 THEN repeat('x', 100000) ELSE pg_sleep(1)::text END"
    " FROM generate_series(1, 2) AS n) TO STDOUT"
)
BEAT_SECONDS = 0.01


def test_other_threads_go_on_while_the_source_is_silent(database: str) -> None:
    beats, ended = [], threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            beats.append(1)

    thread = threading.Thread(target=beat)
    with connect(database) as connection:
        thread.start()
        assert [len(line) for line in copied(connection, SILENT.format())] == [100_001, 1]
        ended.set()
        thread.join()
    # A hundred in that second on an idle machine; one or two for a reader that keeps all to itself.
    assert len(beats) > 10


def test_an_error_after_some_rows_is_told_and_leaves_the_connection_of_use(database: str) -> None:
    query = sql.SQL("COPY (SELECT 1 / (5 - n) FROM generate_series(1, 9) AS n) TO STDOUT")
    with connect(database) as connection:
        with pytest.raises((Trouble, psycopg.Error)):
            list(copied(connection, query.format()))
        connection.rollback()
        assert list(copied(connection, sql.SQL("COPY (SELECT 1) TO STDOUT").format())) == [b"1\n"]
