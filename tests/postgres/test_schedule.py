"""Plans that are due become jobs: one each, in time, and from where the last one ended."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from shared.db.audit import Signature
from shared.db.connect import Database, Row, connect
from shared.db.statement import statement
from shared.errors import Code, Verdict
from shared.jobs import rules, steer, store
from shared.jobs.model import Claim, Job, State
from shared.jobs.rules import Action
from shared.plans import namespaces
from shared.plans import schedule as scheduling
from shared.plans.schedule import KnownKind, asked, schedule
from tests import worlds
from tests.worlds import (
    SIGNED,
    a_claim,
    a_job,
    a_plan,
    a_policy,
    a_progress,
    a_storage_id,
    altered,
    make_due,
    one,
    rows,
    without,
)

DEFINITION: dict[str, Any] = {"source": "application", "root": "public.invoice"}
INVOICES = KnownKind("invoices", "default", DEFINITION)
MAKE_DUE = "UPDATE tallystick.plan SET next_run_at = clock_timestamp() - interval '1 minute'"


def run(control: Database, kinds: Iterable[KnownKind] = (INVOICES,)) -> list[Job]:
    """Schedule once and return the jobs that were made."""
    made = schedule(control, kinds, ["archive", "scan"]).jobs
    return [store.get(control, each) for each in made]


def next_run(control: Database, kinds: Iterable[KnownKind] = (INVOICES,)) -> Job:
    """Let every plan be due, and return the one job that is made."""
    control.transact(MAKE_DUE, {})
    (job,) = run(control, kinds)
    return job


def finished(control: Database, storage_id: str, **changes: Any) -> Job:  # noqa: ANN401
    """Claim what is due and settle one final unit of it."""
    claim: Claim = a_claim(control, storage_id)
    return store.settle(control, claim, a_progress(claim, **({"final": True} | changes)))


def plan_of(database: str) -> Row:
    return rows(database, "SELECT * FROM tallystick.plan")[0]


def test_first_enabling_is_due_at_once(database: str, control: Database, storage_id: str) -> None:
    a_plan(control, "invoices", storage_id, enabled=False)
    assert plan_of(database)["next_run_at"] is None
    assert run(control) == []
    a_plan(control, "invoices", storage_id, enabled=True)
    assert len(run(control)) == 1


def test_a_job_takes_everything_from_its_plan_and_policy(
    database: str, control: Database, storage_id: str
) -> None:
    policy = a_policy(control, "invoices", after_days=30)
    plan = a_plan(control, "invoices", storage_id, batch_size=20, max_bytes=2**21, scope="all")
    before = one(database, "SELECT clock_timestamp() - interval '30 days'")
    (job,) = run(control)
    assert (job.operation, job.kind, job.state) == ("archive", "invoices", State.PENDING)
    assert (job.plan_id, job.plan_revision) == (plan["id"], plan["revision"])
    assert (job.policy_revision, job.storage_id) == (policy["revision"], storage_id)
    assert (job.batch_size, job.page_size, job.max_bytes) == (20, 20, 2**21)
    assert job.input["definition"] == DEFINITION
    assert job.input["policy"] == {"revision": policy["revision"], "after_days": 30}
    assert (job.input["scope"], job.input["namespace"]) == ("all", "default")
    assert (job.input["after"], job.input["previous"]) == (None, None)
    cutoff = one(database, "SELECT %s::timestamptz", job.input["cutoff_at"])
    assert 0 <= (cutoff - before).total_seconds() < 10


def test_a_scan_needs_no_policy(control: Database, storage_id: str) -> None:
    a_plan(control, None, storage_id)
    (job,) = run(control)
    assert (job.operation, job.kind, job.input) == ("scan", None, {})


def disable_plan(control: Database, storage_id: str) -> None:
    a_plan(control, "invoices", storage_id, enabled=False)


def disable_namespace(control: Database, storage_id: str) -> None:
    namespaces.switch(control, "default", SIGNED, enabled=False)


def change_policy(control: Database, storage_id: str) -> None:
    a_policy(control, "invoices", after_days=9)


def disable_policy(control: Database, storage_id: str) -> None:
    a_policy(control, "invoices", enabled=False)
    control.transact(
        "UPDATE tallystick.plan SET policy_revision = policy.revision FROM tallystick.policy", {}
    )


def not_yet(control: Database, storage_id: str) -> None:
    control.transact(
        "UPDATE tallystick.plan SET next_run_at = clock_timestamp() + interval '1 minute'", {}
    )


@pytest.mark.parametrize(
    "reason", [disable_plan, disable_namespace, change_policy, disable_policy, not_yet]
)
def test_a_plan_makes_no_job(control: Database, storage_id: str, reason: Any) -> None:  # noqa: ANN401
    a_plan(control, "invoices", storage_id)
    reason(control, storage_id)
    assert run(control) == []


def test_a_kind_this_node_does_not_know_makes_no_job(control: Database, storage_id: str) -> None:
    a_plan(control, "invoices", storage_id)
    elsewhere = KnownKind("invoices", "another", DEFINITION)
    assert run(control, [KnownKind("orders", None, DEFINITION), elsewhere]) == []
    assert len(run(control)) == 1


def test_an_operation_that_was_not_asked_for_makes_no_job(
    control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id)
    a_plan(control, None, storage_id)
    assert len(schedule(control, [INVOICES], ["scan"]).jobs) == 1
    assert len(schedule(control, [INVOICES], ["archive"]).jobs) == 1


def test_a_plan_saved_again_against_the_changed_policy_makes_jobs_again(
    control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id)
    change_policy(control, storage_id)
    assert run(control) == []
    a_plan(control, "invoices", storage_id)
    (job,) = run(control)
    assert job.input["policy"] == {"revision": 2, "after_days": 9}


def test_a_plan_due_impossibly_far_away_is_due_now(control: Database, storage_id: str) -> None:
    a_plan(control, "invoices", storage_id)
    far = "UPDATE tallystick.plan SET next_run_at = now() + make_interval(secs => %(far)s)"
    control.transact(far, {"far": rules.FARTHEST_PLAN_SECONDS - 60})
    assert run(control) == []
    control.transact(far, {"far": rules.FARTHEST_PLAN_SECONDS + 60})
    assert len(run(control)) == 1


def test_an_open_job_keeps_its_plan_from_making_another(control: Database, storage_id: str) -> None:
    a_plan(control, None, storage_id)
    (job,) = run(control)
    for state in ("PENDING", "PAUSED", "FAILED"):
        worlds.change_job(control, job.id, f"state = '{state}', error_code = 'X'")
        control.transact(MAKE_DUE, {})
        assert run(control) == []
    worlds.change_job(control, job.id, "state = 'PENDING'")
    a_claim(control, storage_id)
    assert run(control) == []


def test_disabling_a_plan_stops_new_jobs_only(control: Database, storage_id: str) -> None:
    a_plan(control, "invoices", storage_id)
    (job,) = run(control)
    a_plan(control, "invoices", storage_id, enabled=False)
    claim = a_claim(control, storage_id)
    assert (claim.job.id, claim.barred) == (job.id, None)


def test_missed_periods_merge_into_one_run(
    database: str, control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id, interval_seconds=7200)
    control.transact("UPDATE tallystick.plan SET next_run_at = now() - interval '30 days'", {})
    assert len(run(control)) == 1
    ahead = "SELECT extract(epoch FROM next_run_at - clock_timestamp()) FROM tallystick.plan"
    assert 7190 < one(database, ahead) <= 7200
    finished(control, storage_id)
    assert run(control) == []


def test_a_closed_job_and_the_next_period_make_the_next_job(
    control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id)
    first = next_run(control)
    finished(control, storage_id)
    assert next_run(control).id != first.id


def test_scheduling_again_makes_nothing_twice(control: Database, storage_id: str) -> None:
    a_plan(control, "invoices", storage_id)
    assert len(run(control)) == 1
    control.transact(MAKE_DUE, {})
    assert run(control) == []


def test_many_schedulers_at_once_make_one_job_of_each_plan(
    database: str, control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id)
    a_plan(control, None, storage_id)

    def race(_: int) -> int:
        with closing(worlds.control(database)) as mine:
            return len(run(mine))

    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(race, range(6)))
    assert sum(made) == 2
    assert one(database, "SELECT count(*) FROM tallystick.job") == 2


def test_a_plan_that_another_scheduler_holds_is_left_to_it(
    database: str, control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id)
    a_plan(control, None, storage_id)
    with connect(database) as other, other.transaction():
        other.execute("SELECT FROM tallystick.plan WHERE operation = 'scan' FOR UPDATE")
        assert [job.operation for job in run(control)] == ["archive"]


def test_one_tick_makes_at_most_sixteen_jobs(control: Database) -> None:
    for _ in range(rules.DUE_PLANS_MAX + 3):
        a_plan(control, None, a_storage_id(control))
    assert len(run(control)) == rules.DUE_PLANS_MAX
    assert len(run(control)) == 3


def test_blocked_plans_ahead_in_line_do_not_starve_the_others(control: Database) -> None:
    for _ in range(rules.DUE_PLANS_MAX):
        a_plan(control, None, a_storage_id(control))
    blocked = run(control)
    for job in blocked:
        worlds.change_job(control, job.id, "state = 'FAILED', error_code = 'STORAGE_LIMIT'")
    control.transact("UPDATE tallystick.plan SET next_run_at = now() - interval '9 days'", {})
    starving = a_plan(control, None, a_storage_id(control))
    # Asked after the limit instead, whether a plan has an open job comes too late.
    text = statement("shared.plans", "schedule")
    start, end = text.index("      AND NOT EXISTS ("), text.index("    ORDER BY plan.next_run_at")
    too_late = altered(text, text[start:end])
    made = control.transact(too_late, asked((), ["scan"]))
    assert [row["id"] for row in made] == [None]
    assert [job.plan_id for job in run(control)] == [starving["id"]]


def test_plans_blocked_by_their_policy_do_not_starve_the_others(control: Database) -> None:
    storage_id = a_storage_id(control)
    names = [f"kind{number}" for number in range(rules.DUE_PLANS_MAX)]
    for name in names:
        a_plan(control, name, storage_id)
        a_policy(control, name, after_days=9)
    control.transact("UPDATE tallystick.plan SET next_run_at = now() - interval '9 days'", {})
    free = a_plan(control, None, a_storage_id(control))
    kinds = [KnownKind(name, None, DEFINITION) for name in names]
    assert [job.plan_id for job in run(control, kinds)] == [free["id"]]


CURSOR = {"cursor": ["2026-03-01", "77"], "rows": 10}


def test_scope_new_goes_on_after_the_end_of_the_last_succeeded_job(
    control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id, scope="new")
    first = next_run(control)
    assert (first.input["after"], first.input["archived_before"]) == (None, 0)
    finished(control, storage_id, checkpoint=CURSOR)
    second = next_run(control)
    assert (second.input["after"], second.input["archived_before"]) == (CURSOR["cursor"], 10)
    finished(control, storage_id, roots=5, checkpoint=CURSOR)
    assert next_run(control).input["archived_before"] == 15


def test_the_end_of_an_empty_job_is_its_start(control: Database, storage_id: str) -> None:
    a_plan(control, "invoices", storage_id, scope="new")
    next_run(control)
    finished(control, storage_id, checkpoint=CURSOR)
    empty = next_run(control)
    # What an archive settles when its page held nothing: the cursor it began with.
    finished(control, storage_id, roots=0, checkpoint={"cursor": empty.input["after"], "rows": 0})
    job = next_run(control)
    assert (job.input["after"], job.input["archived_before"]) == (CURSOR["cursor"], 10)


def test_scope_all_begins_at_the_beginning_each_time(control: Database, storage_id: str) -> None:
    a_plan(control, "invoices", storage_id, scope="all")
    next_run(control)
    finished(control, storage_id, checkpoint=CURSOR)
    job = next_run(control)
    assert (job.input["after"], job.input["archived_before"]) == (None, 0)
    assert job.input["previous"] is not None


def test_a_changed_definition_begins_at_the_beginning(control: Database, storage_id: str) -> None:
    a_plan(control, "invoices", storage_id, scope="new")
    next_run(control)
    finished(control, storage_id, checkpoint=CURSOR)
    wider = KnownKind("invoices", "default", DEFINITION | {"where": "paid"})
    job = next_run(control, [wider])
    assert (job.input["after"], job.input["archived_before"]) == (None, 0)
    assert job.input["definition"] == wider.definition


def test_a_definition_in_another_order_is_the_same_definition(
    control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id, scope="new")
    next_run(control)
    finished(control, storage_id, checkpoint=CURSOR)
    same = KnownKind("invoices", "default", dict(reversed(DEFINITION.items())))
    assert next_run(control, [same]).input["after"] == CURSOR["cursor"]


def test_an_abandoned_job_does_not_move_the_start(control: Database, storage_id: str) -> None:
    a_plan(control, "invoices", storage_id, scope="new")
    next_run(control)
    finished(control, storage_id, checkpoint=CURSOR)
    abandoned = next_run(control)
    claim = a_claim(control, storage_id)
    further = {"cursor": ["2026-09-09", "99"], "rows": 9}
    store.settle(control, claim, a_progress(claim, checkpoint=further))
    steer.act(control, abandoned.id, Action.ABANDON, SIGNED)
    job = next_run(control)
    assert (job.input["after"], job.input["archived_before"]) == (CURSOR["cursor"], 10)


def test_a_job_links_to_the_last_closed_job_and_its_tail(
    control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id)
    first = next_run(control)
    finished(control, storage_id, tail="a" * 64)
    second = next_run(control)
    assert second.input["previous"] == {"job": str(first.id), "tail": "a" * 64}
    claim = a_claim(control, storage_id)
    store.settle(control, claim, a_progress(claim, tail="b" * 64))
    steer.act(control, second.id, Action.ABANDON, SIGNED)
    third = next_run(control)
    assert third.input["previous"] == {"job": str(second.id), "tail": "b" * 64}
    steer.act(control, third.id, Action.ABANDON, SIGNED)
    # The third confirmed nothing, so there is no tail to link to.
    assert next_run(control).input["previous"] == {"job": str(second.id), "tail": "b" * 64}


def test_a_job_of_another_plan_is_neither_start_nor_link(
    control: Database, storage_id: str
) -> None:
    orders = KnownKind("orders", "default", DEFINITION)
    a_plan(control, "invoices", storage_id)
    next_run(control)
    finished(control, storage_id, checkpoint=CURSOR)
    a_plan(control, "invoices", storage_id, enabled=False)
    a_plan(control, "orders", storage_id)
    (job,) = run(control, [orders])
    assert (job.input["after"], job.input["previous"]) == (None, None)


def test_a_plan_of_one_namespace_is_not_bound_to_the_policy_of_another(
    control: Database, storage_id: str
) -> None:
    namespaces.create(control, "finance", SIGNED)
    a_policy(control, "invoices", "finance", after_days=1)
    a_plan(control, "invoices", storage_id, "finance")
    a_policy(control, "invoices", "default", after_days=5)
    a_plan(control, "invoices", storage_id, "default")
    anywhere = KnownKind("invoices", None, DEFINITION)
    days = {
        job.input["namespace"]: job.input["policy"]["after_days"]
        for job in run(control, [anywhere])
    }
    assert days == {"finance": 1, "default": 5}


def test_a_running_job_of_the_old_policy_is_barred_and_no_retry_cures_it(
    control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id)
    job = next_run(control)
    change_policy(control, storage_id)
    claim = a_claim(control, storage_id)
    assert claim.barred is Code.POLICY_CHANGED
    worlds.change_job(control, job.id, "state = 'FAILED', owner = NULL, error_code = 'X'")
    retried = steer.act(control, job.id, Action.RETRY, Signature("ann", "again"))
    assert (retried.policy_revision, retried.input) == (job.policy_revision, job.input)
    make_due(control, job.id)
    assert a_claim(control, storage_id).barred is Code.POLICY_CHANGED


def test_ids_of_jobs_are_returned_only_for_jobs_that_were_made(
    control: Database, storage_id: str
) -> None:
    plan = a_plan(control, None, storage_id)
    made = schedule(control, (), ["scan"]).jobs
    assert [store.get(control, each).plan_id for each in made] == [plan["id"]]


def test_how_long_the_oldest_due_job_has_waited_is_told_with_and_without_new_jobs(
    control: Database, storage_id: str
) -> None:
    assert schedule(control, (), ["scan"]).oldest_due_seconds == 0
    a_job(control, storage_id=storage_id, due_in=3600)
    assert schedule(control, (), ["scan"]).oldest_due_seconds == 0
    a_job(control, storage_id=storage_id, due_in=-600)
    a_job(control, storage_id=storage_id, due_in=-60)
    a_plan(control, None, storage_id)
    made = schedule(control, (), ["scan"])
    assert len(made.jobs) == 1
    assert made.oldest_due_seconds == pytest.approx(600, abs=5)
    assert schedule(control, (), ["scan"]).oldest_due_seconds == pytest.approx(600, abs=5)


def test_a_plan_that_is_not_skipped_while_another_scheduler_holds_it_is_waited_for(
    database: str, control: Database, storage_id: str
) -> None:
    a_plan(control, None, storage_id)
    text = statement("shared.plans", "schedule")
    waits = altered(text, "FOR UPDATE OF plan SKIP LOCKED", "FOR UPDATE OF plan")
    with connect(database) as other, connect(database) as ours, other.transaction():
        other.execute("SELECT FROM tallystick.plan FOR UPDATE")
        assert run(control) == []
        ours.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            ours.execute(waits.encode(), asked((), ["scan"]))


def test_a_policy_that_is_not_held_changes_under_the_job_that_is_made_of_it(
    database: str, control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id)
    text = statement("shared.plans", "schedule")
    change = "UPDATE tallystick.policy SET revision = revision + 1"

    def changed_meanwhile(scheduling: str) -> None:
        with connect(database) as ours, connect(database) as operator:
            operator.execute("SET lock_timeout = '100ms'")
            with ours.transaction():
                made = ours.execute(scheduling.encode(), asked([INVOICES], ["archive"])).fetchall()
                assert made[0]["id"] is not None
                operator.execute(change.encode())

    with pytest.raises(psycopg.errors.LockNotAvailable):
        changed_meanwhile(text)
    assert one(database, "SELECT count(*) FROM tallystick.job") == 0
    changed_meanwhile(altered(text, "    FOR SHARE OF policy SKIP LOCKED\n"))
    assert a_claim(control, storage_id).barred is Code.POLICY_CHANGED


def test_failures_pile_up_if_a_failed_job_gives_up_the_place_of_its_plan(
    database: str, control: Database, storage_id: str
) -> None:
    a_plan(control, None, storage_id)
    index = one(database, "SELECT pg_get_indexdef('tallystick.job_open'::regclass)")
    rows(database, f"DROP INDEX tallystick.job_open; {altered(index, _FAILED_OF_INDEX)}")
    with without(scheduling, "schedule", ", 'FAILED')", ")"):
        for _ in range(3):
            claim = fail(control, storage_id)
            assert claim.job.plan_id is not None
    assert one(database, "SELECT count(*) FROM tallystick.job WHERE state = 'FAILED'") == 3


# As the server spells it.
_FAILED_OF_INDEX = ", 'FAILED'::text"


def fail(control: Database, storage_id: str) -> Claim:
    """Let the plan of a scan make a job, and fail it."""
    control.transact(MAKE_DUE, {})
    assert len(schedule(control, (), ["scan"]).jobs) == 1
    claim = a_claim(control, storage_id)
    store.set_back(control, claim, rules.setback(claim.job, Verdict(Code.FILE_CHECK_FAILED)))
    return claim


def test_without_a_bound_a_clock_that_jumped_parks_a_plan_for_ever(
    control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id)
    control.transact("UPDATE tallystick.plan SET next_run_at = now() + interval '90 years'", {})
    far = (
        " OR plan.next_run_at > statement_timestamp() + make_interval(secs => %(farthest_seconds)s)"
    )
    with without(scheduling, "schedule", far):
        assert run(control) == []
    assert len(run(control)) == 1


def test_a_plan_bound_to_an_older_policy_archives_what_nobody_planned(
    control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id)
    change_policy(control, storage_id)
    looks = (
        "\n            AND policy.revision = plan.policy_revision",
        " AND policy.revision = due.policy_revision",
    )
    with without(scheduling, "schedule", looks[0]), without(scheduling, "schedule", looks[1]):
        (job,) = run(control)
    assert job.input["policy"]["after_days"] == 9
    assert job.policy_revision != job.input["policy"]["revision"]


def test_scope_new_loses_rows_if_it_goes_on_from_a_job_that_did_not_succeed(
    control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id, scope="new")
    abandoned = next_run(control)
    claim = a_claim(control, storage_id)
    store.settle(control, claim, a_progress(claim, checkpoint=CURSOR))
    steer.act(control, abandoned.id, Action.ABANDON, SIGNED)
    with without(scheduling, "schedule", ".state = 'SUCCEEDED'", ".closed_at IS NOT NULL"):
        job = next_run(control)
    # Its files are no part of a finished archive, and the rows in them would come into no other.
    assert job.input["after"] == CURSOR["cursor"]


def test_scope_new_loses_rows_if_another_definition_goes_on_where_the_last_one_ended(
    control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id, scope="new")
    next_run(control)
    finished(control, storage_id, checkpoint=CURSOR)
    wider = KnownKind("invoices", "default", DEFINITION | {"where": "paid"})
    same = "          AND job.input -> 'definition' = kinds.definition\n"
    with without(scheduling, "schedule", same):
        job = next_run(control, [wider])
    # What the wider condition takes in below that end is skipped.
    assert job.input["after"] == CURSOR["cursor"]


def test_an_empty_job_that_ends_nowhere_makes_the_next_one_begin_at_the_beginning(
    control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id, scope="new")
    next_run(control)
    finished(control, storage_id, checkpoint=CURSOR)
    next_run(control)
    finished(control, storage_id, roots=0, checkpoint={"cursor": None, "rows": 0})
    assert next_run(control).input["after"] is None


def test_without_lock_and_index_two_schedulers_make_two_jobs_of_one_plan(
    database: str, control: Database, storage_id: str
) -> None:
    a_plan(control, None, storage_id)
    rows(database, "DROP INDEX tallystick.job_open")
    text = altered(statement("shared.plans", "schedule"), "    FOR UPDATE OF plan SKIP LOCKED\n")
    start, end = text.index("    ON CONFLICT (plan_id)"), text.index("    RETURNING id, plan_id")
    # The plan's next run is moved by both, and the second would wait for the first there.
    moved = text[text.index("), moved AS (") : text.index("), first_ticked AS (")]
    careless = altered(altered(text, text[start:end]), moved)
    with connect(database) as first, connect(database) as second, first.transaction():
        for each in (first, second):
            each.execute(careless.encode(), asked((), ["scan"]))
    assert one(database, "SELECT count(*) FROM tallystick.job WHERE state = 'PENDING'") == 2
