"""A root that archives hold more than once comes back once: its newest state and the rows of that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from handlers.cli import run
from shared.errors import Code, Trouble
from shared.restore import newest, restoration
from shared.restore.archives import verified
from shared.restore.newest import Chain, Repeated, repeated
from shared.restore.restoration import Account, Request, restore
from tests.operations.stage import Stage, directory, execute, jobs, plan, plans_due, stage
from tests.restore import shelf
from tests.worlds import one, rows

KINDS = """
[kinds.trips]
root = "public.trip"
key = ["line", "number"]
time = "left_at"
related = ["public.stop", "public.remark"]
"""
TABLES = (
    (
        "CREATE TABLE trip (line text, number integer, left_at timestamptz NOT NULL, note text,"
        " PRIMARY KEY (line, number))"
    ),
    (
        "CREATE TABLE stop (id integer PRIMARY KEY, line text, number integer,"
        " FOREIGN KEY (line, number) REFERENCES trip)"
    ),
    "CREATE TABLE remark (id integer PRIMARY KEY, stop integer REFERENCES stop)",
    (
        "INSERT INTO trip SELECT E'a\\\\b\\tc', n, timestamptz '2021-05-01Z' + n * interval '1 hour', 'old'"
        " FROM generate_series(1, 9) AS n"
    ),
    "INSERT INTO stop SELECT number * 10 + k, line, number FROM trip, generate_series(1, 2) AS k",
    "INSERT INTO remark SELECT id * 10, id FROM stop",
)
# Trip 2 moves ahead after the first batch, with one stop less and a new remark.
MOVE = (
    "DELETE FROM remark WHERE id = 210",
    "DELETE FROM stop WHERE id = 21",
    "UPDATE trip SET left_at = '2021-05-01 08:30Z', note = 'new' WHERE number = 2",
    "INSERT INTO remark VALUES (221, 22)",
)
TABLE_NAMES = ("trip", "stop", "remark")


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    """An archive of ten roots, nine of them different."""
    found = stage(database, volume_root, KINDS, *TABLES)
    plan(found, "trips", batch_size=3)
    found.tick()
    execute(database, *MOVE)
    found.until_idle()
    assert jobs(found)[-1].roots == 10
    return found


@pytest.fixture
def target(empty_database: str) -> str:
    return empty_database


def brought(here: Stage, target: str, **wanted: Any) -> Account:  # noqa: ANN401 - of a request
    return restore(
        [shelf.place(here, job) for job in jobs(here)],
        target,
        Request(create_tables=True, **wanted),
    )


def texts(dsn: str, table: str) -> list[str]:
    found = rows(dsn, f"SELECT t::text AS row FROM {table} AS t ORDER BY 1")
    return [each["row"] for each in found]


def assert_as_the_source(here: Stage, target: str) -> None:
    for table in TABLE_NAMES:
        assert texts(target, table) == texts(here.source, table), table


def test_a_restore_takes_the_newest_state_and_says_so(here: Stage, target: str) -> None:
    account = brought(here, target)
    assert_as_the_source(here, target)
    (said,) = [each for each in account.warnings if each.code == "RESTORE_ROOTS_REPEATED"]
    assert said.params == {"roots": 1, "older": 1, "keys": ["a\\b\tc,2"]}


def test_a_dry_run_promises_what_the_run_then_does(here: Stage, target: str) -> None:
    promised = brought(here, target, dry_run=True).rows
    assert (
        brought(here, target).rows
        == promised
        == {
            "public.trip": (9, 0),
            "public.stop": (17, 0),
            "public.remark": (18, 0),
        }
    )


def test_one_root_by_its_key_comes_once(here: Stage, target: str) -> None:
    account = brought(here, target, keys=('"a\\b\tc",2',))
    assert account.keys_missing == []
    assert account.rows["public.trip"] == (1, 0)
    assert one(target, "SELECT note FROM trip") == "new"


def test_restoring_again_goes_on_where_it_stopped(here: Stage, target: str) -> None:
    brought(here, target)
    again = brought(here, target)
    assert (again.batches_restored, again.batches_skipped) == (0, 4)
    assert_as_the_source(here, target)


def test_of_a_kind_that_is_archived_whole_each_time_the_newest_job_is_taken(
    here: Stage, target: str
) -> None:
    execute(here.control, "UPDATE tallystick.plan SET scope = 'all'")
    execute(here.source, "UPDATE trip SET note = 'newest' WHERE number = 5")
    execute(here.source, "DELETE FROM remark", "DELETE FROM stop WHERE number = 7")
    execute(here.source, "DELETE FROM trip WHERE number = 7")
    plans_due(here)
    here.until_idle()
    assert len(jobs(here)) == 2
    brought(here, target)
    # What was deleted at the source is in the older archive alone, and comes from there.
    assert one(target, "SELECT count(*) FROM trip") == 9
    assert one(target, "SELECT note FROM trip WHERE number = 5") == "newest"
    assert one(target, "SELECT count(*) FROM stop WHERE number = 7") == 2
    assert one(target, "SELECT count(*) FROM remark WHERE stop = 71") == 1
    assert one(target, "SELECT count(*) FROM remark WHERE stop = 81") == 0


def test_without_the_search_the_second_state_ends_the_restore(
    here: Stage, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def blind(_: object) -> Iterator[Repeated]:
        yield Repeated(0, 0, ())

    monkeypatch.setattr(restoration, "repeated", blind)
    with pytest.raises(Trouble) as ended:
        brought(here, target)
    assert ended.value.code is Code.RESTORE_CONFLICT


def test_a_file_that_changes_while_it_is_searched_stops_the_restore(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = verified(shelf.place(here))
    digests = [batch.sha256 for batch in archive.batches]
    chain = Chain(archive.path, archive.manifest, (digests[0], digests[0]))
    with pytest.raises(Trouble) as ended, repeated([chain]):
        pass
    assert ended.value.params["cause"] == "changed"


def test_long_keys_are_told_apart(here: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "KEY_BYTES", 2)
    archive = verified(shelf.place(here))
    digests = tuple(batch.sha256 for batch in archive.batches)
    with repeated([Chain(archive.path, archive.manifest, digests)]) as found:
        assert (found.roots, found.older, found.keys) == (1, 1, ())
        older = found.of(0)(1)
        assert older is not None
        assert older(("a\\b\tc", "2"))
        assert not older(("a\\b\tc", "3"))
        assert found.of(0)(4) is None


Shell = Callable[..., tuple[str, str]]


@pytest.fixture
def shell(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Shell:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def asked(*arguments: str) -> tuple[str, str]:
        capsys.readouterr()
        assert run(list(arguments)) == 0
        done = capsys.readouterr()
        return done.out, done.err

    return asked


def test_cat_prints_each_row_of_a_root_once(here: Stage, shell: Shell) -> None:
    place = str(directory(here, jobs(here)[-1]))
    out, err = shell("archive", "cat", place, "--table", "trip", "--columns", "number,note")
    lines = sorted(out.splitlines()[1:])
    assert lines == ["1,old", "2,new", *(f"{n},old" for n in range(3, 10))]
    assert "1 roots more than once" in err
    out, _ = shell(
        "archive", "cat", place, "--table", "remark", "--columns", "id", "--format", "jsonl"
    )
    found = {json.loads(line)["id"] for line in out.splitlines()}
    assert found == {each["id"] for each in rows(here.source, "SELECT id FROM remark")}
    assert len(out.splitlines()) == 18


def test_a_query_counts_each_root_once(here: Stage, shell: Shell) -> None:
    pytest.importorskip("duckdb")
    place = str(directory(here, jobs(here)[-1]))
    asked = "SELECT (SELECT count(*) FROM trip) AS trips, (SELECT count(*) FROM stop) AS stops"
    out, err = shell("archive", "query", place, asked, "--format", "csv")
    assert out.splitlines()[1] == "9,17"
    assert "1 roots more than once" in err


@pytest.mark.parametrize("index", [True, False])
def test_find_shows_every_state_and_says_which_is_the_newest(
    here: Stage, shell: Shell, *, index: bool
) -> None:
    place = str(directory(here, jobs(here)[-1]))
    options = [] if index else ["--no-index"]
    out, err = shell("archive", "find", place, "a\\b\tc", "2", "--json", *options)
    found = json.loads(out)["places"]
    assert [each["newest"] for each in found] == [True, False]
    assert [each["rows"]["public.trip"][0]["note"] for each in found] == ["new", "old"]
    assert "2 times" in err
