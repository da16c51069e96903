"""The shapes in which answers leave the program: plain values for JSON, the same from every handler."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.archive.survey import Survey
    from shared.db.connect import Row
    from shared.doctor.finding import Finding, Section
    from shared.errors import TallystickError
    from shared.jobs.model import Job
    from shared.jobs.reading import NamedJob
    from shared.messages import Words
    from shared.tick import Report
    from shared.volume.ledger import Adopted

Json = dict[str, Any]

# What becomes of a job in which something went wrong, by its state.
THEN = {"FAILED": "failed", "PAUSED": "resumed"}


def time(value: datetime | None) -> str | None:
    """Return a time as RFC 3339 in UTC, to the microsecond."""
    if value is None:
        return None
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def told(
    code: str, params: Mapping[str, object], about: Mapping[str, object] | None = None
) -> Json:
    """Return a code with its parameters and its words; ``about`` is what else the words may name."""
    found = words(code, {**(about or {}), **params})
    return {
        "code": code,
        "params": dict(params),
        "message": found.happened,
        "next": found.next_step,
    }


def error(error: TallystickError, about: Mapping[str, object] | None = None) -> Json:
    """Return an error with its words; those it came with go before ours.

    Nothing runs it again by itself, unless ``about`` says otherwise.
    """
    found = told(str(error.code), error.params, {"then": "command", **(about or {})})
    return found if error.words is None else found | {"message": error.words, "next": None}


def job(job: Job) -> Json:
    """Return a job as operators see it: no cursor, no owner, no generation of its lease."""
    return {
        "id": str(job.id),
        "operation": job.operation,
        "namespace_id": str(job.namespace_id),
        "kind": job.kind,
        "plan_revision": _revision(job.plan_revision),
        "policy_revision": _revision(job.policy_revision),
        "storage_id": job.storage_id,
        "batch_size": job.batch_size,
        "max_bytes": job.max_bytes,
        "state": str(job.state),
        "revision": str(job.revision),
        "attempts": job.attempts,
        "batches": job.batches,
        "roots": job.roots,
        "bytes": job.bytes,
        "last_sha256": job.last_sha256,
        "error_code": job.error_code,
        "lease_until": time(job.lease_until),
        "created_at": time(job.created_at),
        "updated_at": time(job.updated_at),
    }


def job_in_full(found: Job, units: list[Row], events: list[Row]) -> Json:
    """Return a job with what went wrong, its newest units and its newest events."""
    failure = found.error_code
    return job(found) | {
        "error": told(failure, found.error_params or {}, _about(found)) if failure else None,
        "next_attempt_at": time(found.due_at) if not found.state.closed else None,
        "closed_at": time(found.closed_at),
        "directory": found.directory if found.operation == "archive" else None,
        "late_rows": found.opening.get("late_rows") if found.opening else None,
        "late_unknown": _late_unknown((found.opening or {}).get("late_unknown"), found.kind),
        "roots_at_start": found.opening.get("roots_at_start") if found.opening else None,
        "window": (found.checkpoint or {}).get("window"),
        "takeovers": found.takeovers,
        "failures": found.failures,
        "errors": found.errors,
        "units": [unit(row) for row in units],
        "events": [_without(event(row), "checkpoint") for row in events],
    }


def unit(row: Row) -> Json:
    """Return a settled unit, without the cursor it ended at."""
    return {
        "seq": row["seq"],
        "sha256": row["sha256"],
        "bytes": row["bytes"],
        "roots": row["roots"],
        "settled_at": time(row["settled_at"]),
        "evidence": _without(row["evidence"], "last"),
    }


def event(row: Row) -> Json:
    """Return a recovery event with its words."""
    reason = row["reason_code"] or row["type"]
    about = {"job": str(row["job_id"])} if row["job_id"] else {}
    found = words(reason, {**about, **(row["reason_params"] or {})})
    return {
        "id": str(row["id"]),
        "occurred_at": time(row["occurred_at"]),
        "recorded_at": time(row["recorded_at"]),
        "type": row["type"],
        "severity": row["severity"],
        "source": row["source"],
        "done": row["done"],
        "actor": row["actor"],
        "address": row["address"],
        "namespace_id": str(row["namespace_id"]) if row["namespace_id"] else None,
        "job_id": str(row["job_id"]) if row["job_id"] else None,
        "operation": row["operation"],
        "checkpoint": row["checkpoint"],
        "attempt": row["attempt"],
        "next_attempt_at": time(row["next_attempt_at"]),
        "reason_code": row["reason_code"],
        "reason_params": row["reason_params"],
        "reclaimed": row["reclaimed"],
        "message": found.happened,
    }


def namespace(row: Row) -> Json:
    """Return a namespace."""
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "enabled": row["enabled"],
        "revision": str(row["revision"]),
        "created_at": time(row["created_at"]),
        "updated_at": time(row["updated_at"]),
    }


def policy(row: Row, namespace: str) -> Json:
    """Return a policy and the name of its namespace."""
    return {
        "namespace_id": str(row["namespace_id"]),
        "namespace": namespace,
        "kind": row["kind"],
        "after_days": row["after_days"],
        "enabled": row["enabled"],
        "revision": str(row["revision"]),
        "drift": _set_since(row),
        "updated_at": time(row["updated_at"]),
    }


def plan(row: Row, namespace: str) -> Json:
    """Return a plan and the name of its namespace; what a change does not tell of jobs is null."""
    active = row.get("active_job_id")
    return {
        "namespace_id": str(row["namespace_id"]),
        "namespace": namespace,
        "operation": row["operation"],
        "kind": row["kind"],
        "revision": str(row["revision"]),
        "enabled": row["enabled"],
        "policy_revision": _revision(row["policy_revision"]),
        "storage_id": row["storage_id"],
        "scope": row["scope"],
        "interval_seconds": row["interval_seconds"],
        "batch_size": row["batch_size"],
        "max_bytes": row["max_bytes"],
        "next_run_at": time(row["next_run_at"]),
        "active_job_id": str(active) if active else None,
        "late_rows": row.get("late_rows"),
        "late_unknown": _late_unknown(row.get("late_unknown"), row["kind"]),
        "drift": _set_since(row),
        "updated_at": time(row["updated_at"]),
    }


def volume(row: Row) -> Json:
    """Return a volume as the database knows it."""
    return {
        "storage_id": row["storage_id"],
        "used_bytes": row["used_bytes"],
        "reserved_bytes": row.get("reserved", 0),
        "last_settled": _last_settled(row),
        "revision": str(row["revision"]),
        "probed_at": time(row["probed_at"]),
        "updated_at": time(row["updated_at"]),
    }


def adopted(found: Adopted) -> Json:
    """Return a volume after it was adopted, and what of the file settled last was found on it."""
    last = found.last
    expected = {"directory": last.directory, "file": last.file} if last is not None else None
    problem = error(found.lacks) if found.lacks is not None else None
    return volume(found.row) | {"expected": expected, "problem": problem}


def _last_settled(row: Row) -> Json | None:
    if row["last_file"] is None:
        return None
    return {name: row[f"last_{name}"] for name in ("directory", "file", "bytes", "sha256")}


def survey(found: Survey) -> Json:
    """Return what was found about a kind."""
    about = {"kind": found.kind.name}
    return {
        "kind": found.kind.name,
        "source": found.kind.source,
        "root": found.kind.kind.root,
        "there": found.there,
        "refused": found.refuses,
        "findings": [
            told(str(each.problem), {**about, **each.params}) | {"refuses": each.refuses}
            for each in found.findings
        ],
        "notes": [told(str(each.problem), {**about, **each.params}) for each in found.notes],
    }


def examination(sections: Sequence[Section]) -> Json:
    """Return everything an examination found, subject by subject."""
    from shared.doctor.finding import worst

    findings = [finding(each) for section in sections for each in section.findings]
    severities = [item["severity"] for item in findings]
    return {
        "findings": findings,
        "subjects": [
            {
                "subject": str(section.subject),
                "severity": str(section.severity),
                "skipped_for": str(section.skipped_for) if section.skipped_for else None,
            }
            for section in sections
        ],
        "counts": {name: severities.count(name) for name in ("info", "warning", "error")},
        "worst": str(worst(each for section in sections for each in section.findings)),
    }


def finding(found: Finding) -> Json:
    """Return one finding with its words, and what mends it: a command, or SQL for somebody who may.

    Where it is about a job that met an error, the error is told along.
    """
    text = words(found.code, {"then": "command", **found.params})
    happened, next_step = text.happened, text.next_step
    if why_params := found.params.get("error_params"):
        then = {"JOB_FAILED": "failed", "JOB_PAUSED": "resumed"}.get(str(found.code), "retried")
        params = {**found.params, "cause": None, "then": then, **why_params}
        why = words(found.params["code"], params)
        happened = f"{happened} {why.happened}"
        next_step = why.next_step or next_step
    return {
        "code": str(found.code),
        "subject": str(found.subject),
        "severity": str(found.severity),
        "params": found.params,
        "message": happened,
        "next": next_step,
        "command": text.command or None,
        "sql": list(found.sql),
    }


def tail(found: NamedJob) -> Json:
    """Return the tail of a kind's newest chain: the half of the record to keep elsewhere."""
    return {
        "namespace": found.namespace,
        "kind": found.job.kind,
        "job": str(found.job.id),
        "state": str(found.job.state),
        "batches": found.job.batches,
        "roots": found.job.roots,
        "bytes": found.job.bytes,
        "tail": found.job.last_sha256,
    }


def report(report: Report) -> Json:
    """Return the outcome of one tick; ``roots``, ``rows``, ``bytes`` are those of its unit alone."""
    outcome = report.outcome
    params = {name: value for name, value in outcome.params.items() if name != "evidence"}
    code = str(outcome.code) if outcome.code else None
    about = told(code, params, _about(report.job)) if code else None
    return {
        "outcome": str(outcome.ending),
        "code": code,
        "params": about["params"] if about else {},
        "message": about["message"] if about else None,
        "next": about["next"] if about else None,
        "wait_seconds": outcome.wait_seconds,
        "scheduled": report.scheduled,
        "job": job(report.job) if report.job else None,
        "seq": report.seq,
        "roots": params.get("roots", 0) if not code else 0,
        "rows": params.get("rows", 0) if not code else 0,
        "bytes": params.get("bytes", 0) if not code else 0,
        "reclaimed": report.reclaimed,
        "note": error(report.note) if report.note else None,
        "oldest_due_seconds": report.oldest_due_seconds,
        "volume_used_bytes": report.volume_used_bytes,
        "volume_max_bytes": report.volume_max_bytes,
        "seconds": report.seconds,
        "phases": dict(report.phases),
    }


def _late_unknown(params: Json | None, kind: str | None) -> Json | None:
    """Return why it is not known how many rows came late; None where that is known, or nobody looked."""
    return told("LATE_ROWS", params, {"kind": kind}) if params else None


def _set_since(row: Row) -> list[Json]:
    from shared.plans.difference import set_since

    return [
        {"name": each.name, "applied": each.before, "now": each.after}
        for each in set_since(row, row["applied"])
    ]


def _about(job: Job | None) -> Json:
    """Return what words may name of a job, and what becomes of it; without one, the next tick looks again."""
    if job is None:
        return {"then": "retried"}
    return {"job": str(job.id), "kind": job.kind, "then": THEN.get(str(job.state), "retried")}


def words(code: str, params: Mapping[str, object]) -> Words:
    """Return the words for a code; the catalogue is loaded by the first answer that needs any."""
    from shared import messages

    return messages.words(code, params)


def message(code: str, params: Mapping[str, object]) -> Json:
    """Return the words for a code as members of an answer."""
    found = words(code, params)
    return {"message": found.happened, "next": found.next_step}


def _revision(value: int | None) -> str | None:
    return str(value) if value is not None else None


def _without(value: Json, name: str) -> Json:
    return {key: each for key, each in value.items() if key != name}
