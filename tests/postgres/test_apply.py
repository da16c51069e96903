"""Applying a kinds file: in one transaction, signed row by row, and never over what somebody else changed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from shared.db.audit import Signature
from shared.db.connect import Database, connect
from shared.errors import Code, Refused
from shared.plans import applying, namespaces, planning, policies
from shared.plans.applying import Asked, plan_as, policy_and_plan
from shared.plans.difference import (
    Action,
    Declared,
    Difference,
    plan_of,
    policy_of,
    set_since,
)
from shared.plans.schedule import KnownKind, schedule
from tests import worlds
from tests.operations.stage import blocked, wait_for
from tests.worlds import SIGNED, a_plan, a_policy, one, rows

BY_FILE = Signature("ci", "apply kinds.toml")
NIGHTLY = Asked(after_days=365, interval_seconds=86400)
ENTRIES = "SELECT * FROM tallystick.audit_entry WHERE action = 'apply' ORDER BY occurred_at"


def declared(storage_id: str | None, **kinds: Asked) -> Declared:
    subjects: dict[Any, dict[str, Any]] = {}
    for kind, asked in kinds.items():
        subjects |= policy_and_plan(kind, asked)
    return Declared(subjects, storage_id)


def apply(control: Database, wanted: Declared, namespace: str = "default") -> Difference:
    """Look and apply; return what was shown."""
    shown = applying.compare(control, wanted, namespace)
    applying.apply(control, wanted, namespace, shown, BY_FILE)
    return shown


def actions(found: Difference) -> list[tuple[str, Action]]:
    return [(step.subject.name, step.action) for step in found.steps]


def test_what_a_file_asks_is_made_and_then_there_is_no_difference(
    database: str, control: Database, storage_id: str
) -> None:
    wanted = declared(
        storage_id,
        invoices=Asked(365, 86400, 7, 2**21, "all"),
        notes=Asked(30, 3600, enabled=False),
        texts=Asked(30),
    )
    wanted = Declared({**wanted.subjects, **plan_as("scan", None, Asked(None, 604800))}, storage_id)
    apply(control, wanted)
    again = applying.compare(control, wanted, "default")
    assert (again.steps, again.drift, again.unmanaged) == ((), (), ())
    plans = {row["kind"] or row["operation"]: row for row in planning.listed(control)}
    assert set(plans) == {"invoices", "notes", "scan"}
    assert {name: plans["invoices"][name] for name in planning.DEFAULTS} == {
        "enabled": True,
        "scope": "all",
        "interval_seconds": 86400,
        "batch_size": 7,
        "max_bytes": 2**21,
    }
    # First enabling is due at once; what is not enabled has no slot.
    assert plans["invoices"]["next_run_at"] is not None
    assert plans["notes"]["next_run_at"] is None
    assert {row["kind"]: row["after_days"] for row in policies.listed(control)} == {
        "invoices": 365,
        "notes": 30,
        "texts": 30,
    }
    assert not applying.apply(control, wanted, "default", again, BY_FILE)


def test_every_changed_row_leaves_one_entry_with_actor_and_reason(
    database: str, control: Database, storage_id: str
) -> None:
    apply(control, declared(storage_id, invoices=NIGHTLY, notes=Asked(30)))
    entries = rows(database, ENTRIES)
    subjects = [(entry["subject"], entry["before"]) for entry in entries]
    assert subjects == [("policy", None), ("policy", None), ("plan", None)]
    assert {(entry["actor"], entry["reason"]) for entry in entries} == {
        (BY_FILE.actor, BY_FILE.reason)
    }
    apply(control, declared(storage_id, invoices=NIGHTLY, notes=Asked(60)))
    (newest,) = rows(database, ENTRIES)[3:]
    assert (newest["before"]["after_days"], newest["after"]["after_days"]) == (30, 60)
    apply(control, declared(storage_id, invoices=NIGHTLY, notes=Asked(60)))
    assert len(rows(database, ENTRIES)) == 4


def test_a_failure_in_the_middle_changes_nothing(
    database: str, control: Database, storage_id: str
) -> None:
    apply(control, declared(storage_id, invoices=NIGHTLY, notes=NIGHTLY))
    before = everything(database)
    rows(
        database,
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'not this one'; END $$
        """,
    )
    rows(
        database,
        """
        CREATE TRIGGER refuse BEFORE UPDATE ON tallystick.plan
        FOR EACH ROW WHEN (new.kind = 'notes') EXECUTE FUNCTION refuse()
        """,
    )
    wanted = declared(storage_id, invoices=Asked(9, 3600), notes=Asked(9, 3600), texts=NIGHTLY)
    with pytest.raises(psycopg.errors.RaiseException):
        apply(control, wanted)
    assert everything(database) == before


def everything(database: str) -> list[Any]:
    tables = ("policy", "plan", "audit_entry")
    return [rows(database, f"SELECT * FROM tallystick.{table} ORDER BY 1, 2") for table in tables]


def test_what_set_changed_shows_as_drift_and_apply_puts_it_back(
    control: Database, storage_id: str
) -> None:
    wanted = declared(storage_id, invoices=NIGHTLY)
    apply(control, wanted)
    ann, bob = Signature("ann", "the disk is full"), Signature("bob", "looks better")
    change = planning.PlanChange("archive", "invoices", storage_id, interval_seconds=3600)
    planning.put(control, "default", change, ann)
    change = planning.PlanChange("archive", "invoices", storage_id, batch_size=5)
    planning.put(control, "default", change, bob)
    policies.put(control, "default", policies.PolicyChange("invoices", 7), ann)
    found = applying.compare(control, wanted, "default")
    hands = applying.hands(control, found.drift)
    told = {
        (each.name, each.applied, each.now): (hand.actor, hand.reason) if hand else None
        for each, hand in hands.items()
    }
    assert told == {
        ("interval_seconds", 86400, 3600): ("ann", "the disk is full"),
        ("batch_size", 1000, 5): ("bob", "looks better"),
        ("after_days", 365, 7): ("ann", "the disk is full"),
    }
    apply(control, wanted)
    (plan,), (policy,) = planning.listed(control), policies.listed(control)
    assert (plan["interval_seconds"], plan["batch_size"], policy["after_days"]) == (
        86400,
        1000,
        365,
    )
    assert applying.compare(control, wanted, "default").drift == ()


def test_drift_is_seen_when_the_audit_no_longer_knows_by_whom(
    database: str, control: Database, storage_id: str
) -> None:
    wanted = declared(storage_id, invoices=NIGHTLY)
    apply(control, wanted)
    a_plan(control, "invoices", storage_id, batch_size=5)
    rows(database, "DELETE FROM tallystick.audit_entry")
    found = applying.compare(control, wanted, "default")
    assert list(applying.hands(control, found.drift).values()) == [None]
    assert [each.now for each in found.drift] == [5]


def test_a_plan_whose_kind_is_gone_from_the_file_is_disabled_and_never_deleted(
    control: Database, storage_id: str
) -> None:
    apply(control, declared(storage_id, invoices=NIGHTLY, notes=NIGHTLY))
    a_plan(control, "by_hand", storage_id)
    wanted = declared(storage_id, notes=NIGHTLY)
    shown = apply(control, wanted)
    assert actions(shown) == [("invoices", Action.DISABLE)]
    assert {row["kind"]: row["enabled"] for row in planning.listed(control)} == {
        "invoices": False,
        "notes": True,
        "by_hand": True,
    }
    # That it is disabled is what the file left, and no drift.
    assert [set_since(row, row["applied"]) for row in planning.listed(control)] == [()] * 3
    again = applying.compare(control, wanted, "default")
    assert again.steps == ()
    assert {each.subject for each in again.unmanaged} == {
        *(policy_of("invoices"), plan_of("archive", "invoices")),
        *(policy_of("by_hand"), plan_of("archive", "by_hand")),
    }


def test_a_policy_that_moves_takes_its_plan_along(control: Database, storage_id: str) -> None:
    apply(control, declared(storage_id, invoices=NIGHTLY))
    (job,) = schedule(control, [KnownKind("invoices", None, {})], ["archive"]).jobs
    shown = apply(control, declared(storage_id, invoices=Asked(30, 86400)))
    assert [step.stops for step in shown.steps] == [None, str(job)]
    (plan,) = planning.listed(control)
    assert plan["policy_revision"] == plan["policy_now"] == 2


def test_a_plan_by_hand_goes_on_when_the_file_moves_its_policy(
    control: Database, storage_id: str
) -> None:
    a_plan(control, "invoices", storage_id, batch_size=5)
    wanted = declared(storage_id, invoices=Asked(30))
    assert actions(apply(control, wanted)) == [
        ("invoices", Action.CHANGE),
        ("invoices", Action.REBIND),
    ]
    (plan,) = planning.listed(control)
    assert plan["policy_revision"] == plan["policy_now"]
    assert (plan["batch_size"], plan["applied"]) == (5, None)
    assert applying.compare(control, wanted, "default").steps == ()


def test_what_is_as_the_file_says_becomes_the_files_without_a_new_revision(
    control: Database, storage_id: str
) -> None:
    a_policy(control, "invoices", after_days=365)
    a_plan(control, "invoices", storage_id)
    wanted = declared(storage_id, invoices=NIGHTLY)
    assert actions(apply(control, wanted)) == [("invoices", Action.ADOPT)] * 2
    (plan,), (policy,) = planning.listed(control), policies.listed(control)
    assert (plan["revision"], policy["revision"]) == (1, 1)
    assert actions(apply(control, declared(storage_id))) == [("invoices", Action.DISABLE)]


def test_what_changed_after_it_was_shown_is_not_overwritten(
    database: str, control: Database, storage_id: str
) -> None:
    wanted = declared(storage_id, invoices=NIGHTLY)
    apply(control, wanted)
    wanted = declared(storage_id, invoices=Asked(365, 3600))
    shown = applying.compare(control, wanted, "default")
    a_plan(control, "invoices", storage_id, batch_size=5)
    before = everything(database)
    with pytest.raises(Refused) as refused:
        applying.apply(control, wanted, "default", shown, BY_FILE)
    assert refused.value.code is Code.DIFFERENCE_STALE
    assert everything(database) == before


def test_of_two_applies_at_once_one_does_it_and_the_other_finds_it_done(
    database: str, control: Database, storage_id: str
) -> None:
    wanted = declared(storage_id, **{f"kind_{n}": NIGHTLY for n in range(5)})
    looked = threading.Barrier(4)

    def run(_: int) -> bool:
        with closing(worlds.control(database)) as mine:
            shown = applying.compare(mine, wanted, "default")
            looked.wait(20)
            return applying.apply(mine, wanted, "default", shown, BY_FILE)

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(run, range(4))) == [False, False, False, True]
    assert one(database, "SELECT count(*) FROM tallystick.audit_entry") == 10
    assert applying.compare(control, wanted, "default").steps == ()


def test_applying_while_jobs_are_scheduled_neither_waits_for_ever_nor_loses_one(
    database: str, control: Database, storage_id: str
) -> None:
    kinds = [f"kind_{n}" for n in range(8)]
    apply(control, declared(storage_id, **dict.fromkeys(kinds, NIGHTLY)))
    known = [KnownKind(kind, None, {}) for kind in kinds]

    def tick(_: int) -> int:
        with closing(worlds.control(database)) as mine:
            return len(schedule(mine, known, ["archive"]).jobs)

    def change() -> None:
        with closing(worlds.control(database)) as mine:
            for days in range(1, 6):
                apply(mine, declared(storage_id, **dict.fromkeys(kinds, Asked(days, 86400))))

    with ThreadPoolExecutor(4) as pool:
        changing = pool.submit(change)
        made = sum(pool.map(tick, range(20)))
        changing.result(60)
    made += tick(0)
    assert made == one(database, "SELECT count(*) FROM tallystick.job") == len(kinds)
    assert all(row["policy_revision"] == row["policy_now"] for row in planning.listed(control))


def test_a_plan_keeps_its_volume(control: Database, storage_id: str) -> None:
    apply(control, declared(storage_id, invoices=NIGHTLY))
    apply(control, declared(worlds.a_storage_id(control), invoices=Asked(365, 3600)))
    apply(control, declared(None, invoices=Asked(365, 7200)))
    (plan,) = planning.listed(control)
    assert (plan["storage_id"], plan["interval_seconds"]) == (storage_id, 7200)


def test_a_scan_is_changed_from_a_node_that_has_no_volume(
    control: Database, storage_id: str
) -> None:
    a_plan(control, None, storage_id)
    apply(control, Declared(plan_as("scan", None, Asked(None, 7200)), None))
    (plan,) = planning.listed(control)
    assert (plan["storage_id"], plan["interval_seconds"]) == (storage_id, 7200)


def test_other_namespaces_are_not_looked_at(control: Database, storage_id: str) -> None:
    namespaces.create(control, "north", SIGNED)
    wanted = declared(storage_id, invoices=NIGHTLY)
    apply(control, wanted, "north")
    assert applying.compare(control, declared(storage_id), "default").steps == ()
    apply(control, wanted, "default")
    assert [row["namespace"] for row in planning.listed(control)] == ["default", "north"]
    with pytest.raises(Refused) as refused:
        applying.compare(control, wanted, "south")
    assert refused.value.code is Code.NAMESPACE_UNKNOWN


def test_a_reason_is_made_of_the_file_and_its_digest_and_always_fits() -> None:
    assert applying.reason_of(Path("etc/kinds.toml"), "ab") == "apply kinds.toml (sha256 ab)"
    for name in ("a\nb", "\udcff" * 40, "x" * 255):
        Signature("ci", applying.reason_of(Path(name), "f" * 64))


def test_a_scan_that_is_being_changed_from_another_namespace_is_waited_for(
    database: str, control: Database, storage_id: str
) -> None:
    namespaces.create(control, "north", SIGNED)
    a_plan(control, None, storage_id)
    wanted = Declared(plan_as("scan", None, Asked(None, 7200)), storage_id)

    def run() -> Difference:
        with closing(worlds.control(database)) as mine:
            return apply(mine, wanted, "north")

    with ThreadPoolExecutor(1) as pool, connect(database) as operator:
        with operator.transaction():
            operator.execute("UPDATE tallystick.plan SET batch_size = 7")
            applying_ = pool.submit(run)
            wait_for(lambda: blocked(database))
        with pytest.raises(Refused) as refused:
            applying_.result(30)
    assert refused.value.code is Code.DIFFERENCE_STALE
