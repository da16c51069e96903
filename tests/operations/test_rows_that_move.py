"""Rows that change their place while a job runs: the final batch counts its window, and says what differs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from handlers.cli import run
from shared.archive import count
from shared.archive.count import Count, WindowRows
from shared.archive.file import page_bytes
from shared.errors import Code, Passing
from shared.jobs.model import Ending, State
from tests.operations.stage import Stage, assert_sound, events, execute, only_job, plan, stage

KINDS = '[kinds.visits]\nroot = "public.visit"\ntime = "seen"\nrelated = ["public.page"]\n'
TABLES = (
    "CREATE TABLE visit (id bigint PRIMARY KEY, seen timestamptz NOT NULL)",
    "CREATE INDEX ON visit (seen, id)",
    (
        "CREATE TABLE page (id bigint PRIMARY KEY,"
        " visit bigint REFERENCES visit ON UPDATE CASCADE ON DELETE CASCADE)"
    ),
    (
        "INSERT INTO visit SELECT n, timestamptz '2020-03-01Z' + n * interval '1 hour'"
        " FROM generate_series(1, 12) AS n"
    ),
    "INSERT INTO page SELECT n * 10 + k, n FROM generate_series(1, 12) AS n, generate_series(1, 2) AS k",
)
BEHIND = "UPDATE visit SET seen = '2020-03-01 00:10Z' WHERE id = 11"
ROOT, RELATED = "public.visit", "public.page"

# What somebody does after the first of three batches: archived, there and rows of each table at the end,
# and what must be said of them.
MOVES: dict[str, tuple[str, dict[str, tuple[int, int]], set[tuple[str, str]]]] = {
    "nothing": ("SELECT 1", {ROOT: (12, 12), RELATED: (24, 24)}, set()),
    "ahead of the cursor": (
        "UPDATE visit SET seen = '2020-03-01 23:30Z' WHERE id = 2",
        {ROOT: (13, 12), RELATED: (26, 24)},
        {("fewer", ROOT), ("fewer", RELATED)},
    ),
    "behind the cursor": (
        BEHIND,
        {ROOT: (11, 12), RELATED: (22, 24)},
        {("missing", ROOT), ("missing", RELATED)},
    ),
    "another key": (
        "UPDATE visit SET id = 100, seen = '2020-03-01 22:00Z' WHERE id = 3",
        {ROOT: (13, 12), RELATED: (26, 24)},
        {("fewer", ROOT), ("fewer", RELATED)},
    ),
    "children to a root that was archived": (
        "UPDATE page SET visit = 1 WHERE id IN (101, 102)",
        {ROOT: (12, 12), RELATED: (22, 24)},
        {("missing", RELATED)},
    ),
    "deleted before they were read": (
        "DELETE FROM visit WHERE id > 9",
        {ROOT: (9, 9), RELATED: (18, 18)},
        {("unread", ROOT)},
    ),
}


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    found = stage(database, volume_root, KINDS, *TABLES)
    plan(found, "visits", batch_size=4)
    assert found.tick().outcome.ending is Ending.PROGRESSED
    return found


def told(here: Stage) -> set[tuple[str, str]]:
    found = [each for each in events(here) if each["reason_code"] == "WINDOW_COUNT"]
    return {(each["reason_params"]["cause"], each["reason_params"]["table"]) for each in found}


def counted(here: Stage) -> dict[str, tuple[int, int | None]]:
    job = only_job(here)
    assert job.state is State.SUCCEEDED
    assert job.checkpoint is not None
    return {each["table"]: (each["archived"], each["there"]) for each in job.checkpoint["window"]}


@pytest.mark.parametrize("move", MOVES)
def test_the_end_of_a_job_says_which_rows_moved_between_its_pages(here: Stage, move: str) -> None:
    statement, counts, said = MOVES[move]
    execute(here.source, statement)
    here.until_idle()
    assert counted(here) == counts
    assert told(here) == said


def test_a_partition_that_is_detached_with_rows_that_nobody_has_read_is_noticed(
    database: str, volume_root: Path
) -> None:
    here = stage(
        database,
        volume_root,
        '[kinds.visits]\nroot = "public.visit"\ntime = "seen"\n',
        "CREATE TABLE visit (id bigint, seen date, PRIMARY KEY (seen, id)) PARTITION BY RANGE (seen)",
        "CREATE TABLE visit_a PARTITION OF visit FOR VALUES FROM ('2020-01-01') TO ('2020-02-01')",
        "CREATE TABLE visit_b PARTITION OF visit FOR VALUES FROM ('2020-02-01') TO ('2020-03-01')",
        "INSERT INTO visit SELECT n, date '2020-01-01' + n * 3 FROM generate_series(1, 16) AS n",
    )
    plan(here, "visits", batch_size=5)
    here.tick()
    execute(database, "ALTER TABLE visit DETACH PARTITION visit_b")
    here.until_idle()
    assert told(here) == {("unread", ROOT)}


def test_a_count_that_takes_too_long_is_said_as_unknown_and_costs_the_job_nothing(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = sql.SQL("SELECT 0 AS rows FROM pg_sleep({})").format(60)
    monkeypatch.setattr(count, "window_count_query", lambda *_: slow)
    monkeypatch.setattr(count, "COUNT_SECONDS", 0.1)
    here.until_idle()
    assert counted(here) == {ROOT: (12, None), RELATED: (24, None)}
    found = [each for each in events(here) if each["reason_code"] == "WINDOW_COUNT"]
    assert {each["type"] for each in found} == {"window-not-counted"}
    assert {each["reason_params"]["why"] for each in found} == {"timeout"}


def test_a_count_that_the_server_gives_up_fails_no_job(
    database: str, volume_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a standby a recovery conflict ends what reads for long, and a count is not worth a failure."""

    def conflict(*_: object) -> int:
        raise Passing(Code.EXPORT_FAILED, cause="recovery-conflict")

    monkeypatch.setattr(count, "_counted", conflict)
    made = stage(database, volume_root, KINDS, *TABLES)
    plan(made, "visits", batch_size=5)
    made.until_idle()
    job = only_job(made)
    assert (job.state, job.failures) == (State.SUCCEEDED, 0)
    assert job.opening is not None
    assert job.opening["roots_at_start"] is None


def test_without_the_count_a_row_that_moved_is_missing_and_nothing_says_so(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.operations.archive.count.events", lambda *_: ())
    execute(here.source, BEHIND)
    here.until_idle()
    job = only_job(here)
    assert assert_sound(here, job)
    assert (job.state, job.roots) == (State.SUCCEEDED, 11)
    assert events(here) == []


def test_a_count_that_is_taken_for_equal_hides_a_row_that_is_missing(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = count.compared
    monkeypatch.setattr(count, "compared", lambda rows, _: compared(rows, WindowRows(rows)))
    execute(here.source, BEHIND)
    here.until_idle()
    assert only_job(here).roots == 11
    assert told(here) == {("unread", ROOT)}


def test_a_job_of_one_batch_needs_no_count(
    database: str, volume_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = stage(database, volume_root, KINDS, *TABLES)
    plan(here, "visits", batch_size=50)
    monkeypatch.setattr(count, "COUNT_SECONDS", 0.0)
    here.until_idle()
    assert counted(here) == {ROOT: (12, 12), RELATED: (24, 24)}
    assert told(here) == set()


def test_jobs_show_has_the_counts(
    here: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(here.source, BEHIND)
    here.until_idle()
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", here.control)
    job = str(only_job(here).id)
    assert run(["jobs", "show", job, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["window"][0] == {"table": ROOT, "archived": 11, "there": 12, "why": None}
    assert found["roots_at_start"] == 12
    assert run(["jobs", "show", job]) == 0
    assert "11 archived, 12 in the window at the end" in capsys.readouterr().out


def test_an_export_counts_its_window_too(
    empty_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    execute(empty_database, *TABLES)
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", empty_database)
    monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))
    moved = _after_first_page(
        monkeypatch,
        lambda: execute(empty_database, BEHIND),
    )
    asked = ["archive", "export", "public.visit", "--until", "2021-01-01", "--batch-size", "4"]
    place = ["--directory", str(tmp_path / "visits"), "--json"]
    assert run([*asked, *place]) == 0
    assert moved
    found = json.loads(capsys.readouterr().out)
    assert found["window"][0] == {"table": ROOT, "archived": 11, "there": 12, "why": None}
    causes = {(each["params"]["cause"], each["params"]["table"]) for each in found["warnings"]}
    assert causes == {("missing", ROOT), ("missing", RELATED)}
    # A finished export is not counted again: the source has moved on.
    assert run([*asked, *place]) == 0
    assert json.loads(capsys.readouterr().out)["window"] is None


def _after_first_page(monkeypatch: pytest.MonkeyPatch, move: Callable[[], None]) -> list[Any]:
    """Have something happen between the first page of an export and the second."""
    called: list[Any] = []

    def moving(connection: psycopg.Connection[Any], reading: Any, page: Any) -> Any:  # noqa: ANN401
        if page.header.seq == 2 and not called:
            called.append(page)
            move()
        return page_bytes(connection, reading, page)

    monkeypatch.setattr("shared.operations.export.page_bytes", moving)
    return called


def test_what_is_found_is_never_more_than_the_counts_prove() -> None:
    archived = {"r": 10, "c": 20}
    assert count.findings(count.compared(archived, WindowRows(archived)), 10) == []
    # Deleted after it was archived: nothing left unread.
    found = count.findings(count.compared(archived, WindowRows({"r": 9, "c": 20})), 10)
    assert [each["cause"] for each in found] == ["fewer"]
    assert [each["cause"] for each in count.findings([Count("r", 10, None, "timeout")], 99)] == [
        "unknown"
    ]
