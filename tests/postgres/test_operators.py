"""Operators steer jobs: allowed by state and revision, signed, audited, and never into two workers."""

from __future__ import annotations

from uuid import uuid4

import pytest

from shared.db.audit import ACTOR_MAX_BYTES, REASON_MAX_BYTES, Signature
from shared.db.connect import Database
from shared.errors import Code, Missing, Passing, Refused, Stale, Verdict
from shared.jobs import rules, steer, store
from shared.jobs.model import Claim, Job, State
from shared.jobs.rules import Action
from shared.plans.schedule import schedule
from tests.worlds import (
    SIGNED,
    a_claim,
    a_job,
    a_plan,
    a_progress,
    change_job,
    expire_lease,
    make_due,
    one,
    rows,
    search,
    without,
)

AUDIT = "SELECT * FROM tallystick.audit_entry WHERE subject = 'job' ORDER BY occurred_at"

# What each action makes of each state; what is not here is refused.
TABLE = {
    (Action.RETRY, State.FAILED): State.PENDING,
    (Action.ABANDON, State.PENDING): State.ABANDONED,
    (Action.ABANDON, State.RUNNING): State.ABANDONED,
    (Action.ABANDON, State.PAUSED): State.ABANDONED,
    (Action.ABANDON, State.FAILED): State.ABANDONED,
    (Action.PAUSE, State.PENDING): State.PAUSED,
    (Action.PAUSE, State.RUNNING): State.PAUSED,
    (Action.RESUME, State.PAUSED): State.PENDING,
}


def a_job_that_is(control: Database, state: State) -> Job:
    """Lead a job into a state the way the product does."""
    job_id = a_job(control)
    if state is State.RUNNING:
        a_claim(control, job_id=job_id)
    elif state in {State.FAILED, State.SUCCEEDED}:
        claim = a_claim(control, job_id=job_id)
        if state is State.FAILED:
            failed(control, claim)
        else:
            store.settle(control, claim, a_progress(claim, final=True))
    elif state is not State.PENDING:
        action = Action.PAUSE if state is State.PAUSED else Action.ABANDON
        steer.act(control, job_id, action, SIGNED)
    job = store.get(control, job_id)
    assert job.state is state
    return job


def failed(control: Database, claim: Claim) -> Job:
    return store.set_back(
        control, claim, rules.setback(claim.job, Verdict(Code.STORAGE_LIMIT, cause="job-budget"))
    )


@pytest.mark.parametrize("action", list(Action))
def test_an_action_does_what_the_table_says_of_every_state(
    database: str, control: Database, action: Action
) -> None:
    for state in State:
        before = a_job_that_is(control, state)
        audited = len(rows(database, AUDIT))
        expected = TABLE.get((action, state))
        if expected is None:
            with pytest.raises(Refused) as refused:
                steer.act(control, before.id, action, SIGNED)
            assert refused.value.code is Code.ACTION_NOT_ALLOWED
            assert refused.value.params["state"] == state
            assert store.get(control, before.id) == before
            assert len(rows(database, AUDIT)) == audited
            continue
        after = steer.act(control, before.id, action, SIGNED)
        assert after == store.get(control, before.id)
        assert after.state is expected
        assert after.generation == before.generation + 1
        assert after.revision == before.revision + 1
        assert after.owner is None
        assert (after.closed_at is not None) == expected.closed
        kept = ("attempts", "batches", "roots", "bytes", "last_sha256", "max_bytes", "input")
        assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
        assert len(rows(database, AUDIT)) == audited + 1


def test_every_action_leaves_who_why_and_what_was_before_and_after(
    database: str, control: Database
) -> None:
    job_id = a_job(control)
    steer.act(control, job_id, Action.PAUSE, Signature("ann", "nightly load", revision=1))
    (entry,) = rows(database, AUDIT)
    assert (entry["actor"], entry["reason"], entry["revision_seen"]) == ("ann", "nightly load", 1)
    assert (entry["action"], entry["subject_id"]) == ("pause", str(job_id))
    assert entry["namespace_id"] == store.get(control, job_id).namespace_id
    assert (entry["before"]["state"], entry["after"]["state"]) == ("PENDING", "PAUSED")
    assert (entry["before"]["revision"], entry["after"]["revision"]) == (1, 2)


def test_an_action_without_its_audit_entry_does_not_happen(
    database: str, control: Database
) -> None:
    job_id = a_job(control)
    rows(database, "ALTER TABLE tallystick.audit_entry ADD CONSTRAINT full_up CHECK (actor = '')")
    with pytest.raises(Exception, match="full_up"):
        steer.act(control, job_id, Action.PAUSE, SIGNED)
    assert store.get(control, job_id).state is State.PENDING


def test_an_operator_who_saw_another_revision_is_refused(control: Database) -> None:
    job_id = a_job(control)
    steer.act(control, job_id, Action.PAUSE, Signature("ann", "wait", revision=1))
    with pytest.raises(Refused) as refused:
        steer.act(control, job_id, Action.RESUME, Signature("bob", "go on", revision=1))
    assert (refused.value.code, refused.value.params) == (
        Code.REVISION_STALE,
        {"seen": 1, "current": 2},
    )
    steer.act(control, job_id, Action.RESUME, Signature("bob", "go on", revision=2))


def test_ticks_do_not_make_an_operators_view_stale(control: Database) -> None:
    job_id = a_job(control)
    for _ in range(3):
        claim = a_claim(control)
        store.settle(control, claim, a_progress(claim))
    claim = a_claim(control)
    store.set_back(control, claim, rules.setback(claim.job, Passing(Code.EXPORT_FAILED)))
    make_due(control, job_id)
    a_claim(control)
    expire_lease(control, job_id)
    a_claim(control)
    job = steer.act(control, job_id, Action.PAUSE, Signature("ann", "wait", revision=1))
    assert job.revision == 2


def test_a_job_that_is_not_there_is_refused(control: Database) -> None:
    with pytest.raises(Refused) as refused:
        steer.act(control, uuid4(), Action.PAUSE, SIGNED)
    assert refused.value.code is Code.JOB_UNKNOWN


@pytest.mark.parametrize("action", [Action.PAUSE, Action.ABANDON])
def test_an_action_on_a_running_job_needs_no_cooperation(control: Database, action: Action) -> None:
    job_id = a_job(control)
    holder = a_claim(control)
    steer.act(control, job_id, action, SIGNED)
    with pytest.raises(Stale):
        store.settle(control, holder, a_progress(holder))
    assert store.get(control, job_id).batches == 0


def test_pausing_and_resuming_a_running_job_lets_nobody_in_before_its_lease_ends(
    control: Database,
) -> None:
    job_id = a_job(control)
    holder = a_claim(control)
    for action in (Action.PAUSE, Action.RESUME, Action.PAUSE, Action.RESUME):
        job = steer.act(control, job_id, action, SIGNED)
        assert job.due_at == holder.job.lease_until
    assert job.state is State.PENDING
    assert store.claim(control, search()) is None
    change_job(control, job_id, "due_at = clock_timestamp()")
    # As it would be if an action set the job due at once, while the first worker is still at it.
    assert a_claim(control).job.id == job_id


def test_a_resumed_job_that_nobody_holds_is_due_at_once(control: Database) -> None:
    job_id = a_job(control)
    steer.act(control, job_id, Action.PAUSE, SIGNED)
    steer.act(control, job_id, Action.RESUME, SIGNED)
    assert a_claim(control).job.id == job_id


def test_a_retry_forgets_failures_and_takeovers_and_keeps_the_confirmed_prefix(
    control: Database,
) -> None:
    job_id = a_job(control, takeovers=3, failures=5)
    claim = a_claim(control)
    settled = store.settle(control, claim, a_progress(claim))
    failed(control, a_claim(control))
    change_job(control, job_id, "failures = 12, takeovers = 10")
    job = steer.act(control, job_id, Action.RETRY, SIGNED)
    assert (job.failures, job.takeovers, job.error_code, job.error_params) == (0, 0, None, None)
    assert (job.batches, job.last_sha256, job.checkpoint) == (
        settled.batches,
        settled.last_sha256,
        settled.checkpoint,
    )
    assert [entry["code"] for entry in job.errors] == ["STORAGE_LIMIT"]
    assert a_claim(control).job.batches == 1


def test_a_retry_may_raise_the_byte_budget_and_never_lower_it(control: Database) -> None:
    job = a_job_that_is(control, State.FAILED)
    for wrong, code in (
        (job.max_bytes - 1, Code.BUDGET_SMALLER),
        (rules.BUDGET_MAX + 1, Code.VALUE_OUT_OF_RANGE),
    ):
        with pytest.raises(Refused) as refused:
            steer.act(control, job.id, Action.RETRY, SIGNED, max_bytes=wrong)
        assert refused.value.code is code
    raised = steer.act(control, job.id, Action.RETRY, SIGNED, max_bytes=job.max_bytes + 1)
    assert raised.max_bytes == job.max_bytes + 1


@pytest.mark.parametrize("action", [Action.ABANDON, Action.PAUSE])
def test_only_a_retry_may_change_the_budget(control: Database, action: Action) -> None:
    job_id = a_job(control)
    with pytest.raises(Refused):
        steer.act(control, job_id, action, SIGNED, max_bytes=rules.BUDGET_MAX)


def test_abandoning_frees_the_place_of_the_plan_and_failing_keeps_it(
    control: Database, storage_id: str
) -> None:
    a_plan(control, None, storage_id)
    (job_id,) = schedule(control, (), ["scan"]).jobs
    failed(control, a_claim(control, storage_id))
    control.transact("UPDATE tallystick.plan SET next_run_at = clock_timestamp()", {})
    assert schedule(control, (), ["scan"]).jobs == []
    job = steer.act(control, job_id, Action.ABANDON, SIGNED)
    assert (job.error_code, job.error_params) == ("STORAGE_LIMIT", {"cause": "job-budget"})
    assert len(schedule(control, (), ["scan"]).jobs) == 1


@pytest.mark.parametrize(
    "reason",
    ["", " ", "\t", "two\nlines", "bell\a", "x" * (REASON_MAX_BYTES + 1), "é" * 513, "\udcff"],
    ids=["empty", "space", "tab", "two-lines", "control", "long", "long-utf8", "not-utf8"],
)
def test_a_reason_that_is_no_single_line_of_text_is_refused(reason: str) -> None:
    with pytest.raises(Refused) as refused:
        Signature("ann", reason)
    assert refused.value.code is Code.REASON_INVALID


@pytest.mark.parametrize(
    "actor",
    ["", " ", "two\nlines", "red\x1b[31m", "x" * (ACTOR_MAX_BYTES + 1), "\u2028", "\udcff"],
    ids=["empty", "space", "two-lines", "escape", "long", "separator", "not-utf8"],
)
def test_an_actor_that_is_no_single_line_of_text_is_refused(actor: str) -> None:
    with pytest.raises(Refused) as refused:
        Signature(actor, "a reason")
    assert (refused.value.code, refused.value.params["cause"]) == (Code.REASON_INVALID, "actor")
    assert Signature("x" * ACTOR_MAX_BYTES, "a reason").actor


@pytest.mark.parametrize("reason", ["x", "x" * REASON_MAX_BYTES, "é" * 512, "für die Prüfung 監査"])
def test_a_reason_of_one_line_up_to_1024_bytes_is_accepted(reason: str) -> None:
    assert Signature("ann", reason).reason == reason


def paused_for(control: Database, code: Code, storage_id: str) -> Job:
    a_job(control, storage_id=storage_id)
    claim = a_claim(control, storage_id)
    return store.set_back(control, claim, rules.setback(claim.job, Missing(code, cause="x")))


def test_a_cured_job_resumes_and_others_stay_paused(
    database: str, control: Database, storage_id: str
) -> None:
    cured = paused_for(control, Code.STORAGE_UNAVAILABLE, storage_id)
    other = paused_for(control, Code.CREDENTIAL_MISSING, storage_id)
    asked = a_job(control, storage_id=storage_id)
    steer.act(control, asked, Action.PAUSE, SIGNED)
    assert store.resume_cured(control, Code.STORAGE_UNAVAILABLE, storage_id) == [cured.id]
    job = store.get(control, cured.id)
    assert (job.state, job.error_code) == (State.PENDING, None)
    assert (job.generation, job.revision) == (cured.generation + 1, cured.revision + 1)
    assert store.get(control, other.id).state is State.PAUSED
    assert store.get(control, asked).state is State.PAUSED
    types = "SELECT type FROM tallystick.recovery_event ORDER BY occurred_at DESC LIMIT 1"
    assert one(database, types) == "job-resumed"


def test_only_what_is_long_overdue_on_an_unreachable_volume_is_paused(
    database: str, control: Database, storage_id: str
) -> None:
    overdue = a_job(control, storage_id=storage_id, due_in=-rules.OVERDUE_SECONDS - 1)
    a_job(control, storage_id=storage_id, due_in=-rules.OVERDUE_SECONDS + 60)
    a_job(control, due_in=-rules.OVERDUE_SECONDS - 1)
    assert store.pause_overdue(control, storage_id, {"cause": "no-answer"}) == [overdue]
    job = store.get(control, overdue)
    assert (job.state, job.error_code) == (State.PAUSED, "STORAGE_UNAVAILABLE")
    assert job.error_params == {"cause": "no-answer"}
    assert store.pause_overdue(control, storage_id, {"cause": "no-answer"}) == []
    assert one(database, "SELECT count(*) FROM tallystick.recovery_event") == 1
    assert store.resume_cured(control, Code.STORAGE_UNAVAILABLE, storage_id) == [overdue]


def test_a_zombie_of_a_job_paused_as_overdue_writes_nothing(
    control: Database, storage_id: str
) -> None:
    job_id = a_job(control, storage_id=storage_id)
    holder = a_claim(control, storage_id)
    past = f"statement_timestamp() - interval '{rules.OVERDUE_SECONDS + 1} s'"
    change_job(control, job_id, f"due_at = {past}, lease_until = {past}")
    assert store.pause_overdue(control, storage_id, {}) == [job_id]
    with pytest.raises(Stale):
        store.settle(control, holder, a_progress(holder))


def test_an_action_that_leaves_the_generation_lets_a_holder_believe_that_it_had_given_back(
    control: Database,
) -> None:
    """A set back whose answer was lost is known by the generation at which the job was given back."""
    job_id = a_job(control)
    holder = a_claim(control)
    setback = rules.setback(holder.job, Passing(Code.EXPORT_FAILED))

    def pause_and_resume() -> None:
        for action in (Action.PAUSE, Action.RESUME):
            steer.act(control, job_id, action, SIGNED)

    with without(steer, "act", "generation  = generation + 1,"):
        pause_and_resume()
    assert store.set_back(control, holder, setback).failures == 0
    pause_and_resume()
    with pytest.raises(Stale):
        store.set_back(control, holder, setback)


def test_an_action_that_makes_a_job_due_before_its_lease_ends_lets_two_workers_in(
    control: Database,
) -> None:
    job_id = a_job(control)
    first = a_claim(control)
    at_once = ("greatest(clock_timestamp(), lease_until)", "clock_timestamp()")
    with without(steer, "act", *at_once):
        for action in (Action.PAUSE, Action.RESUME):
            steer.act(control, job_id, action, SIGNED)
    second = a_claim(control)
    assert second.job.id == job_id
    assert first.job.lease_until is not None
    assert second.job.updated_at < first.job.lease_until


def test_a_revision_that_ticks_move_keeps_operators_from_acting_at_all(control: Database) -> None:
    job_id = a_job(control)
    moves = ("reserved    = 0,", "reserved    = 0, revision = revision + 1,")
    with without(store, "settle", *moves):
        claim = a_claim(control)
        store.settle(control, claim, a_progress(claim))
    with pytest.raises(Refused) as refused:
        steer.act(control, job_id, Action.PAUSE, Signature("ann", "wait", revision=1))
    assert refused.value.code is Code.REVISION_STALE


def test_a_failure_that_leaves_the_revision_lets_an_operator_act_on_what_nobody_saw(
    control: Database,
) -> None:
    seen = Signature("ann", "not needed any more", revision=1)
    rule = "revision    = revision + (%(new_state)s IN ('FAILED', 'PAUSED'))::integer,"
    job_id = a_job(control)
    with without(store, "set_back", rule):
        failed(control, a_claim(control))
    assert steer.act(control, job_id, Action.ABANDON, seen).state is State.ABANDONED
    job_id = a_job(control)
    failed(control, a_claim(control))
    with pytest.raises(Refused):
        steer.act(control, job_id, Action.ABANDON, seen)
