"""How plans stand is read whole in one statement, and says the same as what ticks then do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.db.connect import Database
from shared.errors import Code
from shared.jobs import rules, steer, store
from shared.jobs.model import State
from shared.jobs.rules import Action
from shared.plans import outlook
from shared.plans.outlook import Here, Reason, Situation, Standing
from shared.tick import Wanted, tick
from tests.postgres.reading import up_to_now
from tests.worlds import (
    SIGNED,
    a_claim,
    a_job,
    a_plan,
    a_policy,
    a_progress,
    a_volume,
    change_job,
    expire_lease,
    make_due,
    node,
    until_idle,
)


@pytest.fixture
def volume(control: Database, volume_root: Path) -> Iterator[str]:
    """Storage id of this node's volume, with a plan of the kind audit that is due."""
    storage_id = a_volume(control, volume_root)
    a_plan(control, "audit", storage_id, batch_size=1)
    with up_to_now():
        yield storage_id


def stands(control: Database) -> Situation:
    (found,) = outlook.of_plans(control)
    return found


def reason(control: Database, volume: str | None) -> Reason:
    return outlook.why(stands(control), Here({"audit": "default"}, volume))


def test_a_plan_is_followed_from_its_first_enabling_to_its_next_run(
    database: str, control: Database, volume_root: Path, volume: str
) -> None:
    here = node(database, volume_root, volume)
    assert reason(control, volume).params["cause"] == "never"
    tick(here, Wanted("scan"))
    assert reason(control, volume).code is Standing.NO_TICK
    tick(here, Wanted())
    found = reason(control, volume)
    assert (found.code, found.params["cause"]) == (Standing.DUE, "job")
    until_idle(here)
    now = stands(control)
    assert now.job_id is None
    assert now.next_run_in is not None
    assert 86_000 < now.next_run_in <= 86_400
    assert (now.last_roots, now.paced_roots) == (2, 1)
    assert outlook.why(now, Here({}, volume)).code is Standing.NEXT_RUN_LATER


def test_a_claimed_job_is_at_work_and_one_whose_holder_died_is_due(
    control: Database, volume: str
) -> None:
    job = a_job(control, storage_id=volume, kind="audit")
    a_claim(control, volume)
    found = outlook.of_job(control, job)
    assert found is not None
    assert found.plan_id is None
    assert outlook.why(found, Here({}, volume)).code is Standing.AT_WORK
    expire_lease(control, job)
    control.transact("INSERT INTO tallystick.last_tick VALUES ('archive')", {})
    found = outlook.of_job(control, job)
    assert found is not None
    assert outlook.why(found, Here({}, volume)).params["cause"] == "takeover"


def test_switches_failures_and_pauses_are_told(
    database: str, control: Database, volume_root: Path, volume: str
) -> None:
    tick(node(database, volume_root, volume), Wanted())
    job = stands(control).job_id
    assert job is not None
    steer.act(control, job, Action.PAUSE, SIGNED)
    assert reason(control, volume).code is Standing.JOB_PAUSED
    steer.act(control, job, Action.RESUME, SIGNED)
    change_job(control, job, "state = 'FAILED', error_code = 'STORAGE_LIMIT'")
    assert reason(control, volume).params["code"] == "STORAGE_LIMIT"
    steer.act(control, job, Action.RETRY, SIGNED)
    a_policy(control, "audit", after_days=3)
    assert reason(control, volume).code is Code.POLICY_CHANGED
    steer.act(control, job, Action.ABANDON, SIGNED)
    assert reason(control, volume).code is Standing.PLAN_STALE
    a_policy(control, "audit", enabled=False)
    assert reason(control, volume).code is Code.POLICY_DISABLED
    a_plan(control, "audit", volume, enabled=False)
    assert reason(control, volume).code is Code.PLAN_DISABLED
    control.transact("UPDATE tallystick.namespace SET enabled = false", {})
    assert reason(control, volume).code is Standing.NAMESPACE_DISABLED


def test_a_failed_unit_is_told_with_its_code_and_the_time_left(
    database: str, control: Database, volume_root: Path, volume: str
) -> None:
    here = node(database, volume_root, volume, sources={"control": "postgresql://127.0.0.1:1/x"})
    tick(here, Wanted())
    found = reason(control, volume)
    assert (found.code, found.params["code"]) == (Standing.BACKING_OFF, "EXPORT_FAILED")
    seconds = found.params["seconds"]
    assert isinstance(seconds, float)
    assert 0 < seconds <= rules.BACKOFF_FIRST_SECONDS


def test_the_pace_is_that_of_the_newest_units_without_the_wait_before_them(
    control: Database, volume: str
) -> None:
    job = a_job(control, storage_id=volume, kind="audit")
    for _ in range(4):
        make_due(control, job)
        claim = a_claim(control, volume, job_id=job)
        store.settle(control, claim, a_progress(claim))
    ages = {1: 90_000, 2: 300, 3: 200, 4: 100}
    for seq, age in ages.items():
        control.transact(
            "UPDATE tallystick.unit SET settled_at = statement_timestamp()"
            " - make_interval(secs => %(age)s) WHERE seq = %(seq)s",
            {"seq": seq, "age": age},
        )
    found = outlook.of_job(control, job)
    assert found is not None
    assert found.paced_roots == 20
    assert found.paced_seconds == pytest.approx(200, abs=2)


def test_what_is_left_of_budgets_counts_what_is_set_aside(control: Database, volume: str) -> None:
    job = a_job(control, storage_id=volume, kind="audit", max_bytes=1000, bytes=300, reserved=50)
    a_job(control, storage_id=volume, kind="audit", reserved=70)
    control.transact("UPDATE tallystick.volume SET used_bytes = 500", {})
    found = outlook.of_job(control, job)
    assert found is not None
    assert (found.job_bytes_left, found.volume_bytes) == (700, 620)
    assert found.job_state is State.PENDING


def test_plans_of_one_namespace_can_be_asked_for(control: Database, volume: str) -> None:
    assert [each.name for each in outlook.of_plans(control)] == ["audit"]
    assert outlook.of_plans(control, a_plan(control, "audit", volume)["namespace_id"])
    assert outlook.of_plans(control, store.get(control, a_job(control)).id) == []
