"""A job reads the tables that it began with: another table under the same name is noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handlers.cli import run
from shared.archive import file, shape
from shared.archive.file import page_bytes
from shared.errors import Code
from shared.jobs.model import Ending, State
from shared.jobs.rules import Action
from tests.operations.stage import Stage, act, due_now, execute, only_job, plan, stage
from tests.worlds import rows

KINDS = '[kinds.logs]\nroot = "public.log"\ntime = "day"\nrelated = ["public.entry"]\n'
TABLES = (
    "CREATE TABLE log (id integer PRIMARY KEY, day date NOT NULL)",
    "CREATE TABLE entry (id integer PRIMARY KEY, log integer REFERENCES log)",
    "INSERT INTO log SELECT n, date '2020-01-01' + n FROM generate_series(1, 9) AS n",
    "INSERT INTO entry SELECT n, n FROM generate_series(1, 9) AS n",
)
LOG = (
    "ALTER TABLE entry DROP CONSTRAINT entry_log_fkey",
    "ALTER TABLE log RENAME TO log_away",
    "CREATE TABLE log (LIKE log_away INCLUDING ALL)",
    "INSERT INTO log SELECT n, date '2020-01-01' + n FROM generate_series(4, 20) AS n",
    "DELETE FROM entry WHERE log < 4",
    "ALTER TABLE entry ADD FOREIGN KEY (log) REFERENCES log",
)
ENTRY = (
    "ALTER TABLE entry RENAME TO entry_away",
    "CREATE TABLE entry (LIKE entry_away INCLUDING ALL, FOREIGN KEY (log) REFERENCES log)",
)
# What leaves a table the one it was.
HARMLESS = {
    "rewritten": ("VACUUM FULL log", "CLUSTER entry USING entry_pkey"),
    "renamed and renamed back": (
        "ALTER TABLE log RENAME TO log_away",
        "ALTER TABLE log_away RENAME TO log",
    ),
    "emptied": ("TRUNCATE entry",),
    "indexed": ("CREATE INDEX ON log (day, id)", "REINDEX TABLE log"),
}


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    found = stage(database, volume_root, KINDS, *TABLES)
    plan(found, "logs", batch_size=3)
    assert found.tick().outcome.ending is Ending.PROGRESSED
    return found


@pytest.mark.parametrize("exchange", [LOG, ENTRY], ids=["the root", "a related table"])
def test_a_table_that_was_exchanged_in_mid_job_ends_it(
    here: Stage, exchange: tuple[str, ...]
) -> None:
    execute(here.source, *exchange)
    outcome = here.tick().outcome
    assert (outcome.ending, outcome.code) == (Ending.FAILED, Code.SCHEMA_CHANGED)
    assert outcome.params["cause"] == "replaced"
    assert outcome.params["table"] == ("public.log" if exchange is LOG else "public.entry")


def test_the_table_that_comes_back_is_gone_on_with(here: Stage) -> None:
    execute(here.source, *ENTRY)
    assert here.tick().outcome.ending is Ending.FAILED
    execute(here.source, "DROP TABLE entry", "ALTER TABLE entry_away RENAME TO entry")
    act(here, only_job(here), Action.RETRY)
    due_now(here)
    here.until_idle()
    assert (only_job(here).state, only_job(here).roots) == (State.SUCCEEDED, 9)


@pytest.mark.parametrize("change", HARMLESS)
def test_what_leaves_a_table_the_one_it_was_stops_no_job(here: Stage, change: str) -> None:
    execute(here.source, *HARMLESS[change])
    here.until_idle()
    assert (only_job(here).state, only_job(here).roots) == (State.SUCCEEDED, 9)


def test_partitions_come_and_go_in_mid_job(database: str, volume_root: Path) -> None:
    here = stage(
        database,
        volume_root,
        '[kinds.logs]\nroot = "public.log"\ntime = "day"\n',
        "CREATE TABLE log (id integer, day date, PRIMARY KEY (day, id)) PARTITION BY RANGE (day)",
        "CREATE TABLE log_a PARTITION OF log FOR VALUES FROM ('2020-01-01') TO ('2020-02-01')",
        "INSERT INTO log SELECT n, date '2020-01-01' + n FROM generate_series(1, 9) AS n",
    )
    plan(here, "logs", batch_size=3)
    here.tick()
    execute(
        database,
        "CREATE TABLE log_b PARTITION OF log FOR VALUES FROM ('2030-02-01') TO ('2030-03-01')",
        "ALTER TABLE log DETACH PARTITION log_a",
        "ALTER TABLE log ATTACH PARTITION log_a FOR VALUES FROM ('2020-01-01') TO ('2020-02-01')",
    )
    here.until_idle()
    assert (only_job(here).state, only_job(here).roots) == (State.SUCCEEDED, 9)


def test_without_the_identity_later_pages_come_from_the_other_table(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(before: shape.Shape, now: shape.Shape) -> shape.Difference | None:
        return difference(_nameless(before), _nameless(now))

    difference = shape.difference
    monkeypatch.setattr(file, "difference", blind)
    execute(here.source, *LOG)
    here.until_idle()
    # 3 rows of the first table, 17 of the second.
    assert (only_job(here).state, only_job(here).roots) == (State.SUCCEEDED, 20)


def _nameless(found: shape.Shape) -> shape.Shape:
    relations = tuple(replace(each, identity=None) for each in found.relations)
    return replace(found, relations=relations)


def test_an_export_notices_within_one_run(
    empty_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    execute(empty_database, *TABLES)
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", empty_database)
    monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))

    def exchanged(connection: Any, reading: Any, page: Any) -> Any:  # noqa: ANN401
        if page.header.seq == 2 and not rows(
            empty_database, "SELECT 1 FROM pg_class WHERE relname = 'log_away'"
        ):
            execute(empty_database, *LOG)
        return page_bytes(connection, reading, page)

    monkeypatch.setattr("shared.operations.export.page_bytes", exchanged)
    asked = ["archive", "export", "public.log", "--until", "2021-01-01", "--batch-size", "3"]
    assert run([*asked, "--directory", str(tmp_path / "logs"), "--json"]) == 1
    error = json.loads(capsys.readouterr().err.splitlines()[-1])["error"]
    assert (error["code"], error["params"]["cause"]) == ("SOURCE_FAILED", "replaced")
    assert "export into another directory" in error["next"]
