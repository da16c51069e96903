"""What an abandoned job had archived is not counted twice: the archive that is whole is taken."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from handlers.cli import run
from shared.jobs.model import State
from shared.jobs.rules import Action
from shared.restore import archives, restoration
from shared.restore.overlap import Reach, left_out, reach_of
from shared.restore.restoration import Account, Request, restore
from tests.operations.stage import Stage, act, execute, jobs, plan, plans_due, stage
from tests.worlds import one

KINDS = '[kinds.calls]\nroot = "public.call"\ntime = "made"\nrelated = ["public.leg"]\n'
TABLES = (
    "CREATE TABLE call (id integer PRIMARY KEY, made timestamptz NOT NULL)",
    "CREATE TABLE leg (id integer PRIMARY KEY, call integer REFERENCES call)",
    (
        "INSERT INTO call SELECT n, timestamptz '2021-02-01Z' + n * interval '1 h'"
        " FROM generate_series(1, 12) AS n"
    ),
    "INSERT INTO leg SELECT n, n FROM generate_series(1, 12) AS n",
)


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    """A job abandoned after two of four batches, and one that archived everything; call 2 is gone since."""
    found = stage(database, volume_root, KINDS, *TABLES)
    plan(found, "calls", batch_size=3, scope="new")
    found.tick()
    found.tick()
    act(found, jobs(found)[0], Action.ABANDON)
    execute(database, "DELETE FROM leg WHERE id = 2", "DELETE FROM call WHERE id = 2")
    plans_due(found)
    found.until_idle()
    assert [job.state for job in jobs(found)] == [State.ABANDONED, State.SUCCEEDED]
    return found


def more(here: Stage, *statements: str) -> None:
    execute(here.source, *statements)
    plans_due(here)
    here.until_idle()


def brought(here: Stage, target: str, *, dry_run: bool = False) -> Account:
    request = Request(create_tables=True, dry_run=dry_run)
    return restore(archives.places(here.root), target, request)


def test_a_kind_comes_back_once_and_the_dry_run_says_so_before(
    here: Stage, empty_database: str
) -> None:
    promised = brought(here, empty_database, dry_run=True)
    account = brought(here, empty_database)
    assert promised.rows == account.rows == {"public.call": (11, 0), "public.leg": (11, 0)}
    for each in (promised, account):
        (said,) = each.warnings
        assert (said.code, said.params["roots"]) == ("RESTORE_ARCHIVE_LEFT_OUT", 6)
        assert said.params["job"] == str(jobs(here)[0].id)
        assert said.params["by"] == str(jobs(here)[1].id)
    assert one(empty_database, "SELECT count(*) FROM call WHERE id = 2") == 0


def test_cat_and_query_take_the_whole_archive_and_say_so(
    here: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["archive", "cat", str(here.root), "--table", "call", "--columns", "id"]) == 0
    done = capsys.readouterr()
    assert sorted(map(int, done.out.splitlines()[1:])) == [1, *range(3, 13)]
    assert "abandoned after 2 batches" in done.err
    pytest.importorskip("duckdb")
    asked = ["archive", "query", str(here.root), "SELECT count(*) FROM leg", "--format", "csv"]
    assert run(asked) == 0
    assert capsys.readouterr().out.splitlines()[1] == "11"


def test_find_shows_the_state_of_the_abandoned_archive_too(
    here: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["archive", "find", str(here.root), "1", "--no-index", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["places"]
    assert [each["job"] for each in found] == [str(job.id) for job in reversed(jobs(here))]
    # Deleted at the source before its window was archived again.
    assert run(["archive", "find", str(here.root), "2", "--no-index", "--json"]) == 0


def test_the_abandoned_archive_by_itself_can_be_restored(here: Stage, empty_database: str) -> None:
    first = archives.places(here.root)[0]
    account = restore([first], empty_database, Request(create_tables=True))
    assert account.rows["public.call"] == (6, 0)


def test_while_no_later_job_has_ended_both_are_taken_and_no_root_twice(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = stage(database, volume_root, KINDS, *TABLES)
    plan(here, "calls", batch_size=3, scope="new")
    here.tick()
    here.tick()
    act(here, jobs(here)[0], Action.ABANDON)
    plans_due(here)
    here.tick()
    account = brought(here, empty_database)
    assert account.rows["public.call"] == (6, 0)
    assert [str(each.code) for each in account.warnings] == ["RESTORE_ROOTS_REPEATED"]


def test_an_abandoned_sweep_is_covered_by_the_jobs_around_it(
    here: Stage, empty_database: str
) -> None:
    execute(here.control, "UPDATE tallystick.plan SET scope = 'all'")
    plans_due(here)
    here.tick()
    act(here, jobs(here)[-1], Action.ABANDON)
    execute(here.control, "UPDATE tallystick.plan SET scope = 'new'")
    more(here, "INSERT INTO call VALUES (50, '2021-03-01Z')")
    states = [State.ABANDONED, State.SUCCEEDED, State.ABANDONED, State.SUCCEEDED]
    assert [job.state for job in jobs(here)] == states
    account = brought(here, empty_database)
    assert account.rows["public.call"] == (12, 0)
    assert len(account.archives) == 2


def test_an_archive_is_left_out_only_if_another_surely_holds_its_window(here: Stage) -> None:
    found = [reach_of(archives.verified(place)) for place in archives.places(here.root)]
    part, whole = found
    assert left_out(found) == {0: 1}
    assert left_out([part]) == {}

    def other(reach: Reach, **changes: object) -> Reach:
        return replace(reach, manifest=replace(reach.manifest, **changes))  # type: ignore[arg-type]

    window = whole.manifest.window
    assert left_out([part, replace(whole, final=False)]) == {}
    assert left_out([other(part, definition={}), whole]) == {}
    later = replace(window, after=("2021-02-01 02:00:00+00", "2"))
    assert left_out([part, other(whole, window=later)]) == {}
    earlier = replace(window, cutoff="2021-02-01 03:00:00+00")
    assert left_out([part, other(whole, window=earlier)]) == {}
    assert left_out([part, other(whole, window=replace(window, cutoff="infinity"))]) == {}


def test_without_the_manifests_the_abandoned_archive_is_counted_too(
    here: Stage, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoration, "left_out", lambda _: {})
    account = brought(here, empty_database)
    # Its roots that are in the other archive come once; the one that was deleted between comes, too.
    assert account.rows["public.call"] == (12, 0)
