"""Jobs that wait for somebody: failed, paused, or with no one to do them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.db.statement import statement
from shared.doctor.finding import Finding, Severity, Subject
from shared.errors import Code
from shared.jobs import rules
from shared.jobs.model import State
from shared.plans.outlook import Standing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from shared.db.connect import Database, Row

# More are counted and not told: a monitor needs to know that there are many, not each.
TOLD_MAX = 20
# One death may be a deployment; the third of one unit in a row is no accident.
TAKEOVERS_TOLD = 3
# A job of these exports nothing more whatever is done: only a new one will.
HOPELESS = frozenset({Code.POLICY_CHANGED, Code.SCHEMA_CHANGED})
# What a tick on the right node takes up again by itself.
CURABLE = frozenset({Code.STORAGE_UNAVAILABLE, Code.CREDENTIAL_MISSING})


def look(control: Database) -> list[Row]:
    """Return the open jobs in trouble, one more than are told."""
    params = {
        "overdue_seconds": rules.OVERDUE_SECONDS,
        "takeovers": TAKEOVERS_TOLD,
        "limit": TOLD_MAX + 1,
    }
    return control.transact(statement("shared.doctor", "open_troubles"), params, repeatable=True)


def judged(rows: list[Row], stopped: Collection[str]) -> list[Finding]:
    """Return what is to be done about each job.

    Jobs of operations whose schedule has ``stopped`` wait for that and for nothing else.
    """
    findings = [found for row in rows[:TOLD_MAX] if (found := _judged(row, stopped)) is not None]
    if len(rows) > TOLD_MAX:
        findings.append(
            Finding(Standing.JOB_FAILED, Subject.JOBS, Severity.ERROR, {"cause": "and-more"})
        )
    return findings


def budget_needed(rows: Iterable[Row], storage_id: str) -> int:
    """Return the bytes by which failed jobs of a volume were refused for its budget; 0 if none was."""
    asked = [
        int(row["error_params"].get("needed", 1))
        for row in rows
        if row["state"] == State.FAILED
        and row["storage_id"] == storage_id
        and row["error_code"] == Code.STORAGE_LIMIT
        and row["error_params"].get("cause") == "volume-budget"
    ]
    return max(asked, default=0)


def _judged(row: Row, stopped: Collection[str]) -> Finding | None:
    params = _about(row)
    if row["state"] == State.FAILED:
        return Finding(Standing.JOB_FAILED, Subject.JOBS, Severity.ERROR, params | _failed(row))
    if row["state"] == State.PAUSED:
        cause = {"cause": "missing"} if row["error_code"] in CURABLE else {}
        return Finding(Standing.JOB_PAUSED, Subject.JOBS, Severity.WARNING, params | cause)
    if row["takeovers"] >= TAKEOVERS_TOLD:
        params |= {"cause": "dying", "takeovers": row["takeovers"]}
        return Finding(Code.JOB_STUCK, Subject.JOBS, Severity.WARNING, params)
    if row["operation"] in stopped:
        return None
    params |= {"overdue": row["overdue_seconds"]}
    return Finding(Code.JOB_STUCK, Subject.JOBS, Severity.WARNING, params)


def _about(row: Row) -> dict[str, Any]:
    """Return what every word about a job may name; ``code`` and ``error_params`` say why it stopped."""
    return {
        "job": str(row["id"]),
        "kind": row["kind"] or row["operation"],
        "operation": row["operation"],
        "namespace": row["namespace"],
        "age": round(row["age_seconds"]),
        "code": row["error_code"],
        "error_params": row["error_params"] or {},
    }


def _failed(row: Row) -> dict[str, Any]:
    code, params = row["error_code"], row["error_params"] or {}
    if code in HOPELESS:
        return {"cause": "hopeless"}
    if code == Code.STORAGE_LIMIT and params.get("cause") == "job-budget":
        larger = min(rules.BUDGET_MAX, 2 * max(row["max_bytes"], int(params.get("needed", 0))))
        return {"cause": "budget", "wanted": larger}
    return {}
