"""The timeline of a job: what is kept of it, in order, each thing once."""

from __future__ import annotations

import pytest

from shared.db.connect import Database
from shared.errors import Code, Passing, Verdict
from shared.jobs import rules, steer, store, timeline
from shared.jobs.rules import Action
from shared.jobs.timeline import Moment, What
from shared.recovery import report
from tests.worlds import (
    SIGNED,
    a_claim,
    a_job,
    a_progress,
    expire_lease,
    make_due,
)

Told = list[tuple[What, str]]


def moments(control: Database, job_id: object, limit: int = 20) -> list[Moment]:
    job = store.get(control, job_id)  # type: ignore[arg-type]
    events = report.newest(control, report.Query(job_id=job.id, limit=limit))
    return timeline.timeline(job, events, timeline.kept(control, job.id))


def told(found: list[Moment]) -> Told:
    return [(moment.what, moment.name) for moment in found]


def test_a_life_is_told_in_order_and_nothing_twice(control: Database, storage_id: str) -> None:
    job = a_job(control, storage_id=storage_id)
    claim = a_claim(control, storage_id)
    store.settle(control, claim, a_progress(claim))
    claim = a_claim(control, storage_id)
    store.set_back(control, claim, rules.setback(claim.job, Passing(Code.EXPORT_FAILED)))
    make_due(control, job)
    a_claim(control, storage_id)
    expire_lease(control, job)
    claim = a_claim(control, storage_id)
    store.set_back(control, claim, rules.setback(claim.job, Verdict(Code.STORAGE_LIMIT)))
    steer.act(control, job, Action.RETRY, SIGNED)
    make_due(control, job)
    for final in (False, True):
        claim = a_claim(control, storage_id)
        store.settle(control, claim, a_progress(claim, final=final))
    found = moments(control, job)
    assert told(found) == [
        (What.CREATED, "created"),
        (What.UNIT, "settled"),
        (What.EVENT, "unit-failed"),
        (What.EVENT, "job-reclaimed-after-restart"),
        (What.EVENT, "job-failed"),
        (What.ACTION, "retry"),
        (What.UNIT, "settled"),
        (What.CLOSED, "SUCCEEDED"),
    ]
    assert [each.params["seq"] for each in found if each.what is What.UNIT] == [1, 3]
    assert found[2].params["code"] == "EXPORT_FAILED"
    (action,) = [each for each in found if each.what is What.ACTION]
    assert action.params == {"actor": SIGNED.actor, "reason": SIGNED.reason}


def test_an_error_whose_event_is_no_longer_among_them_is_told_from_the_job(
    control: Database, storage_id: str
) -> None:
    job = a_job(control, storage_id=storage_id)
    for _ in range(3):
        make_due(control, job)
        claim = a_claim(control, storage_id)
        store.set_back(control, claim, rules.setback(claim.job, Passing(Code.EXPORT_FAILED)))
    found = told(moments(control, job, limit=1))
    assert found == [
        (What.CREATED, "created"),
        (What.ERROR, "EXPORT_FAILED"),
        (What.ERROR, "EXPORT_FAILED"),
        (What.EVENT, "unit-failed"),
    ]


def test_a_job_of_one_unit_has_one_and_one_of_none_has_none(
    control: Database, storage_id: str
) -> None:
    job = a_job(control, storage_id=storage_id)
    assert told(moments(control, job)) == [(What.CREATED, "created")]
    claim = a_claim(control, storage_id)
    store.settle(control, claim, a_progress(claim))
    assert told(moments(control, job)).count((What.UNIT, "settled")) == 1


@pytest.mark.parametrize("many", [timeline.ACTIONS_MAX + 5])
def test_actions_are_the_newest_few(control: Database, storage_id: str, many: int) -> None:
    job = a_job(control, storage_id=storage_id)
    for number in range(many):
        action = Action.RESUME if number % 2 else Action.PAUSE
        steer.act(control, job, action, SIGNED)
    assert len(timeline.kept(control, job).actions) == timeline.ACTIONS_MAX
