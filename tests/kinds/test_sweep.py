"""Late rows are counted, shown, and brought in by one sweep; the plan then goes on behind them."""

from __future__ import annotations

import itertools
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from handlers.cli import run
from shared.archive import kinds as kinds_file
from shared.errors import Code, Refused
from shared.jobs.model import State
from shared.plans.sweep import sweep, sweep_volume
from tests import worlds
from tests.operations.stage import (
    Stage,
    assert_sound,
    copied,
    events,
    execute,
    jobs,
    plan,
    plans_due,
    rows_in,
    stage,
)
from tests.worlds import SIGNED, control, one, rows

NOTES = '[kinds.notes]\nroot = "public.note"\ntime = "at"\n'
PLAN = "SELECT * FROM tallystick.plan"


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    """A plan of scope new that has run once, over ten rows."""
    found = stage(
        database,
        volume_root,
        NOTES,
        "CREATE TABLE note (id integer PRIMARY KEY, at date)",
        "INSERT INTO note SELECT i, '2020-01-01'::date + i FROM generate_series(1, 10) AS i",
    )
    plan(found, "notes", batch_size=4, scope="new")
    found.until_idle()
    return found


def swept(here: Stage) -> None:
    (kind,) = worlds.known(kinds_file.parse(NOTES, "kinds.toml", "application"))
    with closing(control(here.control)) as db:
        sweep(db, "default", kind, SIGNED)


def refusal(here: Stage) -> Refused:
    with pytest.raises(Refused) as caught:
        swept(here)
    return caught.value


def archived(here: Stage, number: int) -> Any:  # noqa: ANN401 - rows by table
    return rows_in(assert_sound(here, jobs(here)[number]))['"public"."note"']


def test_late_rows_are_brought_in_once_and_the_next_job_goes_on_behind_them(here: Stage) -> None:
    execute(here.source, "INSERT INTO note VALUES (20, '2020-01-03'), (21, '2019-01-01')")
    plans_due(here)
    here.until_idle()
    assert jobs(here)[-1].opening is not None
    assert [job.opening["late_rows"] for job in jobs(here) if job.opening] == [0, 2]
    before = rows(here.control, PLAN)
    swept(here)
    assert rows(here.control, PLAN) == before
    here.until_idle()
    assert archived(here, 2) == copied(here.source, "SELECT * FROM note")
    # Newer rows, and none late any more: the sweep archived those.
    execute(here.source, "INSERT INTO note VALUES (30, '2020-02-01'), (31, '2020-02-02')")
    plans_due(here)
    here.until_idle()
    last = jobs(here)[-1]
    assert archived(here, 3) == copied(here.source, "SELECT * FROM note WHERE id >= 30")
    assert last.opening is not None
    assert last.opening["late_rows"] == 0
    assert not [each for each in events(here, last) if each["type"] == "late-rows"]
    # Every job follows on the one before.
    found = jobs(here)
    assert [job.state for job in found] == [State.SUCCEEDED] * 4
    for earlier, later in itertools.pairwise(found):
        assert later.input["previous"] == {"job": str(earlier.id), "tail": earlier.last_sha256}


def test_a_sweep_makes_one_job_and_is_kept_in_the_audit(here: Stage) -> None:
    swept(here)
    job = jobs(here)[-1]
    assert (job.input["scope"], job.input["after"], job.plan_revision) == ("all", None, 1)
    entry = rows(here.control, "SELECT * FROM tallystick.audit_entry WHERE action = 'sweep'")[0]
    assert (entry["after"], entry["reason"]) == ({"job": str(job.id)}, SIGNED.reason)
    assert refusal(here).code == Code.JOB_OPEN
    here.until_idle()
    assert one(here.control, "SELECT count(*) FROM tallystick.job") == 2


def test_an_abandoned_sweep_changes_nothing_for_the_plan(here: Stage) -> None:
    from shared.jobs.rules import Action
    from tests.operations.stage import act

    swept(here)
    here.tick()
    act(here, jobs(here)[-1], Action.ABANDON)
    execute(here.source, "INSERT INTO note VALUES (30, '2020-02-01')")
    plans_due(here)
    here.until_idle()
    assert archived(here, 2) == copied(here.source, "SELECT * FROM note WHERE id = 30")


@pytest.mark.parametrize(
    ("change", "code", "cause"),
    [
        ("UPDATE tallystick.plan SET enabled = false", Code.PLAN_DISABLED, None),
        ("UPDATE tallystick.namespace SET enabled = false", Code.PLAN_DISABLED, "namespace"),
        ("UPDATE tallystick.policy SET enabled = false", Code.POLICY_DISABLED, None),
        ("UPDATE tallystick.policy SET revision = 2", Code.PLAN_DISABLED, "policy-moved"),
        ("DELETE FROM tallystick.plan", Code.PLAN_MISSING, None),
    ],
)
def test_a_plan_that_makes_no_jobs_is_not_swept(
    here: Stage, change: str, code: Code, cause: str | None
) -> None:
    execute(here.control, "UPDATE tallystick.job SET plan_id = NULL", change)
    problem = refusal(here)
    assert (problem.code, problem.params.get("cause")) == (code, cause)
    assert len(jobs(here)) == 1


def test_only_the_plan_meant_is_swept(here: Stage) -> None:
    with closing(control(here.control)) as db:
        worlds.a_policy(db, "tasks")
        worlds.a_plan(db, "tasks", here.storage_id)
    swept(here)
    assert [job.kind for job in jobs(here)] == ["notes", "notes"]


def test_the_commands_show_what_came_late_and_how_to_bring_it_in(
    here: Stage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kinds = tmp_path / "kinds.toml"
    kinds.write_text(NOTES)
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", here.control)
    monkeypatch.setenv("TALLYSTICK_KINDS_FILE", str(kinds))
    execute(here.source, "INSERT INTO note VALUES (20, '2020-01-03')")
    plans_due(here)
    here.until_idle()
    second = str(jobs(here)[-1].id)

    def asked(*command: str) -> Any:  # noqa: ANN401 - a JSON document
        capsys.readouterr()
        assert run([*command, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert asked("plan", "list")["items"][0]["late_rows"] == 1
    assert asked("jobs", "show", second)["late_rows"] == 1
    assert run(["plan", "list"]) == 0
    assert "tallystick plan sweep notes --reason TEXT" in capsys.readouterr().out
    made = asked("plan", "sweep", "notes", "--reason", "they came late")
    assert made["kind"] == "notes"
    here.until_idle()
    assert asked("plan", "list")["items"][0]["late_rows"] == 0


def volume_refusal(here: Stage) -> tuple[Code, str]:
    with closing(control(here.control)) as db, pytest.raises(Refused) as caught:
        sweep_volume(db, "default", here.storage_id, SIGNED)
    problem = caught.value
    return problem.code, str(problem.params.get("cause"))


def test_a_volume_is_scanned_now_and_its_plan_keeps_its_slot(here: Stage) -> None:
    assert volume_refusal(here) == (Code.PLAN_MISSING, "scan")
    plan(here, None)
    here.until_idle()
    before = rows(here.control, PLAN)
    with closing(control(here.control)) as db:
        made = sweep_volume(db, "default", here.storage_id, SIGNED)
    assert rows(here.control, PLAN) == before
    assert volume_refusal(here) == (Code.JOB_OPEN, "sweep")
    here.until_idle()
    assert (jobs(here)[-1].id, jobs(here)[-1].state) == (made, State.SUCCEEDED)
    execute(here.control, "UPDATE tallystick.plan SET enabled = false")
    assert volume_refusal(here) == (Code.PLAN_DISABLED, "scan")
