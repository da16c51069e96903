"""Trouble with what an operator asks for: names, states, revisions and reasons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shared.errors import Code
from tests.golden.scenario import KINDS
from tests.remedies.scene import SIGNED, Scene, Variables, remedy
from tests.remedies.storage import BULKY


@remedy(Code.OPERATION_UNKNOWN, 1)
def a_kind_was_given_for_an_operation(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    assert "archive" in scene.ask("tick", "orders", code=2)["params"]["known"]
    yield {"OPERATION": "archive"}
    assert scene.newest()["batches"] == 2


@remedy(Code.NAMESPACE_UNKNOWN, 1)
def the_namespace_is_misspelt(scene: Scene) -> Iterator[Variables]:
    scene.ask("policy", "list", "--namespace", "defalt", code=2)
    yield {"NAMESPACE": "default"}


@remedy(Code.NAMESPACE_UNKNOWN, 2)
def the_namespace_was_never_created(scene: Scene) -> Iterator[Variables]:
    scene.ask("policy", "list", "--namespace", "second", code=2)
    yield {"NAME": "second"}
    assert len(scene.ask("namespaces", "list", code=0)["items"]) == 2


@remedy(Code.NAMESPACE_AMBIGUOUS, 1)
def a_second_namespace_was_created(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.do("namespaces", "create", "second")
    scene.ask("policy", "set", "orders", "--after", "30d", *SIGNED, code=2)
    yield {"KIND": "orders", "NAMESPACE": "default"}
    assert scene.ask("policy", "list")["items"][0]["revision"] == "2"


@remedy(Code.NAMESPACE_EXISTS, 1)
def the_namespace_was_disabled(scene: Scene) -> Iterator[Variables]:
    scene.do("namespaces", "create", "second")
    scene.do("namespaces", "disable", "second")
    scene.ask("namespaces", "create", "second", *SIGNED, code=2)
    yield {"NAME": "second"}
    assert all(each["enabled"] for each in scene.ask("namespaces", "list")["items"])


@remedy(Code.NAMESPACE_EXISTS, 2)
def the_name_is_taken(scene: Scene) -> Iterator[Variables]:
    scene.ask("namespaces", "create", "default", *SIGNED, code=2)
    yield {"OTHER": "second"}
    assert len(scene.ask("namespaces", "list", code=0)["items"]) == 2


def mismatched(scene: Scene) -> None:
    scene.deploy()
    scene.do("namespaces", "create", "second")
    asked = ("policy", "set", "orders", "--after", "30d", "--namespace", "second")
    assert scene.ask(*asked, *SIGNED, code=2)["params"]["belongs_to"] == "default"


@remedy(Code.NAMESPACE_MISMATCH, 1)
def the_kind_belongs_to_another_namespace(scene: Scene) -> Iterator[Variables]:
    mismatched(scene)
    yield {"KIND": "orders", "NAMESPACE": "default"}
    assert scene.ask("policy", "list")["items"][0]["namespace"] == "default"


@remedy(Code.NAMESPACE_MISMATCH, 2)
def the_kind_shall_belong_to_the_other_one(scene: Scene) -> Iterator[Variables]:
    mismatched(scene)
    moved = KINDS.replace('time = "placed_at"', 'time = "placed_at"\nbelongs_to = "second"')
    yield {"KIND": "orders", "OTHER": "second", "EDITOR": scene.editor(moved)}
    owners = [each["namespace"] for each in scene.ask("policy", "list")["items"]]
    assert sorted(owners) == ["default", "second"]


@remedy(Code.POLICY_MISSING, 1)
def nobody_set_a_policy(scene: Scene) -> Iterator[Variables]:
    scene.deploy(kind=None)
    scene.ask("plan", "set", "orders", "--enable", *SIGNED, code=2)
    yield {"KIND": "orders"}
    scene.finishes()


@remedy(Code.POLICY_DISABLED, 1)
def the_policy_was_disabled(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.do("policy", "set", "orders", "--disable")
    scene.ask("plan", "set", "orders", "--enable", *SIGNED, code=2)
    yield {"KIND": "orders"}
    scene.finishes()


@remedy(Code.PLAN_MISSING, 1)
def nobody_made_a_plan(scene: Scene) -> Iterator[Variables]:
    scene.deploy(kind=None)
    scene.do("policy", "set", "orders", "--after", "365d")
    scene.ask("plan", "sweep", "orders", *SIGNED, code=2)
    yield {"KIND": "orders"}
    assert scene.newest()["roots"] == 45


@remedy(Code.PLAN_DISABLED, 1)
def the_policy_moved_on(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.do("policy", "set", "orders", "--after", "400d")
    told = scene.ask("plan", "sweep", "orders", *SIGNED, code=2)
    assert told["params"]["cause"] == "policy-moved"
    yield {"KIND": "orders"}
    scene.finishes()


@remedy(Code.PLAN_DISABLED, 2)
def the_namespace_of_the_plan_is_disabled(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.do("namespaces", "disable", "default")
    scene.ask("plan", "sweep", "orders", *SIGNED, code=2)
    yield {"KIND": "orders", "NAMESPACE": "default"}
    scene.finishes()


@remedy(Code.JOB_UNKNOWN, 1)
def the_id_is_cut_too_short(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    assert scene.ask("jobs", "show", job[:7], code=2)["params"]["cause"] == "malformed"
    yield {"JOB": job[:8]}


@remedy(Code.JOB_UNKNOWN, 2)
def the_database_is_older_than_the_job(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    directory = scene.directory_of(job).name
    with scene.another_database() as restored:
        scene.setenv(DATABASE_URL=restored)
        scene.ask("migrate", code=0)
        scene.ask("jobs", "show", job, code=2)
        yield {"ROOT": str(scene.root), "DIRECTORY": directory}


@remedy(Code.JOB_OPEN, 1)
def a_sweep_finds_a_job_at_work(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.ask("plan", "sweep", "orders", *SIGNED, code=2)
    yield {"KIND": "orders"}
    assert scene.job(job)["state"] == "SUCCEEDED"
    assert scene.finishes()["id"] != job


@remedy(Code.JOB_OPEN, 2)
def the_plan_shall_move_to_another_volume(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    root = Path(scene.directory / "other")
    made = scene.ask("volume", "init", "--root", str(root), code=0)
    scene.setenv(ARCHIVE_ROOT=root, ARCHIVE_STORAGE_ID=made["storage_id"])
    scene.ask("plan", "set", "orders", "--enable", *SIGNED, code=2)
    yield {"KIND": "orders", "JOB": job}
    assert scene.job(job)["state"] == "ABANDONED"
    scene.time_passes()
    assert scene.finishes()["storage_id"] == made["storage_id"]


@remedy(Code.ACTION_NOT_ALLOWED, 1)
def a_paused_job_was_to_be_retried(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.do("jobs", "pause", job)
    scene.ask("jobs", "retry", job, *SIGNED, code=2)
    yield {"JOB": job}
    scene.finishes(job)


@remedy(Code.ACTION_NOT_ALLOWED, 2)
def a_closed_job_was_to_be_retried(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    job = scene.finishes()["id"]
    scene.ask("jobs", "retry", job, *SIGNED, code=2)
    yield {"KIND": "orders"}
    assert scene.finishes()["id"] != job


@remedy(Code.BUDGET_SMALLER, 1, 2)
def a_number_alone_is_bytes(scene: Scene) -> Iterator[Variables]:
    scene.deploy("--max-bytes", "1MiB")
    scene.sql(BULKY)
    scene.ask("tick", "--until-idle", code=3)
    job = scene.newest()["id"]
    scene.ask("jobs", "retry", job, "--max-bytes", "20", *SIGNED, code=2)
    yield {"JOB": job, "KIND": "orders", "MORE": "20MiB", "LESS": "2MiB"}
    scene.finishes(job)
    assert scene.ask("plan", "list")["items"][0]["max_bytes"] == 2 * 1024 * 1024


@remedy(Code.REVISION_STALE, 1)
def somebody_else_was_quicker(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.do("policy", "set", "orders", "--after", "380d")
    asked = ("policy", "set", "orders", "--after", "400d", "--revision", "1", *SIGNED)
    assert scene.ask(*asked, code=2)["params"]["current"] == 2
    yield {"KIND": "orders", "CURRENT": "2"}
    assert scene.ask("policy", "list")["items"][0]["after_days"] == 400


@remedy(Code.REASON_INVALID, 1)
def the_reason_says_nothing(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.ask("policy", "set", "orders", "--after", "365d", "--reason", " ", code=2)
    yield {"KIND": "orders"}
    assert scene.ask("policy", "list")["items"][0]["revision"] == "2"


@remedy(Code.NAME_INVALID, 1)
def the_name_has_capitals(scene: Scene) -> Iterator[Variables]:
    scene.ask("namespaces", "create", "Second", *SIGNED, code=2)
    yield {"NAME": "second"}
    assert len(scene.ask("namespaces", "list", code=0)["items"]) == 2


@remedy(Code.VALUE_OUT_OF_RANGE, 1)
def a_plan_was_to_run_every_minute(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    told = scene.ask("plan", "set", "orders", "--every", "1m", *SIGNED, code=2)
    assert told["params"]["lowest"] == 3600
    yield {"KIND": "orders"}
    assert scene.ask("plan", "list", code=0)["items"][0]["max_bytes"] == 1024**3


@remedy(Code.VALUE_OUT_OF_RANGE, 2)
def rows_were_to_be_older_than_a_century(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.ask("policy", "set", "orders", "--after", "99999d", *SIGNED, code=2)
    yield {"KIND": "orders", "AFTER": "3650d"}
    assert scene.ask("policy", "list", code=0)["items"][0]["after_days"] == 3650
