"""What the doctor finds, and no other command says."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

from shared.errors import Code
from tests.export.standby import standby_of
from tests.remedies.database import settle_without_an_answer
from tests.remedies.scene import Scene, Variables, path, remedy
from tests.remedies.storage import BULKY
from tests.worlds import a_claim, control, expire_lease


def findings(scene: Scene) -> dict[str, object]:
    """Return the codes the doctor finds, each with its cause."""
    found = scene.ask("doctor")["findings"]
    return {each["code"]: each["params"].get("cause") for each in found}


@remedy(Code.GRANT_MISSING, 1)
def the_user_lacks_rights_in_the_control_database(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    with scene.role() as role:
        scene.sql(f"GRANT USAGE ON SCHEMA app TO {role}")
        scene.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA app TO {role}")
        scene.setenv(DATABASE_URL=scene.url(role=role))
        assert findings(scene)["GRANT_MISSING"] == "control"
        yield {"OWNER": scene.database, "ROLE": role}
        assert "GRANT_MISSING" not in findings(scene)
        scene.finishes()


@remedy(Code.GRANT_MISSING, 2)
def the_user_lacks_rights_in_the_source(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    with scene.role() as role:
        scene.sql(f"GRANT SELECT ON app.orders TO {role}")
        scene.setenv(SOURCE_URL=scene.url(role=role))
        assert findings(scene)["GRANT_MISSING"] == "source"
        yield {"OWNER": scene.database, "SCHEMA": "app", "TABLE": "line", "ROLE": role}
        assert "GRANT_MISSING" not in findings(scene)
        scene.finishes()


@remedy(Code.SOURCE_STANDBY, 1, 2)
def rows_are_read_from_a_standby(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    # Its socket needs a short path.
    with (
        tempfile.TemporaryDirectory(prefix="tallystick-") as home,
        standby_of(scene.database, Path(home)) as standby,
    ):
        scene.setenv(SOURCE_URL=standby)
        findings(scene)
        yield {"SOURCE": standby, "PRIMARY": scene.database}
        assert "SOURCE_STANDBY" not in findings(scene)


@remedy(Code.VOLUME_MOUNT, 1)
def the_volume_is_kept_in_memory(scene: Scene) -> Iterator[Variables]:
    memory = scene.directory / "memory"
    memory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", memory], check=True)
    disk = Path(tempfile.mkdtemp(prefix="tallystick-", dir="/var/tmp"))
    try:
        (memory / "volume").mkdir(mode=0o700)
        scene.root_at = memory / "volume"
        job = scene.in_mid_job()
        assert findings(scene)["VOLUME_MOUNT"] == "in-memory"
        yield {"ROOT": str(scene.root), "NEW": str(disk / "volume")}
        assert "VOLUME_MOUNT" not in findings(scene)
        scene.finishes(job)
    finally:
        subprocess.run(["umount", memory], check=True)
        shutil.rmtree(disk)


@remedy(Code.VOLUME_NEARLY_FULL, 1)
def the_budget_is_nearly_used_up(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.sql(BULKY)
    used = scene.finishes()["bytes"]
    scene.setenv(ARCHIVE_MAX_BYTES=used + used // 20)
    assert findings(scene)["VOLUME_NEARLY_FULL"] == "budget"
    yield {"MORE": str(4 * used)}
    assert "VOLUME_NEARLY_FULL" not in findings(scene)


@remedy(Code.VOLUME_NEARLY_FULL, 2)
def the_budget_is_more_than_the_disk_has(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.ask("tick", code=0)
    free = shutil.disk_usage(scene.root).free
    scene.setenv(ARCHIVE_MAX_BYTES=min(2 * free, 1024**4))
    assert findings(scene)["VOLUME_NEARLY_FULL"] == "disk"
    yield {"ROOT": str(scene.root), "LESS": str(max(free // 4, 1024**2))}
    assert "VOLUME_NEARLY_FULL" not in findings(scene)


# Another function takes the name of the server's own, so that whoever asks for the time asks this one.
SKEWED = (
    "ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO clock_of_the_machine",
    (
        "CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql"
        " AS $$ SELECT clock_of_the_machine() + interval '1 hour' $$"
    ),
)
SET_RIGHT = (
    "DROP FUNCTION pg_catalog.clock_timestamp();"
    " ALTER FUNCTION pg_catalog.clock_of_the_machine() RENAME TO clock_timestamp"
)


@remedy(Code.CLOCK_SKEW, 1)
def the_clock_of_the_database_is_an_hour_ahead(scene: Scene) -> Iterator[Variables]:
    """No test sets the machine's clock: the database's is moved, and timedatectl is stood in for."""
    scene.deploy()
    for statement in SKEWED:
        scene.sql(statement)
    assert findings(scene)["CLOCK_SKEW"] == "node-behind"
    programs = scene.directory / "programs"
    programs.mkdir()
    stand_in = programs / "timedatectl"
    set_right = f'psql "$TALLYSTICK_DATABASE_URL" -c "{SET_RIGHT}"'
    stand_in.write_text(f'#!/bin/sh\ntest "$*" = "set-ntp true" && {set_right}\n')
    stand_in.chmod(0o700)
    yield {"PATH": f"{programs}:{path()}"}
    assert "CLOCK_SKEW" not in findings(scene)


@remedy(Code.PLAN_OVERDUE, 1)
def the_nodes_that_tick_do_not_know_the_kind(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.finishes()
    scene.sql("UPDATE tallystick.plan SET next_run_at = now() - interval '1 hour'")
    scene.setenv(KINDS_FILE=None)
    assert scene.ask("tick", code=0)["outcome"] == "idle"
    scene.setenv(KINDS_FILE=scene.kinds)
    findings(scene)
    yield {"OPERATION": "archive"}
    assert "PLAN_OVERDUE" not in findings(scene)
    assert len(scene.ask("jobs", "list")["items"]) == 2


@remedy(Code.JOB_STUCK, 1)
def no_node_with_the_volume_ticks(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.sql("UPDATE tallystick.job SET due_at = now() - interval '1 hour'")
    with scene.monkeypatch.context() as elsewhere:
        for name in ("ROOT", "STORAGE_ID"):
            elsewhere.delenv(f"TALLYSTICK_ARCHIVE_{name}")
        scene.ask("tick", code=0)
    findings(scene)
    yield {"JOB": job}
    assert "JOB_STUCK" not in findings(scene)
    scene.finishes(job)


@remedy(Code.JOB_STUCK, 2)
def three_holders_in_a_row_died(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    storage_id = scene.job(job)["storage_id"]
    with closing(control(scene.database)) as db:
        for _ in range(4):
            a_claim(db, storage_id)
            expire_lease(db, UUID(job))
    assert findings(scene)["JOB_STUCK"] == "dying"
    yield {"JOB": job}
    assert "JOB_STUCK" not in findings(scene)
    scene.finishes(job)


def lose_a_file(scene: Scene, job: str) -> None:
    """Let somebody move a file of an archive away, by hand."""
    (scene.directory_of(job) / "000002.sql.zst").rename(scene.directory / "away")
    assert "LEDGER_DRIFT" in findings(scene)


@remedy(Code.LEDGER_DRIFT, 1)
def a_file_was_taken_away_from_a_volume_that_is_scanned(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    job = scene.finishes()["id"]
    scene.do("plan", "set", "--operation", "scan", "--enable")
    scene.ask("tick", "scan", "--until-idle", code=0)
    lose_a_file(scene, job)
    yield {}
    assert "LEDGER_DRIFT" not in findings(scene)


@remedy(Code.LEDGER_DRIFT, 2)
def a_file_was_taken_away_from_a_volume_that_is_not(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    lose_a_file(scene, scene.finishes()["id"])
    yield {}
    assert "LEDGER_DRIFT" not in findings(scene)


@remedy(Code.LEDGER_DRIFT, 3)
def the_sum_was_changed_by_hand(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    storage_id = scene.finishes()["storage_id"]
    scene.sql("UPDATE tallystick.volume SET used_bytes = used_bytes + 7")
    assert findings(scene)["LEDGER_DRIFT"] == "sum"
    yield {"DATABASE": scene.database, "STORAGE_ID": storage_id}
    assert "LEDGER_DRIFT" not in findings(scene)


@remedy(Code.EVENTS_RECENT, 1)
def a_job_failed_today(scene: Scene) -> Iterator[Variables]:
    scene.in_mid_job()
    scene.do("namespaces", "disable", "default")
    scene.ask("tick", code=3)
    assert findings(scene)["EVENTS_RECENT"] == "errors"
    yield {}
    assert scene.ask("recovery", "list")["items"][0]["severity"] == "error"


@remedy(Code.EVENTS_RECENT, 2)
def evidence_waits_on_the_volume(scene: Scene) -> Iterator[Variables]:
    settle_without_an_answer(scene)
    assert findings(scene)["EVENTS_RECENT"] == "evidence"
    yield {}
    assert scene.ask("recovery", "list")["items"][0]["type"] == "outcome-unknown"
    assert "evidence" not in findings(scene).values()
