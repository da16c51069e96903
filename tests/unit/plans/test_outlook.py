"""Why nothing is happening: one reason, the one to mend first, from what database and node say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from shared.errors import Code
from shared.jobs import rules
from shared.jobs.model import State
from shared.messages import words
from shared.messages.template import UNKNOWN
from shared.plans.outlook import QUIET_SECONDS, Here, Situation, Standing, why

VOLUME = "0" * 32
JOB = UUID(int=7)
HERE = Here({"invoices": None, "tickets": "support"}, VOLUME)
NOWHERE = Here(HERE.kinds, None)
JOB_OPEN: dict[str, Any] = {
    "job_id": JOB,
    "job_state": State.PENDING,
    "job_attempts": 3,
    "job_policy_revision": 2,
    "job_due_in": -1.0,
    "job_unmoved": 1.0,
}
FAILED = {**JOB_OPEN, "job_state": State.FAILED, "job_code": "STORAGE_LIMIT"}
PAUSED = {**JOB_OPEN, "job_state": State.PAUSED}
UNMOVED = {**JOB_OPEN, "job_unmoved": QUIET_SECONDS + 1}


def situation(**changes: Any) -> Situation:  # noqa: ANN401 - the members of Situation
    """Return a plan that is due, with everything in order and a tick that came by just now."""
    values: dict[str, Any] = dict.fromkeys(Situation.__dataclass_fields__)
    values |= {
        "plan_id": UUID(int=1),
        "operation": "archive",
        "kind": "invoices",
        "storage_id": VOLUME,
        "namespace_id": UUID(int=2),
        "namespace": "default",
        "namespace_enabled": True,
        "plan_enabled": True,
        "plan_policy_revision": 2,
        "plan_scope": "new",
        "next_run_in": -1.0,
        "policy_now": 2,
        "policy_enabled": True,
        "after_days": 365,
        "batch_size": 1000,
        "job_bytes_left": 10**9,
        "asked_at": datetime(2026, 1, 1, tzinfo=UTC),
        "ticked_ago": 5.0,
    }
    return Situation(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "code", "cause"),
    [
        ({}, Standing.DUE, None),
        ({"plan_enabled": False}, Code.PLAN_DISABLED, None),
        ({"namespace_enabled": False}, Standing.NAMESPACE_DISABLED, None),
        ({"policy_enabled": False}, Code.POLICY_DISABLED, None),
        ({"policy_now": 3}, Standing.PLAN_STALE, None),
        ({"next_run_in": 60.0}, Standing.NEXT_RUN_LATER, None),
        ({"next_run_in": 60.0, "last_roots": 9}, Standing.NEXT_RUN_LATER, None),
        ({"next_run_in": 60.0, "last_roots": 0}, Standing.NOTHING_OLD_ENOUGH, None),
        ({"next_run_in": rules.FARTHEST_PLAN_SECONDS + 60.0}, Standing.DUE, None),
        ({"ticked_ago": QUIET_SECONDS + 1}, Standing.NO_TICK, None),
        ({"ticked_ago": None}, Standing.NO_TICK, "never"),
        ({"kind": "unheard"}, Code.KIND_UNKNOWN, None),
        ({"kind": "tickets"}, Code.NAMESPACE_MISMATCH, None),
        ({"storage_id": "1" * 32}, Standing.OTHER_VOLUME, None),
        (JOB_OPEN, Standing.DUE, "job"),
        ({**JOB_OPEN, "job_state": State.RUNNING}, Standing.DUE, "takeover"),
        ({**JOB_OPEN, "job_state": State.RUNNING, "job_due_in": 90.0}, Standing.AT_WORK, None),
        ({**JOB_OPEN, "job_code": "X", "job_due_in": 90.0}, Standing.BACKING_OFF, None),
        ({**JOB_OPEN, "job_due_in": 90.0}, Standing.BACKING_OFF, "lease"),
        ({**JOB_OPEN, "job_due_in": rules.FARTHEST_JOB_SECONDS + 9.0}, Standing.DUE, "job"),
        (FAILED, Standing.JOB_FAILED, None),
        (PAUSED, Standing.JOB_PAUSED, None),
        ({**PAUSED, "job_code": "CREDENTIAL_MISSING"}, Standing.JOB_PAUSED, "missing"),
        ({**JOB_OPEN, "policy_now": 3}, Code.POLICY_CHANGED, None),
        ({**JOB_OPEN, "policy_enabled": False}, Code.POLICY_CHANGED, None),
        ({**JOB_OPEN, "namespace_enabled": False}, Standing.NAMESPACE_DISABLED, None),
        ({**JOB_OPEN, "kind": "unheard"}, Standing.DUE, "job"),
        ({**JOB_OPEN, "ticked_ago": QUIET_SECONDS + 1}, Standing.NO_TICK, None),
    ],
)
def test_each_situation_has_its_reason(
    changes: dict[str, Any], code: Code | Standing, cause: str | None
) -> None:
    found = why(situation(**changes), HERE)
    assert (found.code, found.params.get("cause")) == (code, cause)
    told = words(str(found.code), found.params)
    assert UNKNOWN not in told.happened
    assert told.next_step


SCAN = {
    "kind": None,
    "operation": "scan",
    "plan_policy_revision": None,
    "policy_now": None,
    "after_days": None,
}


@pytest.mark.parametrize(
    ("changes", "code", "cause"),
    [
        ({}, Standing.DUE, None),
        ({"plan_enabled": False}, Code.PLAN_DISABLED, "scan"),
        ({"next_run_in": 9.0, "last_roots": 0}, Standing.NEXT_RUN_LATER, "scan"),
    ],
)
def test_a_scan_has_neither_policy_nor_kind(
    changes: dict[str, Any], code: Code | Standing, cause: str | None
) -> None:
    found = why(situation(**SCAN, **changes), HERE)
    assert (found.code, found.params.get("cause")) == (code, cause)


def test_a_job_that_waits_for_an_operator_comes_before_everything_else() -> None:
    wrong = {"plan_enabled": False, "namespace_enabled": False, "ticked_ago": None}
    assert why(situation(**{**FAILED, **wrong}), NOWHERE).code is Standing.JOB_FAILED


def test_a_switch_comes_before_a_schedule_that_has_stopped() -> None:
    found = why(situation(plan_enabled=False, ticked_ago=None), NOWHERE)
    assert found.code is Code.PLAN_DISABLED


def test_a_plan_whose_time_has_not_come_needs_no_ticks() -> None:
    waiting = situation(next_run_in=3600.0, ticked_ago=QUIET_SECONDS * 4)
    assert why(waiting, NOWHERE).code is Standing.NEXT_RUN_LATER


def test_what_this_node_lacks_matters_only_while_no_other_does_the_work() -> None:
    assert why(situation(**JOB_OPEN), NOWHERE).code is Standing.DUE
    assert why(situation(**UNMOVED), NOWHERE).code is Code.VOLUME_NOT_CONFIGURED
    assert why(situation(**JOB_OPEN | {"job_attempts": 0}), NOWHERE).code is (
        Code.VOLUME_NOT_CONFIGURED
    )


def test_where_nothing_ever_ticked_what_this_node_lacks_comes_first() -> None:
    assert why(situation(ticked_ago=None), NOWHERE).code is Code.VOLUME_NOT_CONFIGURED


def test_when_the_schedule_has_stopped_is_for_the_node_to_say() -> None:
    patient = Here(HERE.kinds, VOLUME, quiet_seconds=7200.0)
    assert why(situation(ticked_ago=3600.0), HERE).code is Standing.NO_TICK
    assert why(situation(ticked_ago=3600.0), patient).code is Standing.DUE


def test_the_job_and_its_code_are_among_the_parameters() -> None:
    found = why(situation(**FAILED), HERE)
    assert found.params == {"kind": "invoices", "job": str(JOB), "code": "STORAGE_LIMIT"}
