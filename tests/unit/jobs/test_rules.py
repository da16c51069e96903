"""The decisions about jobs, without a database: what a failure means, how long to wait, who may act."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import Code, Missing, Passing, Refused, TooMuch, Trouble, Verdict, Waits
from shared.jobs import rules
from shared.jobs.model import Claim, Job, State
from shared.jobs.rules import ALLOWED, RESULT, Action

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = Job(
    id=UUID(int=1),
    operation="archive",
    namespace_id=UUID(int=2),
    kind="invoices",
    plan_id=None,
    plan_revision=None,
    policy_revision=3,
    storage_id=None,
    batch_size=100,
    page_size=100,
    max_bytes=2**30,
    input={},
    opening=None,
    checkpoint=None,
    state=State.RUNNING,
    revision=5,
    generation=7,
    owner=UUID(int=3),
    due_at=NOW,
    lease_until=NOW,
    attempts=1,
    takeovers=0,
    failures=0,
    batches=2,
    roots=20,
    bytes=500,
    reserved=0,
    last_sha256="a" * 64,
    error_code=None,
    error_params=None,
    errors=[],
    created_at=NOW,
    updated_at=NOW,
    closed_at=None,
)
PASSING = Passing(Code.EXPORT_FAILED, cause="unreachable")

jitters = st.floats(0, 1, exclude_max=True)


def a_job(**changes: Any) -> Job:  # noqa: ANN401 - the members of Job
    return replace(JOB, **changes)


@given(st.integers(1, 60), jitters)
def test_a_wait_doubles_up_to_an_hour_and_jitters_over_its_upper_half(
    failures: int, jitter: float
) -> None:
    full = min(3600.0, 10.0 * 2 ** (failures - 1))
    wait = rules.backoff(failures, lambda: jitter)
    assert full / 2 <= wait <= full


def test_the_waits_of_eleven_failures_are_what_the_documents_say() -> None:
    longest = [rules.backoff(failures, lambda: 1.0) for failures in range(1, 12)]
    assert longest == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]
    shortest = [rules.backoff(failures, lambda: 0.0) for failures in range(1, 12)]
    assert (round(sum(shortest) / 3600, 1), round(sum(longest) / 3600, 1)) == (1.7, 3.4)


def test_jobs_that_failed_together_do_not_come_back_together() -> None:
    assert len({rules.backoff(5) for _ in range(50)}) > 45


@given(st.integers(0, rules.FAILURES_MAX - 2), jitters)
def test_a_passing_trouble_is_tried_again_later(failures: int, jitter: float) -> None:
    decided = rules.setback(a_job(failures=failures), PASSING, lambda: jitter)
    assert (decided.state, decided.failures) == (State.PENDING, failures + 1)
    assert decided.delay_seconds == rules.backoff(failures + 1, lambda: jitter)
    assert (decided.code, decided.params) == (Code.EXPORT_FAILED, {"cause": "unreachable"})
    assert (decided.event.type, decided.event.done) == ("unit-failed", False)


def test_the_twelfth_failure_of_a_unit_fails_its_job_with_the_code_of_the_cause() -> None:
    decided = rules.setback(a_job(failures=11), PASSING)
    assert (decided.state, decided.failures) == (State.FAILED, 12)
    assert (decided.code, decided.event.type) == (Code.EXPORT_FAILED, "job-failed")
    assert decided.event.severity == "error"


def test_what_a_unit_waits_for_is_asked_again_without_end_and_said_once() -> None:
    waits = Waits(Code.EXPORT_FAILED, cause="prepared-transaction")
    job = a_job(failures=rules.FAILURES_MAX - 1, page_size=9)
    decided = rules.setback(job, waits)
    assert (decided.state, decided.failures, decided.page_size) == (State.PENDING, 11, 9)
    assert (decided.delay_seconds, decided.said) == (rules.WAIT_SECONDS, False)
    entry = {"code": "EXPORT_FAILED", "params": {"cause": "prepared-transaction"}}
    again = rules.setback(replace(job, errors=[entry]), waits)
    assert again.said
    # Longer, so that many jobs that wait for one thing leave a loop of ticks time to rest.
    assert again.delay_seconds == rules.WAIT_AGAIN_SECONDS > rules.WAIT_SECONDS
    other = {"code": "EXPORT_FAILED", "params": {"cause": "unreachable"}}
    assert not rules.setback(replace(job, errors=[entry, other]), waits).said


def test_a_verdict_fails_the_job_at_once() -> None:
    decided = rules.setback(JOB, Verdict(Code.FILE_CHECK_FAILED, file="000001.sql.zst"))
    assert (decided.state, decided.code) == (State.FAILED, Code.FILE_CHECK_FAILED)
    assert decided.params == {"file": "000001.sql.zst"}


@pytest.mark.parametrize("code", [Code.STORAGE_UNAVAILABLE, Code.CREDENTIAL_MISSING])
def test_what_is_missing_pauses_and_never_fails_whatever_came_before(code: Code) -> None:
    decided = rules.setback(a_job(failures=11), Missing(code, cause="not-there"))
    assert (decided.state, decided.code, decided.failures) == (State.PAUSED, code, 11)
    assert decided.params == {"cause": "not-there"}


@given(st.integers(2, 100_000), st.integers(0, 11))
def test_too_much_halves_the_page_at_once_and_counts_no_failure(page: int, failures: int) -> None:
    job = a_job(batch_size=page, page_size=page, failures=failures)
    decided = rules.setback(job, TooMuch(Code.BATCH_TOO_LARGE))
    assert (decided.state, decided.page_size) == (State.PENDING, page // 2)
    assert (decided.failures, decided.delay_seconds) == (failures, 0.0)


def test_too_much_for_a_page_of_one_is_a_verdict_and_names_what_it_knows() -> None:
    decided = rules.setback(a_job(page_size=1), TooMuch(Code.EXPORT_FAILED, key=["7"]))
    assert (decided.state, decided.code) == (State.FAILED, Code.BATCH_TOO_LARGE)
    assert decided.params == {"key": ["7"]}


@pytest.mark.parametrize("cause", ["timeout", "recovery-conflict"])
def test_what_a_shorter_page_may_survive_halves_the_page_and_counts(cause: str) -> None:
    trouble = Passing(Code.EXPORT_FAILED, cause=cause)
    decided = rules.setback(a_job(page_size=9), trouble)
    assert (decided.page_size, decided.failures) == (4, 1)
    assert rules.setback(a_job(page_size=1), trouble).page_size == 1


def test_other_troubles_leave_the_page_as_it_is() -> None:
    for trouble in (PASSING, Verdict(Code.STORAGE_LIMIT), Missing(Code.STORAGE_UNAVAILABLE)):
        assert rules.setback(a_job(page_size=9), trouble).page_size == 9


@given(st.integers(1, 100_000), st.integers(1, 100_000))
def test_a_page_grows_back_by_doubling_up_to_the_batch_size(batch: int, page: int) -> None:
    page = min(page, batch)
    grown = rules.grown(a_job(batch_size=batch, page_size=page))
    assert page <= grown <= batch
    assert grown == batch or grown == 2 * page


@given(
    st.sampled_from([Passing, Waits, TooMuch, Verdict, Missing]),
    st.integers(1, 50),
    st.integers(0, 40),
)
def test_no_setback_breaks_what_the_table_demands(
    trouble: type[Trouble], page: int, failures: int
) -> None:
    decided = rules.setback(a_job(page_size=page, failures=failures), trouble(Code.EXPORT_FAILED))
    assert decided.state in {State.PENDING, State.PAUSED, State.FAILED}
    assert 1 <= decided.page_size <= page
    assert 0 <= decided.delay_seconds <= rules.BACKOFF_MAX_SECONDS
    assert decided.event.severity in {"info", "warning", "error"}
    assert decided.event.reason_code == decided.code


@pytest.mark.parametrize(
    ("policy", "enabled", "expected"),
    [
        ((3, True), True, None),
        ((4, True), True, Code.POLICY_CHANGED),
        ((3, False), True, Code.POLICY_CHANGED),
        ((None, None), True, Code.POLICY_CHANGED),
        ((3, True), False, Code.PERMISSION_DENIED),
        ((4, True), False, Code.PERMISSION_DENIED),
    ],
)
def test_what_bars_an_export(
    policy: tuple[int | None, bool | None], enabled: bool, expected: Code | None
) -> None:
    assert rules.barred(JOB, policy, namespace_enabled=enabled) is expected


def test_a_job_without_a_policy_is_barred_by_its_namespace_only() -> None:
    job = a_job(policy_revision=None)
    assert rules.barred(job, (None, None), namespace_enabled=True) is None
    assert rules.barred(job, (None, None), namespace_enabled=False) is Code.PERMISSION_DENIED


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("state", list(State))
def test_an_action_is_decided_by_the_state_alone(action: Action, state: State) -> None:
    job = a_job(state=state)
    if state in ALLOWED[action]:
        assert rules.act(job, action, revision=5, max_bytes=None) is RESULT[action]
        return
    with pytest.raises(Refused) as refused:
        rules.act(job, action, revision=5, max_bytes=None)
    assert refused.value.code is Code.ACTION_NOT_ALLOWED


def test_nothing_can_be_done_to_a_closed_job() -> None:
    closed = {state for state in State if state.closed}
    assert closed == {State.SUCCEEDED, State.ABANDONED}
    assert not closed & frozenset().union(*ALLOWED.values())


def test_every_open_state_has_a_way_out_for_an_operator() -> None:
    for state in State:
        assert state.closed or state in ALLOWED[Action.ABANDON]


@given(st.integers(-1, 10))
def test_another_revision_than_the_operator_saw_is_refused(seen: int) -> None:
    if seen == JOB.revision:
        assert rules.act(JOB, Action.PAUSE, revision=seen, max_bytes=None) is State.PAUSED
        return
    with pytest.raises(Refused) as refused:
        rules.act(JOB, Action.PAUSE, revision=seen, max_bytes=None)
    assert refused.value.code is Code.REVISION_STALE


@given(st.integers(0, 2**41))
def test_only_a_retry_changes_a_budget_and_only_upwards_within_bounds(asked: int) -> None:
    job = a_job(state=State.FAILED)
    allowed = job.max_bytes <= asked <= rules.BUDGET_MAX
    if allowed:
        assert rules.act(job, Action.RETRY, revision=None, max_bytes=asked) is State.PENDING
    else:
        with pytest.raises(Refused):
            rules.act(job, Action.RETRY, revision=None, max_bytes=asked)
    with pytest.raises(Refused):
        rules.act(job, Action.ABANDON, revision=None, max_bytes=asked)


@given(st.integers(), st.integers(), st.integers())
def test_bounds_include_their_ends(value: int, lowest: int, highest: int) -> None:
    if lowest <= value <= highest:
        assert rules.within(value, lowest, highest, "x") == value
        return
    with pytest.raises(Refused) as refused:
        rules.within(value, lowest, highest, "x")
    assert refused.value.code is Code.VALUE_OUT_OF_RANGE


def test_the_fence_is_everything_the_holder_believes() -> None:
    fence = Claim(JOB, reclaimed=False).fence
    assert fence.params() == {
        "job_id": JOB.id,
        "owner": JOB.owner,
        "generation": 7,
        "seq": 2,
        "tail": "a" * 64,
    }


def test_a_directory_is_named_by_namespace_and_job() -> None:
    assert JOB.directory == f"{UUID(int=2)}-{UUID(int=1)}"
