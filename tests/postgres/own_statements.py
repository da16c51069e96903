"""What each statement on our own tables is asked by the suite that reads plans, beside a filled history."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from psycopg.types.json import Jsonb

from shared.jobs import rules
from tests.postgres.long_history import KINDS, OWNER, History

Params = Mapping[str, object]
NOTHING: Params = {}


def fence(history: History) -> dict[str, object]:
    return {
        "job_id": history.running,
        "owner": OWNER,
        "generation": 1,
        "seq": 1,
        "tail": "a" * 64,
    }


def plan_of(operation: str) -> Callable[[History], Params]:
    def of(history: History) -> Params:
        return {
            "operation": operation,
            "namespace_id": history.namespace_id,
            "kind": "idle",
            "storage_id": history.storage_id,
        }

    return of


def job(history: History) -> Params:
    return {"job_id": history.closed, "limit": 20, "unit_seq": 1}


def claiming(history: History) -> Params:
    return {
        "operations": ["archive", "scan", "prune"],
        "storage_id": history.storage_id,
        "job_id": None,
        "owner": OWNER,
        "lease_seconds": 120.0,
        "farthest_seconds": rules.FARTHEST_JOB_SECONDS,
        "takeovers_max": 10,
        "errors_kept": 20,
    }


def settling(history: History) -> Params:
    return fence(history) | {
        "final": True,
        "page_size": 10,
        "checkpoint": Jsonb({}),
        "unit_seq": 2,
        "unit_sha256": "b" * 64,
        "unit_bytes": 10,
        "unit_roots": 1,
        "evidence": Jsonb({}),
        "new_tail": "b" * 64,
        "published_directory": None,
        "published_file": None,
        "ledger": Jsonb([{"directory": f"{history.namespace_id}-{history.running}", "bytes": 10}]),
        "released": [history.failed],
        "events": Jsonb([]),
        "reclaimed": False,
    }


def setting_back(history: History) -> Params:
    return fence(history) | {
        "new_state": "PENDING",
        "delay_seconds": 1.0,
        "failures": 1,
        "page_size": 10,
        "code": "SOURCE_UNAVAILABLE",
        "params": Jsonb({}),
        "errors_kept": 20,
        "event_type": "unit-failed",
        "severity": "warning",
        "done": False,
        "reclaimed": False,
    }


def scheduling(history: History) -> Params:
    kinds = [
        {"kind": kind, "namespace": None, "definition": {"source": "source"}} for kind in KINDS
    ]
    return {
        "kinds": Jsonb(kinds),
        "operations": ["archive", "scan", "prune"],
        "ticked": ["archive"],
        "noted_seconds": 5,
        "farthest_seconds": rules.FARTHEST_PLAN_SECONDS,
        "plans_max": 16,
    }


def listing(**asked: str) -> Callable[[History], Params]:
    """Ask for a page of jobs or events; the names are those of members of a history."""

    def of(history: History) -> Params:
        empty: dict[str, object] = dict.fromkeys(("namespace_id", "job_id", "before", "search"))
        return empty | {"limit": 21} | {key: getattr(history, name) for key, name in asked.items()}

    return of


def volume(history: History) -> Params:
    return {
        "storage_id": history.storage_id,
        "root_inode": "1",
        "marker_inode": "2",
        "noted_seconds": 5,
        "keep": False,
        "limit": 10,
        "looked_at": 100,
        "directories_max": 500,
        "after": str(history.namespace_id),
        "directory": f"{history.namespace_id}-{history.closed}",
        "job_id": history.closed,
        "first": 1,
        "last": 100,
        "params": Jsonb({}),
        "overdue_seconds": 900,
        "errors_kept": 20,
        "code": "STORAGE_UNAVAILABLE",
    }


def plans(history: History) -> Params:
    return {
        "namespace_id": None,
        "kind": None,
        "name": "default",
        "storage_id": history.storage_id,
        "plan_id": history.plan_id,
        "enabled": True,
        "scope": "new",
        "interval_seconds": 86400,
        "batch_size": 10,
        "max_bytes": 1048576,
        "policy_revision": 1,
        "reason": "a test needs it",
        "next_run_at": "2030-01-01T00:00:00Z",
        "applied": Jsonb({}),
        "after_days": 30,
    }


def standing(job_id: str | None, namespace_id: str | None) -> Callable[[History], Params]:
    def of(history: History) -> Params:
        return {
            "job_id": getattr(history, job_id) if job_id else None,
            "namespace_id": getattr(history, namespace_id) if namespace_id else None,
            "pace_units": 100,
            "pace_seconds": 900,
        }

    return of


def pruning(history: History) -> Params:
    return {
        "namespace_id": history.namespace_id,
        "storage_id": history.storage_id,
        "roots": ["tallystick.job"],
        "closed_at": "2020-01-01T00:00:00Z",
        "job": "00000000-0000-0000-0000-000000000000",
        "seq": 0,
    }


def recording(history: History) -> Params:
    event = {
        "id": str(history.event),
        "occurred_at": "2026-01-01T00:00:00Z",
        "type": "job-failed",
        "severity": "error",
        "source": "tick",
        "done": False,
    }
    return {"events": Jsonb([event])}


def auditing(history: History) -> Params:
    asked = dict.fromkeys(("revision_seen", "before", "after"))
    named = dict.fromkeys(("actor", "action", "subject", "subject_id", "reason"), "tester")
    return asked | named | {"namespace_id": history.namespace_id}


def by_hand(history: History) -> Params:
    subjects = [{"subject": "plan", "subject_id": str(history.plan_id)}]
    return {"subjects": Jsonb(subjects), "entries_max": 100}


def beginnings(history: History) -> Params:
    begins = history.closed.hex[:8]
    return {"first": begins.ljust(32, "0"), "last": begins.ljust(32, "f")}


def of_namespace(history: History) -> Params:
    return dict(plans(history)) | {"namespace_id": history.namespace_id, "kind": "idle"}


def new_plan(history: History) -> Params:
    return dict(of_namespace(history)) | {"operation": "archive", "kind": "another"}


# Each statement with what it is asked; several where another question takes another way.
ASKED: dict[str, tuple[Callable[[History], Params], ...]] = {
    "db/audit": (auditing,),
    "doctor/account_sum": (volume,),
    "doctor/applied": (lambda _: NOTHING,),
    "doctor/control_facts": (lambda _: {"pruned": ["job"]},),
    "doctor/newest_directories": (volume,),
    "doctor/open_troubles": (lambda _: {"overdue_seconds": 900, "takeovers": 3, "limit": 21},),
    # Rows of the last day lie anywhere in the table: so many pages are read, and no more.
    "doctor/recent_events": (lambda _: {"seconds": 24 * 3600, "limit": 50},),
    "jobs/act": (lambda of: {"job_id": of.failed, "new_state": "ABANDONED", "max_bytes": None},),
    "jobs/actions": (job,),
    "jobs/between_ids": (beginnings,),
    "jobs/claim": (claiming, lambda of: dict(claiming(of)) | {"operations": ["scan"]}),
    "jobs/find_claim": (lambda _: {"owner": OWNER},),
    "jobs/get_job": (job,),
    "jobs/get_job_locked": (job,),
    "jobs/list_jobs": (
        listing(),
        listing(before="closed"),
        listing(namespace_id="namespace_id", before="closed"),
        listing(namespace_id="other_namespace_id"),
    ),
    "jobs/list_units": (job,),
    "jobs/lock_account": (job,),
    "jobs/look_back": (job,),
    "jobs/open_counts": (lambda _: NOTHING,),
    "jobs/open_job": (lambda of: fence(of) | {"opening": Jsonb({})},),
    "jobs/pause_overdue": (volume,),
    "jobs/reserve": (lambda of: fence(of) | {"size": 10, "volume_max": 2**40},),
    "jobs/resume_cured": (volume,),
    "jobs/set_back": (setting_back,),
    "jobs/settle": (settling,),
    "jobs/tails": (lambda _: NOTHING,),
    "jobs/unit_ends": (job,),
    "operations/next_files": (
        pruning,
        # Everything of ours that was archived is gone: nothing is left, among many archives of others.
        lambda of: dict(pruning(of)) | {"closed_at": "2999-01-01T00:00:00Z"},
    ),
    "operations/table_now": (lambda _: {"table": "job"},),
    "plans/borrow_plan": (plans,),
    "plans/create_namespace": (plans,),
    "plans/find_plan": (plan_of("archive"), plan_of("scan"), plan_of("prune")),
    "plans/insert_plan": (new_plan,),
    "plans/known_volume": (plans,),
    "plans/last_ticks": (lambda _: NOTHING,),
    "plans/lock_namespace": (plans,),
    "plans/lock_plan": (plan_of("archive"), plan_of("scan"), plan_of("prune")),
    "plans/lock_plans": (of_namespace,),
    "plans/namespaces": (plans, lambda _: {"name": None}),
    "plans/plan_applied": (plans,),
    "plans/plans": (plans, of_namespace),
    "plans/policies": (plans, of_namespace),
    "plans/policy_applied": (of_namespace,),
    "plans/schedule": (
        scheduling,
        lambda of: dict(scheduling(of)) | {"operations": ["scan"]},
        lambda of: dict(scheduling(of)) | {"operations": ["prune"]},
    ),
    "plans/set_by_hand": (by_hand,),
    "plans/set_policy": (of_namespace,),
    "plans/situations": (
        standing(None, None),
        standing(None, "namespace_id"),
        standing("running", None),
        standing("closed", None),
    ),
    "plans/switch_namespace": (of_namespace,),
    "plans/update_plan": (plans,),
    "recovery/newest": (
        listing(),
        listing(before="event"),
        listing(namespace_id="namespace_id", before="event"),
        listing(namespace_id="other_namespace_id"),
        listing(job_id="closed"),
    ),
    "recovery/record": (recording,),
    "volume/adopt": (volume,),
    "volume/directories": (volume,),
    "volume/lock_volume": (volume,),
    "volume/recorded": (volume,),
    "volume/visit": (volume,),
    "volume/volumes": (volume, lambda _: {"storage_id": None}),
}
SOURCE = (
    "runs in the database whose rows are archived; the plans of pages have a suite of their own"
)
TARGET = "runs in the database that rows are restored into"
# Statements that are not asked here, and why.
ELSEWHERE: dict[str, str] = {
    "archive/calls": SOURCE,
    "archive/cutoff": SOURCE,
    "archive/damage_passed_over": SOURCE,
    "archive/largest_group": SOURCE,
    "archive/like_named": SOURCE,
    "archive/null_share": SOURCE,
    "archive/parts_without_key": SOURCE,
    "archive/prepared": SOURCE,
    "archive/sees_activity": SOURCE,
    "archive/standby": SOURCE,
    "archive/table_size": SOURCE,
    "archive/terminate_older": SOURCE,
    "archive/window": SOURCE,
    "archive/zone_repeats": SOURCE,
    "catalog/inspect": SOURCE,
    "db/own_table": TARGET,
    "doctor/source_facts": SOURCE,
    "doctor/source_privileges": SOURCE,
    "jobs/archived": "returns every archive of a volume, for commands that read every one of them",
    "restore/beside": TARGET,
    "restore/collation_there": TARGET,
    "restore/one_at_a_time": TARGET,
    "restore/record": TARGET,
    "restore/recorded": TARGET,
    "restore/records_schema": TARGET,
    "restore/records_table": TARGET,
    "restore/records_there": TARGET,
    "restore/schema_there": TARGET,
    "restore/session": TARGET,
    "restore/type_there": TARGET,
}
