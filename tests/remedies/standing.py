"""Plans and jobs that stand still, as the doctor finds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared.plans.outlook import Standing
from tests.remedies.scene import Scene, Variables, remedy


def found(scene: Scene, code: str) -> list[dict[str, Any]]:
    """Return what the doctor says of one code."""
    return [each for each in scene.ask("doctor")["findings"] if each["code"] == code]


def only(scene: Scene, code: str, cause: str | None = None) -> dict[str, Any]:
    (finding,) = found(scene, code)
    assert finding["params"].get("cause") == cause
    return finding


@remedy(Standing.JOB_FAILED, 1)
def a_job_failed_and_its_cause_is_gone(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.sql("ALTER TABLE app.line RENAME TO row")
    scene.ask("tick", code=3)
    scene.sql("ALTER TABLE app.row RENAME TO line")
    assert job in only(scene, "JOB_FAILED", "hopeless")["message"]
    yield {"JOB": job}
    assert found(scene, "JOB_FAILED") == []
    scene.finishes(job)


@remedy(Standing.JOB_FAILED, 2)
def a_job_failed_and_is_given_up(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.sql("ALTER TABLE app.line ADD COLUMN colour text")
    scene.ask("tick", code=3)
    only(scene, "JOB_FAILED", "hopeless")
    yield {"JOB": job}
    assert found(scene, "JOB_FAILED") == []
    scene.time_passes()
    assert scene.finishes()["id"] != job


@remedy(Standing.JOB_PAUSED, 1)
def a_job_was_paused(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.do("jobs", "pause", job)
    only(scene, "JOB_PAUSED")
    yield {"JOB": job}
    assert found(scene, "JOB_PAUSED") == []
    scene.finishes(job)


@remedy(Standing.NO_TICK, 1)
def the_schedule_stopped(scene: Scene) -> Iterator[Variables]:
    scene.in_mid_job()
    scene.sql("UPDATE tallystick.last_tick SET ticked_at = now() - interval '1 day'")
    only(scene, "NO_TICK")
    yield {}
    assert found(scene, "NO_TICK") == []


@remedy(Standing.PLAN_STALE, 1)
def a_policy_was_changed(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.do("policy", "set", "orders", "--after", "400d")
    only(scene, "PLAN_STALE")
    yield {"KIND": "orders"}
    assert found(scene, "PLAN_STALE") == []
    scene.finishes()


@remedy(Standing.NAMESPACE_DISABLED, 1)
def a_namespace_was_switched_off(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.do("namespaces", "disable", "default")
    only(scene, "NAMESPACE_DISABLED")
    yield {"NAMESPACE": "default"}
    assert found(scene, "NAMESPACE_DISABLED") == []
    scene.finishes()
