"""What a kinds file asks, against what is there: a table of cases, and a law that holds for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.plans.difference import (
    Action,
    Drift,
    Present,
    Step,
    Subject,
    Unmanaged,
    Value,
    difference,
    plan_of,
    policy_of,
    present_of,
    set_since,
)

POLICY, PLAN, SCAN = policy_of("notes"), plan_of("archive", "notes"), plan_of("scan", None)
OLD = {"after_days": 365, "enabled": True}
NIGHTLY = {
    "enabled": True,
    "scope": "new",
    "interval_seconds": 86400,
    "batch_size": 1000,
    "max_bytes": 2**30,
}
JOB = "11111111-1111-1111-1111-111111111111"

Wanted = dict[Subject, dict[str, Any]]
There = dict[Subject, Present]


def there(values: Mapping[str, Any], applied: Any = "as it is", **more: Any) -> Present:  # noqa: ANN401
    left = values if applied == "as it is" else applied
    return Present("id", values, left, **more)


def went_up(name: str, before: Any, after: Any) -> tuple[Value, ...]:  # noqa: ANN401
    return (Value(name, before, after),)


SEVEN = OLD | {"after_days": 7}
TWICE = NIGHTLY | {"interval_seconds": 43200}
OFF = NIGHTLY | {"enabled": False}

CASES: dict[str, tuple[Wanted, There, list[Step]]] = {
    "all is as the file says": ({POLICY: OLD}, {POLICY: there(OLD)}, []),
    "a policy and a plan that are not there are created, the policy first": (
        {PLAN: NIGHTLY, POLICY: OLD},
        {},
        [
            Step(POLICY, Action.CREATE, tuple(Value(name, None, OLD[name]) for name in OLD)),
            Step(PLAN, Action.CREATE, tuple(Value(name, None, NIGHTLY[name]) for name in NIGHTLY)),
        ],
    ),
    "a value is changed from what it is": (
        {PLAN: TWICE},
        {PLAN: there(NIGHTLY)},
        [Step(PLAN, Action.CHANGE, went_up("interval_seconds", 86400, 43200))],
    ),
    "a plan is enabled": (
        {PLAN: NIGHTLY},
        {PLAN: there(OFF)},
        [Step(PLAN, Action.ENABLE, (Value("enabled", before=False, after=True),))],
    ),
    "a plan is disabled": (
        {PLAN: OFF},
        {PLAN: there(NIGHTLY)},
        [Step(PLAN, Action.DISABLE, (Value("enabled", before=True, after=False),))],
    ),
    "a plan whose policy moves is bound to it again, and its open job will stop": (
        {POLICY: SEVEN, PLAN: NIGHTLY},
        {POLICY: there(OLD), PLAN: there(NIGHTLY, open_job=JOB)},
        [
            Step(POLICY, Action.CHANGE, went_up("after_days", 365, 7)),
            Step(PLAN, Action.REBIND, rebinds=True, stops=JOB),
        ],
    ),
    "an open job goes on where only its plan changes": (
        {POLICY: OLD, PLAN: TWICE},
        {POLICY: there(OLD), PLAN: there(NIGHTLY, open_job=JOB)},
        [Step(PLAN, Action.CHANGE, went_up("interval_seconds", 86400, 43200))],
    ),
    "a plan that is behind its policy is bound to it again": (
        {POLICY: OLD, PLAN: NIGHTLY},
        {POLICY: there(OLD), PLAN: there(NIGHTLY, behind=True)},
        [Step(PLAN, Action.REBIND, rebinds=True)],
    ),
    "a plan by hand is bound again to the policy that the file moves": (
        {POLICY: SEVEN},
        {POLICY: there(OLD), PLAN: there(NIGHTLY, None)},
        [
            Step(POLICY, Action.CHANGE, went_up("after_days", 365, 7)),
            Step(PLAN, Action.REBIND, rebinds=True),
        ],
    ),
    "a plan by hand that was behind already is left so": (
        {POLICY: SEVEN},
        {POLICY: there(OLD), PLAN: there(NIGHTLY, None, behind=True)},
        [Step(POLICY, Action.CHANGE, went_up("after_days", 365, 7))],
    ),
    "a plan that apply made and the file no longer has is disabled": (
        {},
        {POLICY: there(OLD), PLAN: there(NIGHTLY)},
        [Step(PLAN, Action.DISABLE, (Value("enabled", before=True, after=False),), gone=True)],
    ),
    "a plan that is gone from the file and disabled stays": (
        {},
        {POLICY: there(OLD), PLAN: there(OFF)},
        [],
    ),
    "a plan by hand that the file does not have is left": ({}, {PLAN: there(NIGHTLY, None)}, []),
    "a policy that the file does not have is never disabled": ({}, {POLICY: there(OLD)}, []),
    "what was set by hand and is as the file says becomes the file's": (
        {POLICY: OLD, SCAN: NIGHTLY},
        {POLICY: there(OLD, None), SCAN: there(NIGHTLY, TWICE)},
        [Step(POLICY, Action.ADOPT), Step(SCAN, Action.ADOPT)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_in_which_case_what_changes(case: str) -> None:
    declared, present, expected = CASES[case]
    assert list(difference(declared, present).steps) == expected


def test_drift_is_what_was_set_since_and_is_not_what_the_file_says() -> None:
    left: Wanted = {PLAN: NIGHTLY | {"batch_size": 5, "max_bytes": 2**20}, POLICY: SEVEN}
    present = {
        # The interval was set; the batch is as applied, and the file has changed; the budget agrees.
        PLAN: Present("p", TWICE | {"max_bytes": 2**20}, NIGHTLY),
        POLICY: Present("q", SEVEN, OLD),
    }
    found = difference(left, present)
    assert found.drift == (Drift(PLAN, "p", "interval_seconds", 86400, 43200, 86400),)


def test_a_plan_that_is_gone_and_was_enabled_by_hand_is_drift() -> None:
    found = difference({}, {PLAN: there(NIGHTLY, OFF)})
    assert [step.action for step in found.steps] == [Action.DISABLE]
    assert [(each.name, each.now, each.declared) for each in found.drift] == [
        ("enabled", True, False)
    ]


def test_what_was_only_ever_set_by_hand_is_no_drift() -> None:
    found = difference({PLAN: TWICE}, {PLAN: there(NIGHTLY, None)})
    assert (len(found.steps), found.drift) == (1, ())


def test_what_the_file_does_not_speak_of_is_reported() -> None:
    present = {POLICY: there(OLD), PLAN: there(NIGHTLY), SCAN: there(OFF, None)}
    found = difference({}, present)
    # The plan is not left as it is: it is disabled.
    assert found.unmanaged == (
        Unmanaged(POLICY, enabled=True, once_applied=True),
        Unmanaged(SCAN, enabled=False, once_applied=False),
    )


@pytest.mark.parametrize(
    ("wanted", "found", "needed"),
    [
        ({PLAN: NIGHTLY}, {}, True),
        ({PLAN: OFF}, {}, True),
        ({PLAN: NIGHTLY}, {PLAN: there(OFF)}, True),
        ({PLAN: OFF}, {PLAN: there(NIGHTLY)}, False),
        ({PLAN: TWICE}, {PLAN: there(NIGHTLY)}, False),
        ({POLICY: OLD}, {}, False),
        ({POLICY: OLD}, {POLICY: there(OLD | {"enabled": False})}, False),
    ],
)
def test_a_volume_is_needed_to_enable_or_to_make_a_plan(
    wanted: Wanted, found: There, needed: bool
) -> None:
    assert difference(wanted, found).needs_volume is needed


def row(operation: str, storage_id: str, namespace: str = "here", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    kind = "notes" if operation == "archive" else None
    values = {"operation": operation, "kind": kind, "storage_id": storage_id, "id": storage_id}
    values |= {"namespace_id": namespace, "applied": None, "active_job_id": None}
    return NIGHTLY | values | {"policy_revision": None, "policy_now": None} | more


def test_the_scan_meant_is_that_of_the_nodes_volume_whoever_made_it() -> None:
    rows = [row("scan", "a", "elsewhere"), row("scan", "b"), row("archive", "a", "elsewhere")]
    here = {"id": "here", "name": "default"}
    assert {key: each.id for key, each in present_of([], rows, here, "a").items()} == {SCAN: "a"}
    assert present_of([], rows, here, "c") == {}
    # Without a volume of its own a node can only mean the one scan there is.
    assert present_of([], rows, here, None) == {}
    assert {key: each.id for key, each in present_of([], rows[:1], here, None).items()} == {
        SCAN: "a"
    }


def test_a_plan_bound_to_an_older_revision_is_behind() -> None:
    here = {"id": "here", "name": "default"}
    for bound, now, behind in ((1, 2, True), (2, 2, False)):
        rows = [row("archive", "a", policy_revision=bound, policy_now=now)]
        assert present_of([], rows, here, "a")[PLAN].behind is behind


def test_nothing_counts_as_set_since_where_nothing_was_applied() -> None:
    assert set_since(TWICE, None) == ()
    assert set_since(TWICE, NIGHTLY) == (Value("interval_seconds", 86400, 43200),)


KINDS = st.sampled_from(["a", "b", "c"])
DAYS = st.fixed_dictionaries({"after_days": st.sampled_from([1, 2]), "enabled": st.booleans()})
PLANS = st.fixed_dictionaries(
    {
        "enabled": st.booleans(),
        "scope": st.sampled_from(["new", "all"]),
        "interval_seconds": st.sampled_from([3600, 7200]),
        "batch_size": st.sampled_from([1, 2]),
        "max_bytes": st.just(2**20),
    }
)
SUBJECTS = {
    **{policy_of(kind): DAYS for kind in "abc"},
    **{plan_of("archive", kind): PLANS for kind in "abc"},
    SCAN: PLANS,
}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Wanted, There]:
    declared = {
        subject: draw(values) for subject, values in SUBJECTS.items() if draw(st.booleans())
    }
    present = {
        subject: Present(
            str(subject),
            draw(values),
            draw(st.none() | values),
            behind=not subject.is_policy and draw(st.booleans()),
        )
        for subject, values in SUBJECTS.items()
        if draw(st.booleans())
    }
    return declared, present


def taken(declared: Wanted, present: There, steps: tuple[Step, ...]) -> There:
    """Return what is there once each step was taken, and nothing else."""
    after = dict(present)
    for step in steps:
        wanted = {value.name: value.after for value in step.values}
        found = after.get(step.subject, Present("new", {}))
        values = {**found.values, **wanted}
        ours = step.subject in declared or step.gone
        bound = found.behind and step.action is Action.ADOPT
        applied = values if ours else found.applied
        after[step.subject] = replace(found, values=values, applied=applied, behind=bound)
    return after


@given(worlds())
def test_once_the_steps_are_taken_there_is_no_difference(world: tuple[Wanted, There]) -> None:
    declared, present = world
    after = taken(declared, present, difference(declared, present).steps)
    again = difference(declared, after)
    assert (again.steps, again.drift) == ((), ())
    assert {subject: dict(after[subject].values) for subject in declared} == declared


@given(worlds())
def test_nothing_is_touched_twice_and_nothing_by_hand_loses_a_value(
    world: tuple[Wanted, There],
) -> None:
    declared, present = world
    found = difference(declared, present)
    assert len({step.subject for step in found.steps}) == len(found.steps)
    for step in found.steps:
        assert step.action in Action
        if step.subject not in declared and present[step.subject].applied is None:
            assert (step.action, step.values) == (Action.REBIND, ())
