"""Taking over what another process left behind: recorded, slower each time, and not for ever."""

from __future__ import annotations

from uuid import UUID

import pytest

from shared.db.connect import Database
from shared.errors import Code, Passing, Uncertain
from shared.jobs import rules, store
from shared.jobs.model import Claim, Job, State
from tests.worlds import (
    a_claim,
    a_job,
    a_progress,
    change_job,
    expire_lease,
    make_due,
    one,
    rows,
    search,
    without,
)

EVENTS = "SELECT * FROM tallystick.recovery_event ORDER BY occurred_at"


def taken_over(control: Database, claim: Claim) -> Claim:
    expire_lease(control, claim.job.id)
    return a_claim(control)


def lease_seconds(claim: Claim) -> int:
    """Return the length of a lease: the row is written a moment after its end was computed."""
    return round((claim.job.due_at - claim.job.updated_at).total_seconds())


def test_an_expired_lease_is_taken_over_by_a_new_owner(control: Database) -> None:
    a_job(control)
    first = a_claim(control)
    second = taken_over(control, first)
    assert second.reclaimed
    assert second.job.owner != first.job.owner
    assert second.job.generation == first.job.generation + 1
    assert (second.job.attempts, second.job.takeovers) == (2, 1)
    assert second.job.revision == first.job.revision


def test_a_takeover_leaves_an_event_and_an_orderly_claim_none(
    database: str, control: Database
) -> None:
    job = a_job(control, checkpoint={"cursor": ["x", "1"]})
    first = a_claim(control)
    assert rows(database, EVENTS) == []
    taken_over(control, first)
    (event,) = rows(database, EVENTS)
    assert event["type"] == "job-reclaimed-after-restart"
    assert event["reclaimed"]
    assert (event["job_id"], event["operation"], event["attempt"]) == (job, "archive", 2)
    assert event["checkpoint"] == {"cursor": ["x", "1"]}
    assert (event["severity"], event["source"]) == ("warning", "tick")


def test_no_takeover_is_recorded_without_its_event(database: str, control: Database) -> None:
    a_job(control)
    first = a_claim(control)
    expire_lease(control, first.job.id)
    rows(database, "ALTER TABLE tallystick.recovery_event ADD CHECK (type <> 'never') NOT VALID")
    rows(
        database,
        "ALTER TABLE tallystick.recovery_event ADD CONSTRAINT full_up"
        " CHECK (type <> 'job-reclaimed-after-restart')",
    )
    with pytest.raises(Exception, match="full_up"):
        a_claim(control)
    assert one(database, "SELECT generation FROM tallystick.job") == first.job.generation


def test_the_nth_takeover_takes_a_lease_n_times_as_long(control: Database) -> None:
    a_job(control)
    claim = a_claim(control)
    leases = [lease_seconds(claim)]
    for _ in range(4):
        claim = taken_over(control, claim)
        leases.append(lease_seconds(claim))
    assert leases == [120, 120, 240, 360, 480]


def test_each_takeover_halves_the_page_down_to_one_root(control: Database) -> None:
    a_job(control, batch_size=9)
    claim = a_claim(control)
    pages = [claim.job.page_size]
    for _ in range(5):
        claim = taken_over(control, claim)
        pages.append(claim.job.page_size)
    assert pages == [9, 4, 2, 1, 1, 1]
    assert claim.job.batch_size == 9


def test_a_unit_that_ended_its_process_ten_times_is_a_crash_loop(
    database: str, control: Database
) -> None:
    job = a_job(control)
    claim = a_claim(control)
    for _ in range(rules.TAKEOVERS_MAX):
        claim = taken_over(control, claim)
    expire_lease(control, job)
    found = store.claim(control, search())
    assert isinstance(found, Job)
    assert (found.state, found.error_code) == (State.FAILED, Code.CRASH_LOOP)
    assert found.error_params == {"takeovers": rules.TAKEOVERS_MAX}
    assert (found.owner, found.lease_until) == (None, None)
    # An operator's view is stale now; the holder that was given up can record nothing more.
    assert found.revision == claim.job.revision + 1
    assert found.generation == claim.job.generation + 1
    assert found.attempts == rules.TAKEOVERS_MAX + 1
    assert store.claim(control, search()) is None
    last = rows(database, EVENTS)[-1]
    assert (last["type"], last["severity"], last["done"]) == ("job-failed", "error", False)
    assert (last["reason_code"], last["reason_params"]) == (
        "CRASH_LOOP",
        {"takeovers": rules.TAKEOVERS_MAX},
    )


def test_a_crash_loop_is_kept_in_the_history_of_errors(control: Database) -> None:
    job = a_job(control, takeovers=rules.TAKEOVERS_MAX)
    a_claim(control)
    expire_lease(control, job)
    found = store.claim(control, search())
    assert isinstance(found, Job)
    assert [entry["code"] for entry in found.errors] == ["CRASH_LOOP"]


def test_starts_that_are_not_counted_at_the_claim_loop_for_ever(control: Database) -> None:
    job = a_job(control)
    counted = "takeovers + (expired AND NOT looping)::integer"
    with without(store, "claim", counted, "takeovers"):
        for _ in range(rules.TAKEOVERS_MAX + 3):
            claim = a_claim(control)
            expire_lease(control, job)
    assert claim.job.takeovers == 0


def test_progress_resets_the_count_of_takeovers(control: Database) -> None:
    a_job(control)
    claim = taken_over(control, taken_over(control, a_claim(control)))
    assert claim.job.takeovers == 2
    job = store.settle(control, claim, a_progress(claim))
    assert job.takeovers == 0
    again = a_claim(control)
    assert lease_seconds(again) == 120
    assert lease_seconds(taken_over(control, again)) == 120


def test_a_failure_in_between_does_not_reset_the_count_of_takeovers(control: Database) -> None:
    job = a_job(control)
    claim = taken_over(control, a_claim(control))
    setback = rules.setback(claim.job, Passing(Code.EXPORT_FAILED))
    assert store.set_back(control, claim, setback).takeovers == 1
    make_due(control, job)
    claim = a_claim(control)
    assert not claim.reclaimed
    assert lease_seconds(taken_over(control, claim)) == 240


def test_a_takeover_keeps_what_was_confirmed(control: Database) -> None:
    a_job(control)
    claim = a_claim(control)
    settled = store.settle(control, claim, a_progress(claim))
    claim = taken_over(control, a_claim(control))
    kept = ("batches", "roots", "bytes", "last_sha256", "checkpoint")
    assert [getattr(claim.job, name) for name in kept] == [getattr(settled, name) for name in kept]


def test_a_long_overdue_job_is_taken_over_like_any_other(control: Database) -> None:
    job = a_job(control)
    a_claim(control)
    past = "statement_timestamp() - interval '90 days'"
    change_job(control, job, f"due_at = {past}, lease_until = {past}")
    assert a_claim(control).reclaimed


def test_a_takeover_recorded_apart_from_its_event_may_go_without_it(
    database: str, control: Database
) -> None:
    job = a_job(control)
    a_claim(control)
    expire_lease(control, job)
    # Its process ends between the two statements.
    with without(store, "claim", "    WHERE reclaimed\n", "    WHERE false\n"):
        assert a_claim(control).reclaimed
    assert rows(database, EVENTS) == []


SLOW_SECONDS = 300


def takeovers_until_settled(control: Database, job_id: UUID) -> int | None:
    """Claim and settle a unit that takes longer than a lease; None when the job was given up."""
    while isinstance(found := store.claim(control, search()), Claim):
        later = f"interval '{SLOW_SECONDS} s'"
        change_job(
            control, job_id, f"due_at = due_at - {later}, lease_until = lease_until - {later}"
        )
        try:
            store.settle(control, found, a_progress(found))
        except Uncertain:
            continue
        return found.job.takeovers
    return None


def test_a_unit_that_is_slow_and_not_dead_gets_done_by_a_longer_lease_and_else_never(
    control: Database,
) -> None:
    """As on a volume that stands still for minutes: every process is frozen for the same time."""
    assert takeovers_until_settled(control, a_job(control)) == 3
    control.transact("UPDATE tallystick.job SET state = 'PAUSED'", {})
    longer = " * greatest(1, job.takeovers + found.expired::integer)"
    job = a_job(control)
    with without(store, "claim", longer):
        assert takeovers_until_settled(control, job) is None
    assert store.get(control, job).error_code == Code.CRASH_LOOP


@pytest.mark.parametrize("counted", ["since the last progress", "for ever"])
def test_a_long_job_that_is_taken_over_now_and_then_ends_as_a_crash_loop_if_progress_resets_nothing(
    control: Database, counted: str
) -> None:
    job = a_job(control)
    rule = "takeovers   = 0,"
    with without(store, "settle", rule, rule if counted != "for ever" else ""):
        for _ in range(rules.TAKEOVERS_MAX + 3):
            found = store.claim(control, search())
            expire_lease(control, job)
            if isinstance(found := store.claim(control, search()), Job):
                break
            assert found is not None
            store.settle(control, found, a_progress(found))
    expected = State.FAILED if counted == "for ever" else State.PENDING
    assert store.get(control, job).state is expected
