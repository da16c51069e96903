"""The schedule: somebody ticks for every operation that has plans, and the plans make jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.archive.count import LOST, Count
from shared.archive.count import findings as findings_of
from shared.doctor.finding import Finding, Severity, Subject
from shared.errors import Code
from shared.plans import outlook, planning
from shared.plans.outlook import QUIET_SECONDS, Here, Situation, Standing
from shared.plans.schedule import LastTick, last_ticks

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from shared.db.connect import Database, Row

# How bad it is that a plan rests for this reason. What somebody switched off is meant so. What is not named
# is as it should be, or told elsewhere: failed and paused jobs with the jobs, a silent schedule once.
SEVERITY: dict[str, Severity] = {
    Code.PLAN_DISABLED: Severity.INFO,
    Code.POLICY_DISABLED: Severity.INFO,
    Standing.NAMESPACE_DISABLED: Severity.INFO,
    Standing.BACKING_OFF: Severity.INFO,
    Standing.PLAN_STALE: Severity.WARNING,
    Standing.OTHER_VOLUME: Severity.WARNING,
    Code.POLICY_CHANGED: Severity.WARNING,
    Code.VOLUME_NOT_CONFIGURED: Severity.WARNING,
    Code.NAMESPACE_MISMATCH: Severity.WARNING,
}


@dataclass(frozen=True)
class ScheduleFacts:
    """Plans, how each stands, and the last tick of each operation; ``now`` is the database's time."""

    now: datetime
    plans: tuple[Row, ...]
    situations: tuple[Situation, ...]
    ticks: dict[str, LastTick]

    @property
    def planned_kinds(self) -> frozenset[str]:
        """Return the kinds that have an enabled plan."""
        return frozenset(plan["kind"] for plan in self.plans if plan["enabled"] and plan["kind"])

    @property
    def planned_operations(self) -> frozenset[str]:
        """Return the operations that have an enabled plan."""
        return frozenset(plan["operation"] for plan in self.plans if plan["enabled"])

    def scan_of(self, storage_id: str | None) -> Row | None:
        """Return the plan that scans a volume, if there is one."""
        for plan in self.plans:
            if plan["operation"] == "scan" and plan["storage_id"] == storage_id:
                return plan
        return None


def look(control: Database, now: datetime) -> ScheduleFacts:
    """Ask the control database; raises as ``Database.transact`` does."""
    return ScheduleFacts(
        now=now,
        plans=tuple(planning.listed(control)),
        situations=tuple(outlook.of_plans(control)),
        ticks=last_ticks(control),
    )


def stopped(facts: ScheduleFacts) -> list[Finding]:
    """Return the operations with enabled plans that nobody ticks for, whether or not anything is due."""
    findings = []
    for operation in sorted(facts.planned_operations):
        last = facts.ticks.get(operation)
        params: dict[str, Any] = {"operation": operation}
        if last is not None:
            quiet = last.age_seconds
            params |= {"seconds": round(quiet)}
        else:
            # Never ticked: that counts from when there was something to tick for.
            quiet = _planned_for(facts, operation)
            params |= {"cause": "never"}
        if quiet > QUIET_SECONDS:
            found = Finding(Standing.NO_TICK, Subject.SCHEDULE, Severity.ERROR, params)
            findings.append(found)
    return findings


def judged(facts: ScheduleFacts, here: Here, quiet: Collection[str]) -> list[Finding]:
    """Return the plans that make no jobs, or not enough; ``quiet`` are operations nobody ticks for."""
    if not facts.plans:
        return [Finding(Code.PLAN_MISSING, Subject.SCHEDULE, Severity.INFO)]
    findings = []
    for now in facts.situations:
        findings += _judged(now, here, quiet)
    for plan in facts.plans:
        if plan["enabled"] and plan["late_rows"]:
            params = {"kind": plan["kind"], "namespace": plan["namespace"]}
            params |= {"rows": plan["late_rows"]}
            findings.append(Finding(Code.LATE_ROWS, Subject.SCHEDULE, Severity.WARNING, params))
        if plan["enabled"] and plan["late_unknown"]:
            params = {"kind": plan["kind"], "namespace": plan["namespace"]}
            params |= plan["late_unknown"]
            findings.append(Finding(Code.LATE_ROWS, Subject.SCHEDULE, Severity.INFO, params))
        if plan["enabled"]:
            findings += _miscounted(plan)
    return findings


def _miscounted(plan: Row) -> list[Finding]:
    """Return how the window of a plan's newest job differs from what it archived."""
    counts = [Count(**each) for each in plan["window_counts"] or ()]
    about = {"kind": plan["kind"], "namespace": plan["namespace"]}
    return [
        Finding(
            Code.WINDOW_COUNT,
            Subject.SCHEDULE,
            Severity.WARNING if found["cause"] in LOST else Severity.INFO,
            {**found, **about},
        )
        for found in findings_of(counts, plan["roots_at_start"])
    ]


def _judged(now: Situation, here: Here, quiet: Collection[str]) -> list[Finding]:
    reason = outlook.why(now, here)
    params = {**reason.params, "namespace": now.namespace}
    if reason.code in SEVERITY:
        severity = SEVERITY[reason.code]
        return [Finding(reason.code, Subject.SCHEDULE, severity, params)]
    if now.kind is not None and now.plan_enabled and now.kind not in here.kinds:
        # Said before it is due, too: every node that ticks must know the kinds that have plans.
        params = {"cause": "planned", "kind": now.kind, "namespace": now.namespace}
        return [Finding(Code.KIND_UNKNOWN, Subject.SCHEDULE, Severity.WARNING, params)]
    overdue = -(now.next_run_in or 0.0)
    is_due = reason.code is Standing.DUE and now.job_id is None
    if is_due and now.operation not in quiet and overdue > QUIET_SECONDS:
        params |= {"operation": now.operation, "overdue": round(overdue)}
        return [Finding(Code.PLAN_OVERDUE, Subject.SCHEDULE, Severity.WARNING, params)]
    return []


def _planned_for(facts: ScheduleFacts, operation: str) -> float:
    since = [
        (facts.now - plan["updated_at"]).total_seconds()
        for plan in facts.plans
        if plan["enabled"] and plan["operation"] == operation
    ]
    return max(since, default=0.0)
