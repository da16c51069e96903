"""Operators change namespaces, policies and plans: within bounds, by revision, and audited."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from shared.db.audit import Signature
from shared.db.connect import Database, Row, connect
from shared.db.statement import statement
from shared.errors import Code, Refused
from shared.jobs import rules
from shared.plans import namespaces, planning, policies
from shared.plans.planning import PlanChange
from shared.plans.policies import PolicyChange
from shared.plans.schedule import KnownKind, schedule
from tests import worlds
from tests.worlds import SIGNED, a_plan, a_policy, a_storage_id, one, rows

AUDIT = "SELECT * FROM tallystick.audit_entry ORDER BY occurred_at DESC, id LIMIT 1"


def refused(call: Any, *args: Any, **changes: Any) -> Refused:  # noqa: ANN401
    with pytest.raises(Refused) as caught:
        call(*args, **changes)
    return caught.value


def put(
    control: Database,
    storage_id: str | None,
    revision: int | None,
    **changes: Any,  # noqa: ANN401
) -> Row:
    wanted = PlanChange("archive", "invoices", storage_id, **changes)
    return planning.put(control, "default", wanted, Signature("ann", "because", revision))


def test_an_unsaved_plan_has_revision_0_and_every_save_moves_it(
    control: Database, storage_id: str
) -> None:
    a_policy(control, "invoices")
    assert refused(put, control, storage_id, 1).params == {"seen": 1, "current": 0}
    assert put(control, storage_id, 0)["revision"] == 1
    assert put(control, storage_id, 1, batch_size=5)["revision"] == 2
    stale = refused(put, control, storage_id, 1)
    assert (stale.code, stale.params) == (Code.REVISION_STALE, {"seen": 1, "current": 2})


def test_what_a_change_does_not_name_stays_as_it_is(control: Database, storage_id: str) -> None:
    a_policy(control, "invoices")
    changes = {"enabled": True, "scope": "all", "interval_seconds": 7200}
    changes |= {"batch_size": 7, "max_bytes": 2**22}
    put(control, storage_id, None, **changes)
    after = put(control, None, None)
    assert {name: after[name] for name in changes} == changes
    assert after["storage_id"] == storage_id


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("interval_seconds", 3600, 30 * 24 * 3600),
        ("batch_size", 1, 100_000),
        ("max_bytes", 2**20, 2**40),
    ],
)
def test_a_plan_is_kept_within_bounds(
    control: Database, storage_id: str, name: str, lowest: int, highest: int
) -> None:
    a_policy(control, "invoices")
    for value in (lowest - 1, highest + 1):
        error = refused(put, control, storage_id, None, **{name: value})
        assert (error.code, error.params["name"]) == (Code.VALUE_OUT_OF_RANGE, name)
    for value in (lowest, highest):
        assert put(control, storage_id, None, **{name: value})[name] == value


def test_enabling_needs_an_enabled_policy_and_disabling_does_not(
    control: Database, storage_id: str
) -> None:
    assert refused(put, control, storage_id, None, enabled=True).code is Code.POLICY_MISSING
    a_policy(control, "invoices", enabled=False)
    assert refused(put, control, storage_id, None, enabled=True).code is Code.POLICY_DISABLED
    assert not put(control, storage_id, None, enabled=False)["enabled"]
    a_policy(control, "invoices")
    assert put(control, storage_id, None, enabled=True)["enabled"]
    a_policy(control, "invoices", enabled=False)
    assert not put(control, storage_id, None, enabled=False)["enabled"]


def test_a_plan_needs_a_volume(control: Database) -> None:
    a_policy(control, "invoices")
    assert refused(put, control, None, None).code is Code.VOLUME_NOT_CONFIGURED


def test_a_volume_no_node_has_used_is_refused_with_a_code(control: Database) -> None:
    a_policy(control, "invoices")
    assert refused(put, control, "f" * 32, None).code is Code.VOLUME_UNKNOWN


def test_disabling_needs_no_volume_of_this_node(control: Database, storage_id: str) -> None:
    a_policy(control, "invoices")
    put(control, storage_id, None, enabled=True)
    after = put(control, None, None, enabled=False)
    assert (after["enabled"], after["storage_id"]) == (False, storage_id)


def test_the_volume_cannot_change_while_a_job_is_open(control: Database, storage_id: str) -> None:
    other = a_storage_id(control)
    a_plan(control, "invoices", storage_id)
    (job,) = schedule(control, [KnownKind("invoices", "default", {})], ["archive"]).jobs
    assert refused(put, control, other, None).code is Code.JOB_OPEN
    assert put(control, storage_id, None, batch_size=9)["batch_size"] == 9
    worlds.change_job(control, job, "state = 'ABANDONED', closed_at = clock_timestamp()")
    assert put(control, other, None)["storage_id"] == other


def test_the_volume_cannot_change_while_a_job_is_just_being_made(
    database: str, control: Database, storage_id: str
) -> None:
    other = a_storage_id(control)
    a_plan(control, "invoices", storage_id)

    def change() -> Row:
        with closing(worlds.control(database)) as mine:
            return put(mine, other, None)

    with ThreadPoolExecutor(1) as pool, connect(database) as scheduler:
        with scheduler.transaction():
            made = scheduler.execute(statement("shared.plans", "schedule"), SCHEDULE).fetchall()
            assert [row["id"] is not None for row in made] == [True]
            changing = pool.submit(change)
            wait_until_blocked(database)
        with pytest.raises(Refused) as caught:
            changing.result(30)
    assert caught.value.code is Code.JOB_OPEN
    assert one(database, "SELECT count(DISTINCT storage_id) FROM tallystick.plan") == 1


SCHEDULE: dict[str, object] = {
    "kinds": '[{"kind": "invoices", "namespace": null, "definition": {}}]',
    "operations": ["archive"],
    "farthest_seconds": rules.FARTHEST_PLAN_SECONDS,
    "plans_max": rules.DUE_PLANS_MAX,
    "ticked": [],
    "noted_seconds": 5,
}


def wait_until_blocked(database: str) -> None:
    question = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    give_up = time.monotonic() + 20
    while one(database, question) == 0:
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_an_operator_at_work_in_a_namespace_does_not_hold_up_its_scheduling(
    database: str, control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id)
    with connect(database) as operator, operator.transaction():
        namespaces.lock(operator, "default")
        started = time.monotonic()
        assert len(schedule(control, [KnownKind("invoices", None, {})], ["archive"]).jobs) == 1
        assert time.monotonic() - started < 2


def test_scheduling_and_a_change_of_policy_do_not_deadlock(
    database: str, control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id)
    change = statement("shared.plans", "set_policy")
    wanted = {"namespace_id": worlds.namespace_id(control), "kind": "invoices"}
    wanted |= {"after_days": 3, "enabled": True}

    def run() -> object:
        with connect(database) as scheduler, scheduler.transaction():
            return scheduler.execute(statement("shared.plans", "schedule"), SCHEDULE).fetchall()

    with ThreadPoolExecutor(1) as pool, connect(database) as operator:
        with operator.transaction():
            namespaces.lock(operator, "default")
            scheduling = pool.submit(run)
            time.sleep(0.5)
            operator.execute(change, wanted)
        assert scheduling.result(30) is not None


def test_two_operators_at_once_change_a_plan_one_after_the_other(
    database: str, control: Database, storage_id: str
) -> None:
    a_policy(control, "invoices")

    def change(number: int) -> str:
        with closing(worlds.control(database)) as mine:
            try:
                put(mine, storage_id, 0, batch_size=number)
            except Refused as error:
                return str(error.code)
            return "saved"

    with ThreadPoolExecutor(4) as pool:
        endings = sorted(pool.map(change, range(1, 5)))
    assert endings == ["REVISION_STALE"] * 3 + ["saved"]


def test_a_scope_that_is_neither_new_nor_all_does_not_get_in(
    control: Database, storage_id: str
) -> None:
    a_policy(control, "invoices")
    with pytest.raises(psycopg.errors.CheckViolation):
        put(control, storage_id, None, scope="some")


def test_saving_an_enabled_plan_keeps_its_slot_unless_the_new_interval_is_over_sooner(
    database: str, control: Database, storage_id: str
) -> None:
    a_plan(control, None, storage_id, interval_seconds=24 * 3600)
    schedule(control, (), ["scan"])
    ahead = "SELECT extract(epoch FROM next_run_at - clock_timestamp()) FROM tallystick.plan"
    a_plan(control, None, storage_id, batch_size=9)
    assert 86390 < one(database, ahead) <= 86400
    a_plan(control, None, storage_id, interval_seconds=3600)
    assert 3590 < one(database, ahead) <= 3600


def test_one_plan_per_kind_and_one_scan_per_volume(
    database: str, control: Database, storage_id: str
) -> None:
    first = a_plan(control, "invoices", storage_id)
    assert a_plan(control, "invoices", storage_id)["id"] == first["id"]
    scan = a_plan(control, None, storage_id)
    assert a_plan(control, None, storage_id)["id"] == scan["id"]
    assert a_plan(control, None, a_storage_id(control))["id"] != scan["id"]


def test_plans_are_listed_with_their_open_job_and_present_policy(
    control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id)
    (job,) = schedule(control, [KnownKind("invoices", None, {})], ["archive"]).jobs
    a_policy(control, "invoices", after_days=9)
    (row,) = planning.listed(control)
    assert (row["active_job_id"], row["active_job_state"]) == (job, "PENDING")
    assert (row["policy_revision"], row["policy_now"]) == (1, 2)


def test_changes_of_namespace_policy_and_plan_are_audited_with_before_and_after(
    database: str, control: Database, storage_id: str
) -> None:
    def newest() -> tuple[Any, ...]:
        (row,) = rows(database, AUDIT)
        before, after = row["before"], row["after"]
        return (row["action"], row["subject"], before and before["revision"], after["revision"])

    namespaces.create(control, "finance", SIGNED)
    assert newest() == ("create", "namespace", None, 1)
    namespaces.switch(control, "finance", SIGNED, enabled=False)
    assert newest() == ("disable", "namespace", 1, 2)
    a_policy(control, "invoices")
    assert newest() == ("set", "policy", None, 1)
    a_policy(control, "invoices", after_days=3)
    assert newest() == ("set", "policy", 1, 2)
    a_plan(control, "invoices", storage_id)
    assert newest() == ("set", "plan", None, 1)
    a_plan(control, "invoices", storage_id, batch_size=3)
    assert newest() == ("set", "plan", 1, 2)
    assert one(database, "SELECT count(*) FROM tallystick.audit_entry WHERE actor <> 'tester'") == 0


def test_a_refused_change_leaves_no_audit_entry(database: str, control: Database) -> None:
    stale = Signature("ann", "because", revision=9)
    refused(policies.put, control, "default", PolicyChange("invoices"), stale)
    refused(namespaces.switch, control, "default", stale, enabled=False)
    refused(namespaces.create, control, "default", SIGNED)
    refused(namespaces.create, control, "No Such Name", SIGNED)
    assert one(database, "SELECT count(*) FROM tallystick.audit_entry") == 0


@pytest.mark.parametrize("days", [-1, rules.AFTER_MAX_DAYS + 1])
def test_a_policy_is_kept_within_bounds(control: Database, days: int) -> None:
    wanted = PolicyChange("invoices", after_days=days)
    error = refused(policies.put, control, "default", wanted, SIGNED)
    assert error.code is Code.VALUE_OUT_OF_RANGE


def test_a_namespace_may_be_left_out_while_it_is_alone(control: Database) -> None:
    assert namespaces.find(control, None)["name"] == "default"
    namespaces.create(control, "finance", SIGNED)
    assert refused(namespaces.find, control, None).params == {"names": ["default", "finance"]}
    assert namespaces.find(control, "finance")["name"] == "finance"
    assert refused(namespaces.find, control, "sales").code is Code.NAMESPACE_UNKNOWN
