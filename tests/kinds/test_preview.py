"""A preview says what archiving would come to, from the source alone, and is right about what it counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from handlers.cli import run
from shared.archive import preview as previewing
from shared.archive.page import extent_query
from shared.archive.shape import Opening
from tests.kinds.drafts import execute
from tests.worlds import rows

TABLES = (
    "CREATE TABLE note (id integer PRIMARY KEY, at timestamptz NOT NULL, said text)",
    "CREATE TABLE line (note integer REFERENCES note)",
    (
        "INSERT INTO note SELECT i, '2020-01-01Z'::timestamptz + i * interval '1 hour',"
        " repeat(md5(i::text), 4) FROM generate_series(1, 5000) AS i"
    ),
    "INSERT INTO note VALUES (9999, now(), 'too young')",
    "INSERT INTO line SELECT id FROM note, generate_series(1, 2)",
    "ANALYZE note, line",
)


@pytest.fixture
def source(empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    execute(empty_database, *TABLES)
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", empty_database)
    monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))
    return empty_database


def previewed(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["preview", "public.note", *more, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def codes(found: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in found["findings"]}


def test_it_counts_what_an_export_then_writes(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = previewed(capsys, "--batch-size", "1000")
    assert (found["roots"], found["exact"], found["batches"]) == (5000, True, 5)
    assert found["rows"] == {"public.note": 5000, "public.line": 10000}
    assert (found["oldest"], found["newest"]) == (
        "2020-01-01 01:00:00+00",
        "2020-07-27 08:00:00+00",
    )
    assert found["seconds_at_interval"] == 5 * found["tick_interval"]
    place = tmp_path / "n"
    options = ["--batch-size", "1000", "--until", "2021-01-01", "--directory", str(place)]
    assert run(["archive", "export", "public.note", *options]) == 0
    stored = sum(file.stat().st_size for file in place.glob("*.zst"))
    assert 0.9 < found["bytes"] / stored < 1.1


def test_it_names_the_index_of_a_page_and_warns_where_there_is_none(
    source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = previewed(capsys, "--batch-size", "10")
    assert found["plan"] == {
        "indexes": [],
        "reads_all": True,
        "sorts": True,
        "related_read_all": ["public.line"],
    }
    assert {"PAGE_READS_ALL", "NO_INDEX_FOR_ORDER"} <= codes(found)
    execute(source, "CREATE INDEX note_in_order ON note (at, id)", "ANALYZE note")
    found = previewed(capsys, "--batch-size", "10")
    assert (found["plan"]["reads_all"], found["plan"]["related_read_all"]) == (
        False,
        ["public.line"],
    )
    assert {"PAGE_READS_ALL", "NO_INDEX_FOR_JOIN"} <= codes(found)
    execute(source, "CREATE INDEX line_note ON line (note)")
    found = previewed(capsys, "--batch-size", "10")
    assert found["plan"] == {
        "indexes": ["note_in_order", "line_note"],
        "reads_all": False,
        "sorts": False,
        "related_read_all": [],
    }
    assert not codes(found) & {"PAGE_READS_ALL", "NO_INDEX_FOR_ORDER", "NO_INDEX_FOR_JOIN"}


def test_it_sees_the_indexes_of_partitions(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    execute(
        source,
        "CREATE TABLE parted (id integer, at timestamptz, PRIMARY KEY (at, id)) PARTITION BY RANGE (at)",
        "CREATE TABLE p1 PARTITION OF parted FOR VALUES FROM (MINVALUE) TO ('2020-03-01Z')",
        "CREATE TABLE p2 PARTITION OF parted FOR VALUES FROM ('2020-03-01Z') TO (MAXVALUE)",
        "INSERT INTO parted SELECT id, at FROM note",
        "ANALYZE parted",
    )
    capsys.readouterr()
    assert run(["preview", "public.parted", "--batch-size", "10", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert set(plan["indexes"]) <= {"p1_pkey", "p2_pkey"} != set()
    assert not plan["reads_all"]


def test_what_cannot_be_counted_in_time_is_estimated_and_said_so(
    source: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(source, "CREATE INDEX ON note (at, id)")

    def slow(opening: Opening) -> sql.Composed:
        return extent_query(opening) + sql.SQL(" AND pg_sleep(0.001) IS NOT NULL")

    monkeypatch.setattr(previewing, "extent_query", slow)
    monkeypatch.setattr(previewing, "COUNT_SECONDS", 0.3)
    found = previewed(capsys)
    assert found["exact"] is False
    # The planner makes less of a table than there is when a condition tells it nothing.
    assert 0 < found["roots"] < 6000
    assert found["oldest"] == "2020-01-01 01:00:00+00"
    assert found["newest"] == "2020-07-27 08:00:00+00"
    assert run(["preview", "public.note"]) == 0
    assert "roots    about " in capsys.readouterr().out


def test_nothing_old_enough_is_nothing(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = previewed(capsys, "--after", "36500d")
    assert (found["roots"], found["batches"], found["bytes"]) == (0, 1, 0)
    assert (found["oldest"], found["newest"]) == (None, None)
    assert run(["preview", "public.note", "--after", "36500d"]) == 0


def test_it_writes_nothing_and_needs_no_more_than_select(
    source: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(
        source,
        "DO $$ BEGIN CREATE ROLE preview_reader LOGIN; EXCEPTION WHEN duplicate_object THEN END $$",
        "GRANT SELECT ON note, line TO preview_reader",
    )
    url = psycopg.conninfo.make_conninfo(
        source, user="preview_reader", options="-c default_transaction_read_only=on"
    )
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", url)
    assert previewed(capsys)["roots"] == 5000
    # No control database was made on the way, and no schema of ours.
    assert rows(source, "SELECT 1 FROM pg_namespace WHERE nspname = 'tallystick'") == []


def test_a_kind_that_cannot_be_archived_is_refused_with_its_reason(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = tmp_path / "kinds.toml"
    kinds.write_text('[kinds.bad]\nroot = "public.line"\ntime = "note"\n')
    capsys.readouterr()
    assert run(["preview", "bad", "--kind-file", str(kinds), "--json"]) == 2
    error = json.loads(capsys.readouterr().err)["error"]
    assert (error["code"], error["params"]["cause"]) == ("KIND_REFUSED", "KEY_MISSING")
    assert "public.line has no primary key" in error["message"]


def test_what_is_estimated_comes_from_all_over_the_window(
    source: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The oldest thousand notes have twenty lines each, the others one.
    execute(
        source,
        "TRUNCATE line",
        "INSERT INTO line SELECT id FROM note, generate_series(1, 20) WHERE id <= 1000",
        "INSERT INTO line SELECT id FROM note WHERE id BETWEEN 1001 AND 5000",
        "CREATE INDEX ON note (at, id)",
        "ANALYZE note",
    )
    found = previewed(capsys, "--batch-size", "200")
    assert found["sample"]["pages"] == previewing.PLACES
    # Of the oldest page alone it would be 100,000.
    assert 20_000 <= found["rows"]["public.line"] <= 28_000
    assert run(["preview", "public.note", "--batch-size", "200"]) == 0
    assert "in 5 pages from all over the window" in capsys.readouterr().out
    # The same where the roots are too many to count: by what ANALYZE saw of the times.
    monkeypatch.setattr(
        previewing,
        "extent_query",
        lambda opening: extent_query(opening) + sql.SQL(" AND pg_sleep(0.001) IS NOT NULL"),
    )
    monkeypatch.setattr(previewing, "COUNT_SECONDS", 0.3)
    found = previewed(capsys, "--batch-size", "200")
    assert (found["exact"], found["sample"]["pages"]) == (False, previewing.PLACES)
    lines_per_root = found["sample"]["rows"]["public.line"] / found["sample"]["roots"]
    assert lines_per_root < 8


def test_integer_times_are_shown_as_times(
    empty_database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(
        empty_database,
        "CREATE TABLE note (id integer PRIMARY KEY, at bigint NOT NULL)",
        "INSERT INTO note SELECT n, 1577836800000 + n * 1000 FROM generate_series(0, 9) AS n",
    )
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", empty_database)
    found = previewed(capsys, "--time", "at")
    assert (found["oldest"], found["oldest_time"]) == ("1577836800000", "2020-01-01 00:00:00+00:00")
    assert found["cutoff_time"].startswith("20")
    assert run(["preview", "public.note", "--time", "at"]) == 0
    assert "oldest   2020-01-01 00:00:00+00:00 (1577836800000)" in capsys.readouterr().out


def test_the_zone_of_a_time_without_one_is_shown(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(source, "CREATE TABLE log (id integer PRIMARY KEY, at timestamp NOT NULL)")
    kinds = tmp_path / "kinds.toml"
    kinds.write_text('[kinds.log]\nroot = "public.log"\ntime = "at"\ntime_zone = "Europe/Rome"\n')
    capsys.readouterr()
    assert run(["preview", "log", "--kind-file", str(kinds)]) == 0
    assert "note: public.log.at has no time zone" in capsys.readouterr().out
