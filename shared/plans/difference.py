"""What a kinds file declares, held against the policies and plans that are there: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.db.connect import Row

    Values = Mapping[str, Any]

POLICY_VALUES = ("after_days", "enabled")
# What becomes of a plan that the file no longer speaks of.
GONE = {"enabled": False}
PLAN_VALUES = ("enabled", "scope", "interval_seconds", "batch_size", "max_bytes")


@dataclass(frozen=True, order=True)
class Subject:
    """A policy or a plan of one namespace; ``kind`` is None for plans that have none.

    Sorted, the policy of a kind stands before its plan, which is bound to it.
    """

    name: str
    operation: str | None = None
    kind: str | None = None

    @property
    def is_policy(self) -> bool:
        """Tell whether it is a policy."""
        return self.operation is None

    @property
    def values(self) -> tuple[str, ...]:
        """Return the names of the values that a file decides."""
        return POLICY_VALUES if self.is_policy else PLAN_VALUES


def policy_of(kind: str) -> Subject:
    """Return the policy of a kind."""
    return Subject(kind, None, kind)


def plan_of(operation: str, kind: str | None) -> Subject:
    """Return the plan of a kind, or of an operation that has none."""
    return Subject(kind or operation, operation, kind)


@dataclass(frozen=True)
class Declared:
    """What a file asks of one namespace: every value of each policy and plan that it speaks of.

    ``storage_id`` is the volume of the node that asks: of a new plan, and of the scan that is meant.
    """

    subjects: Mapping[Subject, Values]
    storage_id: str | None


@dataclass(frozen=True)
class Present:
    """A policy or plan as it is; ``id`` is its name in the audit.

    ``applied`` is what the last ``apply`` left of its values (None when it was only ever set by hand);
    ``behind`` says that a plan is bound to an older revision of its policy.
    """

    id: str
    values: Values
    applied: Values | None = None
    behind: bool = False
    open_job: str | None = None
    storage_id: str | None = None


class Action(StrEnum):
    """What becomes of a policy or plan."""

    CREATE = "create"
    CHANGE = "change"
    ENABLE = "enable"
    DISABLE = "disable"
    # Bound to its policy as it is now; no value of its own changes.
    REBIND = "rebind"
    # It is as the file says already; from now on a `set` shows as drift.
    ADOPT = "adopt"


@dataclass(frozen=True)
class Value:
    """One value that changes: ``before`` is None where there was none."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Step:
    """One change to one policy or plan.

    ``gone`` says that the file no longer speaks of it. ``stops`` is the open job that will end because
    its policy moves.
    """

    subject: Subject
    action: Action
    values: tuple[Value, ...] = ()
    gone: bool = False
    rebinds: bool = False
    stops: str | None = None

    @property
    def enables(self) -> bool:
        """Tell whether a plan begins to make jobs, or a new row needs a volume to be bound to."""
        return not self.subject.is_policy and self.action in (Action.CREATE, Action.ENABLE)


@dataclass(frozen=True)
class Drift:
    """One value that was set since the file was last applied, and is not what the file says."""

    subject: Subject
    id: str
    name: str
    applied: Any
    now: Any
    declared: Any


@dataclass(frozen=True)
class Unmanaged:
    """A policy or plan that the file does not speak of, and that is left as it is."""

    subject: Subject
    enabled: bool
    once_applied: bool


@dataclass(frozen=True)
class Difference:
    """Everything in which policies and plans are not what a file says."""

    steps: tuple[Step, ...]
    drift: tuple[Drift, ...]
    unmanaged: tuple[Unmanaged, ...]

    @property
    def needs_volume(self) -> bool:
        """Tell whether it can be applied only where a volume is configured."""
        return any(step.enables for step in self.steps)


def difference(
    declared: Mapping[Subject, Values], present: Mapping[Subject, Present]
) -> Difference:
    """Decide what has to change for policies and plans to be what the file says.

    Nothing is ever deleted. A plan that ``apply`` made and the file no longer speaks of is disabled; what
    was only ever set by hand is left, but a plan whose policy moves is bound to it again.
    """
    moving = {
        subject.kind
        for subject, wanted in declared.items()
        if subject.is_policy and subject in present and _changes(wanted, present[subject])
    }
    steps = [
        step
        for subject in sorted({*declared, *present}, key=_order)
        if (step := _step(subject, declared.get(subject), present.get(subject), moving)) is not None
    ]
    stepped = {step.subject for step in steps}
    return Difference(
        tuple(steps),
        tuple(
            drift
            for step in steps
            if step.subject in present
            for drift in _drift(
                step.subject,
                GONE if step.gone else declared.get(step.subject, {}),
                present[step.subject],
            )
        ),
        tuple(
            Unmanaged(subject, bool(found.values["enabled"]), found.applied is not None)
            for subject, found in sorted(present.items(), key=lambda item: _order(item[0]))
            if subject not in declared and (subject not in stepped or found.applied is None)
        ),
    )


def set_since(values: Values, applied: Values | None) -> tuple[Value, ...]:
    """Return what was set by hand since the last ``apply``: what that left, and what is there now."""
    return tuple(
        Value(name, left, values[name])
        for name, left in (applied or {}).items()
        if name in values and values[name] != left
    )


def present_of(
    policies: Iterable[Row], plans: Iterable[Row], namespace: Row, storage_id: str | None
) -> dict[Subject, Present]:
    """Return what is there of one namespace, and the scan of a volume whichever namespace it is under.

    Scans of other volumes are left to the nodes that have those. Without a volume of one's own the scan
    meant is the only one there is.
    """
    plans = list(plans)
    scans = [row for row in plans if row["operation"] == "scan"]
    if storage_id is not None:
        scans = [row for row in scans if row["storage_id"] == storage_id]
    mine = [row for row in plans if row["namespace_id"] == namespace["id"]]
    chosen = [row for row in mine if row["operation"] != "scan"] + (
        scans if len(scans) == 1 else []
    )
    return {
        policy_of(row["kind"]): Present(
            f"{namespace['name']}/{row['kind']}",
            {name: row[name] for name in POLICY_VALUES},
            row["applied"],
        )
        for row in policies
        if row["namespace_id"] == namespace["id"]
    } | {
        plan_of(row["operation"], row["kind"]): Present(
            str(row["id"]),
            {name: row[name] for name in PLAN_VALUES},
            row["applied"],
            behind=row["policy_revision"] != row["policy_now"],
            open_job=str(row["active_job_id"]) if row["active_job_id"] else None,
            storage_id=row["storage_id"],
        )
        for row in chosen
    }


def _order(subject: Subject) -> tuple[str, bool, str]:
    return subject.name, not subject.is_policy, subject.operation or ""


def _step(
    subject: Subject, wanted: Values | None, found: Present | None, moving: set[str | None]
) -> Step | None:
    policy_moves = not subject.is_policy and subject.kind is not None and subject.kind in moving
    stops = found.open_job if found and policy_moves else None
    if wanted is None:
        assert found is not None  # noqa: S101 - it is one or the other
        return _undeclared(subject, found, stops, policy_moves=policy_moves)
    if found is None:
        values = tuple(Value(name, None, wanted[name]) for name in subject.values)
        return Step(subject, Action.CREATE, values)
    values = _changes(wanted, found)
    rebinds = policy_moves or found.behind
    if not values and not rebinds:
        return Step(subject, Action.ADOPT) if found.applied != wanted else None
    action = _action(values)
    return Step(subject, action, values, rebinds=rebinds, stops=stops)


def _undeclared(
    subject: Subject, found: Present, stops: str | None, *, policy_moves: bool
) -> Step | None:
    if not subject.is_policy and found.applied is not None and found.values["enabled"]:
        values = (Value("enabled", before=True, after=False),)
        return Step(subject, Action.DISABLE, values, gone=True, stops=stops)
    if policy_moves and not found.behind:
        return Step(subject, Action.REBIND, rebinds=True, stops=stops)
    return None


def _action(values: tuple[Value, ...]) -> Action:
    switch = next((value for value in values if value.name == "enabled"), None)
    if switch is not None:
        return Action.ENABLE if switch.after else Action.DISABLE
    return Action.CHANGE if values else Action.REBIND


def _changes(wanted: Values, found: Present) -> tuple[Value, ...]:
    return tuple(
        Value(name, found.values[name], value)
        for name, value in wanted.items()
        if found.values[name] != value
    )


def _drift(subject: Subject, wanted: Values, found: Present) -> tuple[Drift, ...]:
    return tuple(
        Drift(subject, found.id, value.name, value.before, value.after, wanted[value.name])
        for value in set_since(found.values, found.applied)
        if wanted.get(value.name, value.after) != value.after
    )
