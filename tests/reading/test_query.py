"""``archive query``: SQL over archives with exact types, and nothing within its reach but the rows."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from tests.operations import stage as stages
from tests.reading.scene import NOTE, Scene, again
from tests.worlds import rows

AWKWARD = r"""
CREATE TABLE app.extreme (
    id bigint PRIMARY KEY, at timestamptz NOT NULL, price numeric(10, 2), wide numeric(38, 10),
    part numeric(38, 38),
    day date, moment timestamp, zone timestamptz, ratio double precision, small smallint, clock time,
    raw bytea, label varchar(20), many integer[]
);
INSERT INTO app.extreme VALUES
    (1, '2020-01-01+00', 1.10, -9999999999999999999999999999.0123456789,
     0.00000000000000000000000000000000000001, '2020-02-29', '2020-01-01 00:00:00.000001',
     '9999-12-31 23:59:59+00', 'NaN', -32768, '24:00', '\x', '\N', '{1,NULL}'),
    (9223372036854775807, '2020-01-02+00', 99999999.99, 0, 0, '5874897-12-31', '0001-01-01',
     '2020-01-01+14', '-0', 32767, '00:00', '\x00', '', '{}'),
    (-9223372036854775808, '2020-01-03+00', NULL, NULL, NULL, NULL, NULL, NULL, 5e-324, NULL, NULL,
     NULL, NULL, NULL);
"""
KIND = """
[kinds.extremes]
root = "app.extreme"
time = "at"
"""
MISFITS = {
    "price": "'NaN'",
    "day": "'infinity'",
    "moment": "'0044-03-15 10:00:00 BC'",
    "zone": "'-infinity'",
}


@pytest.fixture
def extremes(
    database: str,
    volume_root: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> Scene:
    here = stages.stage(database, volume_root, KIND, "CREATE SCHEMA app", AWKWARD)
    stages.plan(here, "extremes", batch_size=2)
    here.until_idle()
    return Scene(here, capfdbinary)


def test_every_value_keeps_its_text_or_its_exact_type(extremes: Scene) -> None:
    query = 'SELECT * FROM app.extreme ORDER BY "at"'
    answered = extremes("archive", "query", extremes.directories[0], query, "--json")
    assert answered.code == 0
    document = answered.json()
    assert {each["name"]: each["type"] for each in document["columns"]} == {
        "id": "BIGINT", "at": "TIMESTAMP WITH TIME ZONE", "price": "DECIMAL(10,2)", "wide": "DECIMAL(38,10)",
        "part": "VARCHAR", "day": "DATE", "moment": "TIMESTAMP", "zone": "TIMESTAMP WITH TIME ZONE",
        "ratio": "DOUBLE", "small": "SMALLINT", "clock": "VARCHAR", "raw": "BLOB", "label": "VARCHAR",
        "many": "VARCHAR",
    }  # fmt: skip
    lines = extremes(
        "archive", "query", extremes.directories[0], query, "--format", "jsonl"
    ).lines()
    columns = ("id", "price", "wide", "part", "day", "moment", "zone", "small", "clock", "label")
    texts = ", ".join(f"{name}::text" for name in columns)
    truth = rows(extremes.stage.source, f"SELECT {texts} FROM app.extreme ORDER BY at")
    assert [[line[name] for name in columns] for line in lines] == [
        [row[name] for name in columns] for row in truth
    ]
    assert [line["ratio"] for line in lines] == ["nan", "-0.0", "5e-324"]


@pytest.mark.parametrize("column", MISFITS)
def test_a_column_with_a_value_that_does_not_fit_stays_text_and_that_is_said(
    extremes: Scene, column: str
) -> None:
    again(
        extremes.stage,
        f"INSERT INTO app.extreme (id, at, {column}) VALUES (2, '2021-01-01+00', {MISFITS[column]})",
    )
    query = f"SELECT typeof({column}) AS kind, {column} AS value FROM extreme WHERE id = 2"
    answered = extremes("archive", "query", extremes.stage.root, query, "--format", "jsonl")
    assert answered.lines() == [{"kind": "VARCHAR", "value": MISFITS[column].strip("'")}]
    assert f"app.extreme.{column} stays text: 1 values" in answered.err
    assert f"{extremes.directories[1]}/000001.sql.zst" in answered.err


def test_texts_come_out_as_they_went_in(shop: Scene) -> None:
    query = 'SELECT id, "Body, ""long""" AS body, padded, doc::text AS doc, mood FROM app."Odd ""Note"""'
    answered = shop("archive", "query", "tickets", query, "--format", "jsonl")
    truth = {
        row["id"]: row
        for row in rows(
            shop.stage.source,
            f'SELECT id::text, "Body, ""long""" AS body, rpad(padded, 5) AS padded, doc::text AS doc,'
            f" mood::text FROM {NOTE}",
        )
    }
    assert {line["id"]: line for line in answered.lines()} == truth


def test_tables_have_their_names_and_join_across_jobs(shop: Scene) -> None:
    query = (
        "SELECT t.shop, count(*) AS notes, sum(n.price) AS price FROM app.ticket AS t"
        ' JOIN "app"."Odd ""Note""" n USING (shop, number) GROUP BY ALL ORDER BY 1; -- and no more'
    )
    answered = shop("archive", "query", "tickets", query, "--format", "csv")
    truth = rows(
        shop.stage.source,
        f"SELECT count(*) AS notes, sum(price) AS price FROM {NOTE}"
        ' GROUP BY shop ORDER BY shop COLLATE "C"',
    )
    assert answered.code == 0, answered.err
    lines = answered.raw.decode().splitlines()
    assert lines[0] == "shop,notes,price"
    assert [line.rsplit(",", 2)[1:] for line in lines[1:]] == [
        [str(row["notes"]), str(row["price"])] for row in truth
    ]
    table = shop("archive", "query", "tickets", "SELECT number, title FROM ticket WHERE number < 4")
    assert [line.split()[0] for line in table.raw.decode().splitlines()] == [
        "number",
        "1",
        "2",
        "3",
    ]


def test_a_query_reaches_no_file(shop: Scene) -> None:
    for query in (
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd'), app.ticket",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
    ):
        answered = shop("archive", "query", shop.directories[0], query)
        assert (answered.code, answered.raw) == (2, b""), query
        assert "QUERY_FAILED" in answered.err, query


def test_only_one_select_is_run(shop: Scene) -> None:
    for query in (
        "COPY app.ticket TO '/tmp/x.csv'",
        "SELECT 1; SELECT 2",
        "DROP TABLE app.ticket",
        "ATTACH '/tmp/x.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "",
    ):
        answered = shop("archive", "query", shop.directories[0], query)
        assert (answered.code, answered.raw) == (2, b""), query
        assert "(QUERY_REFUSED:" in answered.err, query


def test_a_table_named_in_a_text_is_not_taken_for_empty(shop: Scene) -> None:
    query = "SELECT count(*) AS n FROM query_table('app.tag')"
    answered = shop("archive", "query", shop.directories[0], query, "--format", "csv")
    assert answered.raw == b"n\n320\n" or answered.code == 2


def test_columns_and_types_can_be_asked_for(shop: Scene) -> None:
    answered = shop("archive", "query", "tickets", "DESCRIBE app.ticket", "--format", "jsonl")
    assert [(line["column_name"], line["column_type"]) for line in answered.lines()] == [
        ("shop", "VARCHAR"),
        ("number", "INTEGER"),
        ("opened_at", "TIMESTAMP WITH TIME ZONE"),
        ("title", "VARCHAR"),
    ]


def test_what_duckdb_says_is_told(shop: Scene) -> None:
    answered = shop("archive", "query", "tickets", "SELECT titel FROM app.ticket")
    assert answered.code == 2
    assert "titel" in answered.err
    twice = shop("archive", "query", "tickets", "SELECT 1 AS a, 2 AS a", "--format", "jsonl")
    assert (twice.code, twice.raw) == (2, b"")


def test_nothing_is_answered_from_a_file_that_was_changed(shop: Scene) -> None:
    file = stages.batch_files(shop.stage, stages.jobs(shop.stage)[0])[1]
    file.write_bytes(file.read_bytes()[:-3] + b"\0\0\0")
    answered = shop("archive", "query", "tickets", "SELECT count(*) FROM app.ticket")
    assert (answered.code, answered.raw) == (1, b"")


def test_parquet_holds_the_same_rows_with_the_same_types(shop: Scene, tmp_path: Path) -> None:
    folder = tmp_path / "parquet"
    answered = shop("archive", "query", "tickets", "--to-parquet", folder, "--json")
    assert answered.code == 0
    names = {Path(each["file"]).name for each in answered.json()["files"]}
    assert names == {"app.ticket.parquet", 'app.Odd "Note".parquet', "app.tag.parquet"}
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    with duckdb.connect() as connection:
        read = f"SELECT id, price, free, ok, raw FROM read_parquet('{folder}/app.Odd \"Note\".parquet')"
        found = connection.execute(read + " ORDER BY id").fetchall()
    truth = rows(
        shop.stage.source, f"SELECT id, price, free::text, ok, raw FROM {NOTE} ORDER BY id"
    )
    assert found == [tuple(row.values()) for row in truth]
    assert isinstance(found[0][1], Decimal)
    again_there = shop("archive", "query", "tickets", "--to-parquet", folder)
    assert (again_there.code, again_there.raw) == (2, b"")
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)


def test_names_that_differ_in_case_alone_are_refused(
    database: str, volume_root: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    ddl = 'CREATE SCHEMA app; CREATE TABLE app.t (id int PRIMARY KEY, at timestamptz NOT NULL, "ID" text)'
    here = stages.stage(database, volume_root, '[kinds.t]\nroot = "app.t"\ntime = "at"', ddl)
    stages.plan(here, "t")
    here.until_idle()
    scene = Scene(here, capfdbinary)
    answered = scene("archive", "query", scene.directories[0], "SELECT * FROM app.t")
    assert answered.code == 2
    assert "ID and id" in answered.err


def test_without_duckdb_a_query_says_what_to_install(
    shop: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    answered = shop("archive", "query", "tickets", "SELECT 1")
    assert answered.code == 2
    assert "python -m pip install 'tallystick[query]'" in answered.err
