"""A small shop with awkward values, archived by real ticks: what reading commands are tried on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from handlers.cli import run
from shared.chain.batch import PINS
from tests.operations import stage as stages
from tests.operations.stage import Stage

KINDS = r'''
[kinds.tickets]
root = "app.ticket"
time = "opened_at"

[[kinds.tickets.related]]
table = 'app."Odd ""Note"""'
foreign_key = ["shop", "number"]
references = "app.ticket"

[[kinds.tickets.related]]
table = "app.tag"
foreign_key = ["note_id"]
references = 'app."Odd ""Note"""'
'''

TABLES = r'''
CREATE SCHEMA app;
CREATE TYPE app.mood AS ENUM ('so so', 'a,b"c');
CREATE TABLE app.ticket (
    shop text, number integer, opened_at timestamptz NOT NULL, title text,
    twice integer GENERATED ALWAYS AS (number * 2) STORED,
    PRIMARY KEY (shop, number)
);
CREATE TABLE app."Odd ""Note""" (
    id bigint PRIMARY KEY, shop text, number integer, "Body, ""long""" text, padded character(5),
    doc json, docb jsonb, price numeric(10, 2), part numeric(4, 4), free numeric, ratio double precision,
    small real, ok boolean, raw bytea, token uuid, day date, at timestamp, at_zone timestamptz,
    span interval, tags text[], mood app.mood, cash money,
    FOREIGN KEY (shop, number) REFERENCES app.ticket
);
CREATE TABLE app.tag (note_id bigint REFERENCES app."Odd ""Note""", word text);
'''

FIRST = r'''
INSERT INTO app.ticket (shop, number, opened_at, title)
SELECT CASE WHEN n % 2 = 0 THEN 'b,c' ELSE E'a\tb\\"c' END, n,
       timestamptz '2020-01-01 00:00:00+00' + n * interval '1 hour',
       (ARRAY['plain', '', NULL, 'a,b', 'say "hi"', E'two\nlines', E'cr\rlf\n', E'tab\there', '\.', '\N',
              E'\\N', ' padded ', 'é😀', E'\u2028', E'\x01', 'NULL', '"', E'\b\f\v', '{"a": 1}'])[1 + n % 19]
FROM generate_series(1, 40) AS n;
INSERT INTO app."Odd ""Note"""
SELECT t.number * 10 + k, t.shop, t.number, t.title || k, 'ab',
       '{"b": 1.10, "b": [2],
          "a": "x"}', '{"b": 1.10, "a": null}', t.number + 0.10, 0.1234,
       12345678901234567890.12345678901234567890,
       0.1 + k / 3.0, 0.1, t.number % 2 = 0, decode('00ff5c', 'hex'),
       'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', date '2020-02-29' + t.number,
       timestamp '2020-01-01 10:00:00.5' + t.number * interval '1 microsecond', t.opened_at,
       interval '1 mon -2 days',
       ARRAY['a', NULL, 'b c', '"'], 'a,b"c', 12.5
FROM app.ticket AS t, generate_series(1, 2) AS k;
INSERT INTO app.tag SELECT id, word FROM app."Odd ""Note""", unnest(ARRAY['', '\.', 'x', NULL]) AS word;
'''

SECOND = r'''
INSERT INTO app.ticket (shop, number, opened_at, title)
SELECT 'late', n, timestamptz '2021-01-01 00:00:00+00' + n * interval '1 hour', 'second job'
FROM generate_series(100, 110) AS n;
INSERT INTO app."Odd ""Note""" (id, shop, number, price)
SELECT number * 10, shop, number, 5 FROM app.ticket WHERE shop = 'late';
INSERT INTO app.tag SELECT id, 'late' FROM app."Odd ""Note""" WHERE shop = 'late';
'''

NOTE = 'app."Odd ""Note"""'


@dataclass(frozen=True)
class Answered:
    """What one command answered; ``raw`` is its output as bytes."""

    code: int
    raw: bytes
    err: str

    def json(self) -> Any:  # noqa: ANN401 - any document
        return json.loads(self.raw)

    def lines(self) -> list[Any]:
        """Return JSON Lines with numbers as they were spelled."""
        return [json.loads(line, parse_float=str, parse_int=str) for line in self.raw.splitlines()]


@dataclass(frozen=True)
class Scene:
    """The stage, and a shell whose answers are bytes."""

    stage: Stage
    capture: pytest.CaptureFixture[bytes]

    def __call__(self, *arguments: str | Path) -> Answered:
        self.capture.readouterr()
        code = run([str(each) for each in arguments])
        out, err = self.capture.readouterr()
        return Answered(code, out, err.decode())

    @property
    def directories(self) -> list[Path]:
        """Directories of the jobs, oldest first."""
        return [stages.directory(self.stage, job) for job in stages.jobs(self.stage)]


def scene(
    database: str, root: Path, capture: pytest.CaptureFixture[bytes], *, batch: int = 7
) -> Scene:
    """Archive the first rows in one job, the later ones in the next."""
    here = stages.stage(database, root, KINDS, TABLES, FIRST)
    stages.plan(here, "tickets", batch_size=batch)
    here.until_idle()
    again(here, SECOND)
    return Scene(here, capture)


def again(here: Stage, *statements: str) -> None:
    """Change the source, and let the plan run once more."""
    stages.execute(here.source, *statements)
    stages.plans_due(here)
    here.until_idle()


def copied(dsn: str, statement: str) -> bytes:
    """Return what a COPY gives under the settings archives have."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for name, value in PINS:
            connection.execute(f"SET {name} = {value}".encode())
        with connection.cursor().copy(statement.encode()) as copy:
            return b"".join(bytes(piece) for piece in copy)


def ordered(table: str, columns: str, by: str, keys: Sequence[str]) -> str:
    """Return the COPY of rows in the order that an archive has them in."""
    places = ", ".join("'" + key.replace("'", "''") + "'" for key in keys)
    return (
        f"COPY (SELECT {columns} FROM {table} ORDER BY array_position(ARRAY[{places}], {by}::text), 1)"
        " TO STDOUT (FORMAT csv, HEADER)"
    )
