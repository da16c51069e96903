"""Trouble with jobs: who may export, who holds them, and processes that die."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from uuid import UUID

from shared.errors import Code
from tests.operations.stage import blocked, wait_for
from tests.remedies.scene import Scene, Variables, remedy
from tests.worlds import a_claim, control, expire_lease


@remedy(Code.POLICY_CHANGED, 1)
def the_policy_was_replaced(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.do("policy", "set", "orders", "--after", "400d")
    scene.ask("tick", code=3)
    yield {"JOB": job, "KIND": "orders"}
    assert scene.job(job)["state"] == "ABANDONED"
    assert scene.finishes()["policy_revision"] == "2"


@remedy(Code.PERMISSION_DENIED, 1)
def a_namespace_was_disabled(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.do("namespaces", "disable", "default")
    scene.ask("tick", code=3)
    yield {"NAMESPACE": "default", "JOB": job}
    scene.finishes(job)


@remedy(Code.PERMISSION_DENIED, 2)
def a_namespace_stays_disabled(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.do("namespaces", "disable", "default")
    scene.ask("tick", code=3)
    yield {"JOB": job}
    assert scene.job(job)["state"] == "ABANDONED"
    assert scene.ask("archive", "verify", job, code=0)["verdict"] == "UNFINISHED"
    assert scene.ask("tick", code=0)["outcome"] == "idle"


@remedy(Code.CRASH_LOOP, 1, 2)
def ten_holders_in_a_row_died(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    storage_id = scene.job(job)["storage_id"]
    with closing(control(scene.database)) as db:
        # A holder that never writes again is all that is left of a process that was killed.
        for _ in range(11):
            a_claim(db, storage_id)
            expire_lease(db, UUID(job))
    scene.ask("tick", code=3)
    yield {"JOB": job}
    assert scene.job(job)["batches"] > 1
    scene.finishes(job)


FAULTY = """
CREATE SEQUENCE public.fault;
CREATE FUNCTION public.faulty() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN IF nextval(''public.fault'') <= 2 THEN RAISE ''somebody else wrote this trigger''; END IF;
RETURN new; END';
CREATE TRIGGER faulty BEFORE INSERT ON tallystick.unit
FOR EACH ROW EXECUTE FUNCTION public.faulty()
"""


@remedy(Code.INTERNAL_ERROR, 1, 2)
def something_unforeseen_and_then_no_more(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.sql(FAULTY)
    scene.setenv(DEADLINE_SECONDS=1, TIMEOUT_SECONDS=1.5, LEASE_SECONDS=2)
    assert scene.ask("tick", code=1)["params"]["type"] == "RaiseException"
    scene.time_passes()
    yield {"LEASE": "2"}
    log = (scene.directory / "fault.log").read_text()
    assert "Traceback" in log
    assert "somebody else wrote this trigger" in log
    assert scene.newest()["batches"] == 1
    scene.finishes()


@remedy(Code.CLAIM_LOST, 1, 2)
def an_operator_paused_the_job_under_a_tick(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    with scene.session() as other:
        other.execute("LOCK TABLE app.line IN ACCESS EXCLUSIVE MODE")
        command = [sys.executable, "-m", "handlers.cli", "tick", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ticking:
            wait_for(lambda: blocked(scene.database))
            scene.do("jobs", "pause", job)
            other.rollback()
            out, _ = ticking.communicate(timeout=30)
    assert ticking.returncode == 0
    scene.see(json.loads(out))
    yield {"JOB": job}
    found = scene.job(job)
    assert (found["state"], found["batches"]) == ("PENDING", 1)
    scene.time_passes()
    scene.finishes(job)
