"""What is not configured, or away, is said once, and the rest is still looked at."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from shared.errors import Code
from shared.jobs.model import Claim
from shared.recovery import evidence
from shared.volume import identity
from tests.doctor.ward import Ward
from tests.golden.scenario import Shell
from tests.worlds import a_claim, control, expire_lease, rows


def named(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["code"], each["severity"]) for each in document["findings"]]


def skipped(document: dict[str, Any]) -> dict[str, str]:
    return {
        each["subject"]: each["skipped_for"] for each in document["subjects"] if each["skipped_for"]
    }


def asked(shell: Shell, code: int) -> dict[str, Any]:
    answered = shell("doctor", "--json")
    assert (answered.code, answered.err) == (code, "")
    return answered.json()


@pytest.fixture
def bare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Nothing is configured."""
    monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))
    return Shell(capsys)


def test_with_nothing_configured_it_says_what_to_begin_with(bare: Shell, tmp_path: Path) -> None:
    found = asked(bare, 1)
    assert named(found) == [("DATABASE_URL_MISSING", "error"), ("VOLUME_NOT_CONFIGURED", "info")]
    assert found["findings"][0]["command"] == "tallystick db start"
    assert skipped(found).keys() == {*("source", "clocks", "schedule", "jobs", "ledger", "events")}
    assert not (tmp_path / "home").exists()


def test_a_new_database_is_led_from_one_step_to_the_next(
    bare: Shell, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", empty_database)
    found = asked(bare, 1)
    assert named(found) == [("SCHEMA_MISSING", "error"), ("VOLUME_NOT_CONFIGURED", "info")]
    assert found["findings"][0]["command"] == "tallystick migrate"
    assert set(skipped(found).values()) == {"SCHEMA_MISSING"}
    assert bare("migrate").code == 0
    found = asked(bare, 0)
    assert named(found) == [("VOLUME_NOT_CONFIGURED", "info"), ("PLAN_MISSING", "info")]


def test_a_source_alone_is_enough_to_look_at(
    bare: Shell, empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows(empty_database, "CREATE TABLE note (id integer PRIMARY KEY, at date)")
    kinds = tmp_path / "kinds.toml"
    kinds.write_text(
        '[kinds.notes]\nroot = "public.note"\ntime = "at"\n'
        '[kinds.gone]\nroot = "public.gone"\ntime = "at"\n'
    )
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", empty_database)
    monkeypatch.setenv("TALLYSTICK_KINDS_FILE", str(kinds))
    found = asked(bare, 0)
    assert named(found) == [
        ("DATABASE_URL_MISSING", "info"),
        ("NO_INDEX_FOR_ORDER", "warning"),
        ("TABLE_MISSING", "warning"),
        ("VOLUME_NOT_CONFIGURED", "info"),
    ]
    assert found["findings"][1]["sql"] == [
        'CREATE INDEX CONCURRENTLY ON "public"."note" ("at", "id");'
    ]
    assert "clocks" not in skipped(found)
    assert bare("doctor", "--strict").code == 1


def test_a_database_that_is_away_is_said_once_and_the_volume_is_still_looked_at(ward: Ward) -> None:
    ward.setenv(DATABASE_URL="postgresql://nobody@127.0.0.1:1/nothing")
    ward.root.chmod(0o755)
    found = ward.doctor()
    assert named(found) == [("DATABASE_UNAVAILABLE", "error"), ("STORAGE_UNAVAILABLE", "error")]
    away = dict.fromkeys(("source", "schedule", "jobs", "ledger", "events"), "DATABASE_UNAVAILABLE")
    assert skipped(found) == away | {"clocks": "DATABASE_UNAVAILABLE"}


def test_a_database_that_never_answers_does_not_hold_it_up(ward: Ward) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"postgresql://nobody@127.0.0.1:{port}/nothing"
        ward.setenv(DATABASE_URL=url)
        # Without a limit of its own this would wait until the test is ended.
        found = ward.doctor()
    assert named(found) == [("DATABASE_UNAVAILABLE", "error")]


def test_tables_that_somebody_holds_do_not_hold_it_up(ward: Ward) -> None:
    import psycopg

    with psycopg.connect(ward.owner_dsn) as other:
        other.execute("LOCK TABLE tallystick.plan, tallystick.job, app.line, app.orders")
        found = ward.doctor()
        other.rollback()
    assert ("DATABASE_UNAVAILABLE", "error") in named(found)
    assert "TOO_LITTLE_TIME" in skipped(found).values()


def test_a_source_that_is_away_leaves_the_rest_to_be_looked_at(ward: Ward) -> None:
    ward.setenv(SOURCE_URL="postgresql://nobody:topsecret@127.0.0.1:1/nothing")
    found = ward.doctor()
    assert named(found) == [("SOURCE_FAILED", "error")]
    assert skipped(found) == {}
    assert "topsecret" not in json.dumps(found)


def test_a_kinds_file_that_cannot_be_read_is_one_finding(ward: Ward) -> None:
    ward.setenv(KINDS_FILE=ward.root / "nothing.toml")
    found = ward.doctor()
    assert named(found) == [("KINDS_INVALID", "error")]


def test_a_kind_that_has_a_plan_and_is_gone_from_the_file_is_named(ward: Ward) -> None:
    (ward.root.parent / "kinds.toml").write_text("")
    (found,) = ward.findings()
    assert (found["code"], found["params"]["kind"]) == ("KIND_UNKNOWN", "orders")
    assert "TALLYSTICK_KINDS_FILE" in found["next"]


def test_a_kind_without_a_plan_stops_nothing_yet(ward: Ward) -> None:
    kinds = ward.root.parent / "kinds.toml"
    text = kinds.read_text()
    kinds.write_text(text + '[kinds.gone]\nroot = "app.gone"\ntime = "at"\n')
    assert named(ward.doctor()) == [("TABLE_MISSING", "warning")]
    ward.sql("ALTER TABLE app.orders RENAME COLUMN placed_at TO placed")
    assert ("COLUMN_MISSING", "error") in named(ward.doctor())


def test_a_volume_that_is_not_there_is_named_and_well_again_once_it_is(ward: Ward) -> None:
    away = ward.root.with_name("away")
    ward.root.rename(away)
    (found,) = ward.findings()
    assert (found["code"], found["params"]["cause"]) == ("STORAGE_UNAVAILABLE", "not-there")
    assert found["command"] is None
    away.rename(ward.root)
    assert ward.findings() == []


HOLD = """
import fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


def test_a_volume_in_use_is_no_fault_and_is_not_waited_for(ward: Ward) -> None:
    command = [sys.executable, "-c", HOLD, str(ward.root / identity.LOCK)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        found = ward.doctor()
        holder.kill()
    assert named(found) == [("STORAGE_BUSY", "info")]
    assert found["findings"][0]["params"]["since"]


def test_a_lost_file_is_noticed_by_the_size_of_its_directory(ward: Ward) -> None:
    (directory,) = (each for each in ward.root.iterdir() if not each.name.startswith("."))
    (directory / "000002.sql.zst").unlink()
    (found,) = ward.findings()
    assert found["code"] == "LEDGER_DRIFT"
    assert found["params"]["directories"] == [directory.name]
    shutil.rmtree(directory)
    last, drifted = ward.findings()
    assert last["params"]["cause"] == "last-missing"
    assert drifted["params"]["found"] == 0


def test_a_unit_that_kills_its_processes_is_named(ward: Ward) -> None:
    job = UUID(ward.job_begun())
    storage_id = os.environ["TALLYSTICK_ARCHIVE_STORAGE_ID"]
    with closing(control(ward.owner_dsn)) as db:
        for _ in range(4):
            a_claim(db, storage_id)
            expire_lease(db, job)
    (found,) = ward.findings()
    assert (found["code"], found["params"]["cause"]) == ("JOB_STUCK", "dying")
    assert found["params"]["takeovers"] == 3


def test_evidence_that_waits_is_brought_in_by_the_command_that_is_printed(ward: Ward) -> None:
    job = ward.job_begun()
    storage_id = os.environ["TALLYSTICK_ARCHIVE_STORAGE_ID"]
    with closing(control(ward.owner_dsn)) as db:
        claim = a_claim(db, storage_id)
        assert isinstance(claim, Claim)
        with identity.opened(ward.root, storage_id) as volume:
            event = evidence.unrecorded(claim, Code.OUTCOME_UNKNOWN, {})
            evidence.keep(volume, [event])
        expire_lease(db, UUID(job))
    (found,) = (each for each in ward.doctor()["findings"] if each["code"] == "EVENTS_RECENT")
    assert found["params"] == {"cause": "evidence", "count": 1}
    ward.run(found["command"])
    ward.do("tick", "--until-idle")
    assert ward.findings() == []


def test_refusals_for_security_are_counted(ward: Ward) -> None:
    ward.sql("INSERT INTO tallystick.security_event (type) VALUES ('refused'), ('refused')")
    (found,) = ward.doctor()["findings"]
    assert (found["severity"], found["params"]) == ("info", {"cause": "refusals", "count": 2})


def test_more_jobs_than_are_told_are_counted_as_one(ward: Ward) -> None:
    ward.sql(
        "INSERT INTO tallystick.job (operation, namespace_id, batch_size, page_size, max_bytes, input,"
        " state, error_code, error_params) SELECT 'archive', id, 1, 1, 1, '{}', 'FAILED',"
        " 'CRASH_LOOP', '{}' FROM tallystick.namespace, generate_series(1, 30)"
    )
    found = [each for each in ward.findings() if each["subject"] == "jobs"]
    assert len(found) == 21
    assert found[-1]["params"] == {"cause": "and-more"}
