"""A query meets no name of ours, and a number that stayed text is named with what to write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.operations import stage as stages
from tests.reading.scene import Scene

ODD = """
CREATE SCHEMA main;
CREATE TABLE main.tallystick_stage (
    id integer PRIMARY KEY, at date NOT NULL, "TALLYSTICK_BATCH" integer, tallystick_rows numeric
);
INSERT INTO main.tallystick_stage SELECT n, '2020-01-01', n * 10, n / 4.0 FROM generate_series(1, 5) AS n;
CREATE SCHEMA temp;
CREATE TABLE temp.tallystick_rows (note integer REFERENCES main.tallystick_stage, total numeric(6, 2));
INSERT INTO temp.tallystick_rows SELECT n, n FROM generate_series(1, 5) AS n;
"""
KIND = """
[kinds.odd]
root = "main.tallystick_stage"
time = "at"
related = ["temp.tallystick_rows"]
"""


@pytest.fixture
def odd(database: str, volume_root: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Scene:
    here = stages.stage(database, volume_root, KIND, ODD)
    stages.plan(here, "odd", batch_size=2)
    here.until_idle()
    return Scene(here, capfdbinary)


def _catalogs(odd: Scene, place: Path) -> list[str]:
    query = "SELECT current_database() AS name, count(*) FROM tallystick_stage"
    return [
        line["name"] for line in odd("archive", "query", place, query, "--format", "jsonl").lines()
    ]


def test_tables_and_columns_may_be_called_as_ours_are(odd: Scene, tmp_path: Path) -> None:
    place = odd.directories[0]
    query = 'SELECT sum("TALLYSTICK_BATCH") AS s, count(*) AS n FROM main.tallystick_stage'
    answered = odd("archive", "query", place, query, "--format", "jsonl")
    assert (answered.code, answered.raw) == (0, b'{"s":150,"n":5}\n')
    # DuckDB has a catalog called temp, so that schema is named with ours before it.
    ours = next(iter(_catalogs(odd, place)))
    joined = (
        f"SELECT sum(total) AS s FROM {ours}.temp.tallystick_rows AS r"
        " JOIN main.tallystick_stage AS t ON t.id = r.note"
    )
    answered = odd("archive", "query", place, joined, "--format", "jsonl")
    assert (answered.code, answered.raw) == (0, b'{"s":15.00}\n')
    written = odd("archive", "query", place, "--to-parquet", str(tmp_path / "out"), "--json")
    assert written.code == 0
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_a_sum_of_numbers_that_stayed_text_says_what_to_write(odd: Scene) -> None:
    place = odd.directories[0]
    query = "SELECT sum({}) AS s FROM main.tallystick_stage"
    failed = odd("archive", "query", place, query.format("tallystick_rows"), "--json")
    error = json.loads(failed.err.splitlines()[-1])["error"]
    assert (failed.code, error["code"], error["params"]["cause"]) == (2, "QUERY_FAILED", "text")
    assert error["params"]["columns"] == ["main.tallystick_stage.tallystick_rows"]
    write = error["params"]["write"]
    assert write in error["next"]
    answered = odd("archive", "query", place, query.format(write), "--format", "jsonl")
    assert (answered.code, answered.raw) == (0, b'{"s":3.7500000000}\n')
