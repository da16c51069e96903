"""Rows that come late are never reported as none because others were deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from handlers.cli import run
from shared.archive import opening
from shared.archive.opening import late_rows
from tests.operations.stage import Stage, events, execute, jobs, plan, plans_due, stage

NOTES = '[kinds.notes]\nroot = "public.note"\ntime = "at"\n'
ARRIVE = "INSERT INTO note SELECT i, '2020-01-01'::date + i FROM generate_series(101, 107) AS i"


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    """Ten rows that one job has archived."""
    found = stage(
        database,
        volume_root,
        NOTES,
        "CREATE TABLE note (id integer PRIMARY KEY, at date)",
        "INSERT INTO note SELECT i, '2020-06-01'::date + i FROM generate_series(1, 10) AS i",
    )
    plan(found, "notes", batch_size=4, scope="new")
    found.until_idle()
    return found


def looked(here: Stage, *statements: str) -> tuple[Any, Any]:
    """Change the source, run the next job, and return what it knows of late rows."""
    execute(here.source, *statements)
    plans_due(here)
    here.until_idle()
    found = jobs(here)[-1].opening
    assert found is not None
    return found["late_rows"], found["late_unknown"]


def told(here: Stage) -> list[tuple[str, Any]]:
    return [
        (each["type"], each["reason_params"].get("cause"))
        for each in events(here)
        if each["reason_code"] == "LATE_ROWS"
    ]


def test_fewer_rows_than_were_archived_leave_it_unknown_whether_some_came_late(
    here: Stage,
) -> None:
    found = looked(here, "DELETE FROM note", ARRIVE)
    assert found == (None, {"cause": "fewer", "there": 7, "archived": 10})
    assert told(here) == [("late-rows-unknown", "fewer")]


def test_more_rows_than_were_archived_are_late_at_least(here: Stage) -> None:
    assert looked(here, "DELETE FROM note WHERE id <= 3", ARRIVE) == (4, None)
    assert told(here) == [("late-rows", None)]


def test_a_count_that_takes_too_long_leaves_it_unknown_and_says_so(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from psycopg import sql

    slow = sql.SQL("SELECT 0 AS rows FROM pg_sleep(30)").format()
    monkeypatch.setattr(opening, "count_query", lambda *_: slow)
    monkeypatch.setattr(opening, "COUNT_SECONDS", 0.1)
    assert looked(here) == (None, {"cause": "timeout"})
    assert told(here) == [("late-rows-unknown", "timeout")]


def test_every_place_that_shows_late_rows_says_that_they_are_unknown(
    here: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    looked(here, "DELETE FROM note", ARRIVE)
    kinds = tmp_path / "kinds.toml"
    kinds.write_text(NOTES)
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", here.control)
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", here.source)
    monkeypatch.setenv("TALLYSTICK_KINDS_FILE", str(kinds))

    def asked(*arguments: str) -> Any:  # noqa: ANN401 - JSON
        capsys.readouterr()
        run([*arguments, "--json"])
        return json.loads(capsys.readouterr().out)

    job = str(jobs(here)[-1].id)
    (item,) = asked("plan", "list")["items"]
    shown = asked("jobs", "show", job)
    for each in (item, shown):
        assert each["late_rows"] is None
        assert "not known" in each["late_unknown"]["message"]
    findings = [each for each in asked("doctor")["findings"] if each["code"] == "LATE_ROWS"]
    assert [each["severity"] for each in findings] == ["info"]
    for command in (("plan", "list"), ("jobs", "show", job)):
        run(list(command))
        assert "not known" in capsys.readouterr().out


def test_the_difference_is_only_told_where_it_proves_something() -> None:
    assert late_rows(12, 10) == (2, None)
    assert late_rows(10, 10) == (0, None)
    late, unknown = late_rows(9, 10)
    assert late is None
    assert unknown is not None


def test_with_the_difference_cut_at_zero_late_rows_hide_behind_deletes(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "late_rows", lambda there, before: (max(0, there - before), None))
    assert looked(here, "DELETE FROM note", ARRIVE) == (0, None)
    assert told(here) == []
