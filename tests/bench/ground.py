"""The tables that are measured: the flights, small tickets by the million, rows of a megabyte."""

from __future__ import annotations

import csv
import io
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import make_conninfo

from shared.db.connect import connect

GENERATED_FLIGHTS = 300_000
TEXT = {"carrier", "tailnum", "origin", "dest"}
KINDS = """
[kinds.flights]
root = "public.flight"
time = "time_hour"

[kinds.tickets]
root = "public.ticket"
time = "opened_at"

[kinds.documents]
root = "public.document"
time = "made_at"
"""


@dataclass(frozen=True)
class Ground:
    """A database to read from, its kinds, and a directory to write to."""

    server: str
    dsn: str
    home: Path

    @property
    def kinds(self) -> Path:
        """Return the file of the kinds."""
        return self.home / "kinds.toml"


def database(server: str, name: str) -> str:
    """Make a database and return where it is."""
    with connect(server) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return make_conninfo(server, dbname=name)


def ground(server: str, home: Path, name: str) -> Ground:
    """Return an empty database of this name, and the kinds."""
    made = Ground(server, database(server, f"bench_{name}"), home)
    made.kinds.write_text(KINDS, "utf-8")
    return made


def flights(here: Ground) -> str:
    """Fill the table of flights, from ``TALLYSTICK_TEST_DATA`` or else generated, and say which."""
    data = os.environ.get("TALLYSTICK_TEST_DATA")
    with connect(here.dsn) as connection:
        if data:
            _load(here.dsn, Path(data))
        else:
            connection.execute(_generated().encode())
        connection.execute("CREATE INDEX ON flight (time_hour, id)")
        connection.execute("VACUUM ANALYZE flight")
    return "departures from New York in 2013" if data else "generated flights"


def tickets(here: Ground, rows: int) -> None:
    """Fill the table of tickets: a number, a time and 40 letters to a row."""
    with connect(here.dsn) as connection:
        connection.execute("DROP TABLE IF EXISTS ticket")
        connection.execute(
            "CREATE TABLE ticket (id bigint PRIMARY KEY, opened_at timestamptz NOT NULL, title text)"
        )
        connection.execute(
            f"INSERT INTO ticket SELECT n, timestamptz '2020-01-01' + n * interval '1 minute',"
            f" 'ticket ' || md5(n::text) FROM generate_series(1, {rows}) AS n".encode()
        )
        connection.execute("CREATE INDEX ON ticket (opened_at, id)")
        connection.execute("VACUUM ANALYZE ticket")


def documents(here: Ground, rows: int, row_bytes: int) -> None:
    """Fill the table of documents, whose rows no compression makes much smaller."""
    with connect(here.dsn) as connection:
        connection.execute("CREATE TABLE document (id bigint PRIMARY KEY, made_at date, body text)")
        with connection.cursor().copy("COPY document FROM STDIN") as copy:
            for number in range(rows):
                body = os.urandom(row_bytes // 2).hex()
                copy.write_row((number, "2020-01-01", body))
        connection.execute("CREATE INDEX ON document (made_at, id)")
        connection.execute("VACUUM ANALYZE document")


def text(dsn: str, statement: str) -> str:
    """Return the one value that a statement gives, as text."""
    with connect(dsn) as connection:
        row = connection.execute(statement.encode()).fetchone()
    return str(next(iter(row.values()))) if row else ""


def count(dsn: str, statement: str) -> int:
    """Return the one number that a statement gives."""
    return int(text(dsn, statement))


def _generated() -> str:
    return (
        "CREATE TABLE flight (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, time_hour timestamptz,"
        " carrier text, delay integer, air_time integer, tailnum text, note text); INSERT INTO flight"
        " (time_hour, carrier, delay, tailnum, note) SELECT timestamptz '2013-01-01' + n / 40 * interval"
        " '1 hour', 'UA', n % 90, 'N' || n % 4000, repeat(md5(n::text), 2)"
        f" FROM generate_series(1, {GENERATED_FLIGHTS}) AS n"
    )


def _load(dsn: str, data: Path) -> None:
    text = subprocess.run(
        ["zstd", "-dcq", data / "flights.csv.zst"], capture_output=True, text=True, check=True
    ).stdout
    names = next(csv.reader(io.StringIO(text)))
    types = {name: "text" if name in TEXT else "integer" for name in names}
    types["time_hour"] = "timestamptz"
    columns = ", ".join(f'"{name}" {kind}' for name, kind in types.items())
    with connect(dsn) as connection:
        connection.execute(
            f"CREATE TABLE flight (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {columns})".encode()
        )
        listed = ", ".join(f'"{name}"' for name in names)
        statement = f"COPY flight ({listed}) FROM STDIN (FORMAT csv, HEADER, NULL 'NA')"
        with connection.cursor().copy(statement.encode()) as copy:
            copy.write(text)
