"""The shapes of what a kinds file changes: steps, drift, and what it does not speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handlers.shape import Json, time

if TYPE_CHECKING:
    from shared.plans.applying import SetByHand
    from shared.plans.difference import Drift, Step, Subject, Unmanaged


def step(found: Step) -> Json:
    """Return a change that ``apply`` makes to a policy or a plan."""
    return {
        **_subject(found.subject),
        "action": str(found.action),
        "values": [
            {"name": each.name, "from": each.before, "to": each.after} for each in found.values
        ],
        "rebinds": found.rebinds,
        "gone": found.gone,
        "stops": found.stops,
    }


def drift(found: Drift, hand: SetByHand | None) -> Json:
    """Return a value that was set since the file was applied, and who set it."""
    return {
        **_subject(found.subject),
        "name": found.name,
        "applied": found.applied,
        "now": found.now,
        "declared": found.declared,
        "actor": hand.actor if hand else None,
        "occurred_at": time(hand.occurred_at) if hand else None,
        "reason": hand.reason if hand else None,
    }


def unmanaged(found: Unmanaged) -> Json:
    """Return a policy or plan that the kinds file does not speak of."""
    about = {"enabled": found.enabled, "once_applied": found.once_applied}
    return _subject(found.subject) | about


def _subject(found: Subject) -> Json:
    subject = "policy" if found.is_policy else "plan"
    return {"subject": subject, "operation": found.operation, "kind": found.kind}
