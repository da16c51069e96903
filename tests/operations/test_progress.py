"""How far plans are: what is left at the source, how long it takes, and that no source holds up the list."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from shared import progress
from shared.archive import backlog
from shared.errors import Code
from shared.jobs.model import Ending
from shared.plans import planning
from shared.plans.outlook import Standing
from shared.progress import Outlook
from tests import worlds
from tests.golden.scenario import Shell, deployed
from tests.operations.stage import Stage, execute, plan, plans_due, stage
from tests.worlds import SIGNED, control

KINDS = """
[kinds.notes]
root = "public.note"
time = "at"
"""
DDL = (
    "CREATE TABLE note (id integer PRIMARY KEY, at date)",
    "CREATE INDEX ON note (at, id)",
    "INSERT INTO note SELECT i, '2020-01-01'::date + i FROM generate_series(1, 50) AS i",
    "ANALYZE note",
)
DAY = 86400.0


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    """Fifty rows of fifty days, a plan of twenty a batch that is due."""
    made = stage(database, volume_root, KINDS, *DDL)
    plan(made, "notes", batch_size=20)
    return made


def stands(here: Stage, *, ask: bool = True) -> Outlook:
    with closing(control(here.control)) as db:
        (found,) = progress.of_plans(db, here.node, None, ask=ask)
    return found


def test_what_is_left_is_followed_to_the_end(here: Stage) -> None:
    first = stands(here)
    assert first.backlog == backlog.Backlog(50, exact=True)
    assert (first.ticks, first.behind_seconds, first.drain_seconds) == (3, None, None)
    assert here.tick().outcome.ending is Ending.PROGRESSED
    second = stands(here)
    assert second.backlog == backlog.Backlog(30, exact=True)
    assert second.behind_seconds is not None
    assert second.behind_seconds > 365 * DAY
    assert second.roots_per_second is None
    assert here.tick().outcome.ending is Ending.PROGRESSED
    third = stands(here)
    assert third.roots_per_second is not None
    assert third.drain_seconds == pytest.approx(10 / third.roots_per_second)
    here.until_idle()
    last = stands(here)
    assert last.backlog == backlog.Backlog(0, exact=True)
    assert (last.ticks, last.behind_seconds, last.drain_seconds) == (0, 0.0, 0.0)
    assert last.reason.code is Standing.NEXT_RUN_LATER


def test_between_jobs_what_has_come_since_is_left_and_what_came_late_is_not(here: Stage) -> None:
    here.until_idle()
    execute(
        here.source,
        "INSERT INTO note SELECT 1000 + i, '2020-06-01' FROM generate_series(1, 3) AS i",
    )
    execute(here.source, "INSERT INTO note VALUES (2000, '2020-01-01')")
    assert stands(here).backlog == backlog.Backlog(3, exact=True)
    plan(here, "notes", batch_size=20, scope="all")
    assert stands(here).backlog == backlog.Backlog(54, exact=True)
    assert stands(here).ticks == 3


def test_a_job_goes_on_by_its_own_definition_and_a_plan_by_the_present_one(here: Stage) -> None:
    here.tick()
    unknown = here.changed(kinds=())
    assert stands(unknown).backlog == backlog.Backlog(30, exact=True)
    here.until_idle()
    plans_due(here)
    found = stands(unknown)
    assert found.backlog is None
    assert found.unknown is not None
    assert found.unknown.code is Code.KIND_UNKNOWN


def test_beyond_a_bound_rows_are_estimated(here: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "COUNT_MAX", 9)
    found = stands(here).backlog
    assert found is not None
    assert not found.exact
    assert found.roots == pytest.approx(50, abs=5)


def test_a_source_is_not_asked_where_that_is_not_wanted(here: Stage) -> None:
    found = stands(here, ask=False)
    assert (found.backlog, found.unknown) == (None, None)
    assert found.volume_bytes_left == here.node.volume_max_bytes


def test_a_table_that_does_not_fit_any_more_is_told_as_what_is_not_known(here: Stage) -> None:
    execute(here.source, "ALTER TABLE note RENAME COLUMN at TO moment")
    found = stands(here)
    assert found.backlog is None
    assert found.unknown is not None
    assert found.unknown.code is Code.SOURCE_FAILED


def test_a_locked_table_is_waited_for_no_longer_than_the_list_may_take(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "ASKING_SECONDS", 0.5)
    from tests.operations.stage import locked

    with locked(here.source, "note"):
        found = stands(here)
    assert found.unknown is not None
    assert found.unknown.params["cause"] in {"timeout", "lock-timeout"}


@contextmanager
def deaf() -> Iterator[tuple[int, list[socket.socket]]]:
    """Listen as a server would, take every connection, and never say a word."""
    taken: list[socket.socket] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def take() -> None:
            while True:
                try:
                    taken.append(listener.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        yield listener.getsockname()[1], taken
        listener.shutdown(socket.SHUT_RDWR)
    for each in taken:
        each.close()


def test_a_source_that_does_not_answer_is_tried_once_for_all_plans(
    here: Stage, database: str
) -> None:
    with closing(control(database)) as db:
        for number in range(5):
            name = f"more{number}"
            worlds.a_policy(db, name)
            wanted = planning.PlanChange("archive", name, here.storage_id, enabled=True)
            planning.put(db, "default", wanted, SIGNED)
    (notes,) = here.node.kinds
    kinds = (notes, *(type(notes)(f"more{i}", None, notes.definition) for i in range(5)))
    with deaf() as (port, taken):
        away = f"postgresql://me:topsecret@127.0.0.1:{port}/x?sslmode=disable"
        node = here.changed(kinds=kinds, sources={"control": database, "application": away}).node
        with closing(control(database)) as db:
            found = progress.of_plans(db, node, None, ask=True)
    assert len(taken) == 1
    assert len(found) == 6
    for each in found:
        assert each.unknown is not None
        assert each.unknown.params["cause"] == "unreachable"
        assert "topsecret" not in str(each.unknown)


def test_the_list_is_good_and_says_what_is_not_known_when_the_source_is_away(
    database: str,
    volume_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shell = Shell(capsys)
    deployed(shell, database, volume_root, monkeypatch.setenv)
    signed = ("--actor", "tester", "--reason", "a test needs it")
    assert shell("policy", "set", "orders", "--after", "365d", *signed).code == 0
    assert shell("plan", "set", "orders", "--enable", *signed).code == 0
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", "postgresql://127.0.0.1:1/x")
    answered = shell("plan", "list", "--json")
    assert answered.code == 0
    (item,) = json.loads(answered.out)["items"]
    assert item["outlook"]["roots_to_go"] is None
    assert item["outlook"]["unknown"]["code"] == "SOURCE_FAILED"
    text = shell("plan", "list").out
    assert " ? " in text
    assert "How much is left is not known" in text
    quiet = json.loads(shell("plan", "list", "--no-source", "--json").out)["items"][0]["outlook"]
    assert quiet["unknown"] is None
