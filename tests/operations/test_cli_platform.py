"""The handlers a platform invokes: the same ticks and actions, without a shell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from handlers import archive, migrate, operate, scan
from shared.errors import Refused
from tests.golden.scenario import Shell
from tests.operations import afresh
from tests.worlds import rows

SIGNED = ("--actor", "tester", "--reason", "a test needs it")


class Context:
    """An invocation with some time left."""

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self._seconds * 1000)


@pytest.fixture(autouse=True)
def _a_process_of_its_own() -> Iterator[None]:
    with afresh.process():
        yield


@pytest.fixture
def shell(shell: Shell) -> Shell:
    """The deployment with a plan of scans as well."""
    assert shell("plan", "set", "--operation", "scan", "--enable", *SIGNED).code == 0
    return shell


def test_a_schedule_event_is_one_tick_of_its_operation(shell: Shell) -> None:
    for event in ({}, {"source": "aws.scheduler", "anything": [1]}, None):
        told = archive.handler(event, Context())
        assert json.loads(json.dumps(told)) == told
        assert told["job"]["operation"] == "archive"
    assert told["outcome"] == "finished"
    assert archive.handler({}, Context())["outcome"] == "idle"
    assert scan.handler({}, Context())["job"]["operation"] == "scan"


def test_an_invocation_with_too_little_time_claims_nothing(shell: Shell) -> None:
    told = archive.handler({}, Context(seconds=10))
    assert (told["outcome"], told["code"], told["job"]) == ("waiting", "TOO_LITTLE_TIME", None)


def test_an_operator_acts_by_event(shell: Shell, database: str) -> None:
    job = archive.handler({}, Context())["job"]["id"]
    event = {"job": job, "reason": "by hand", "actor": "me", "revision": "1"}
    assert operate.handler(event | {"action": "pause"}, Context())["state"] == "PAUSED"
    with pytest.raises(Refused, match="REVISION_STALE"):
        operate.handler(event | {"action": "resume"}, Context())
    del event["revision"]
    assert operate.handler(event | {"action": "resume"}, Context())["state"] == "PENDING"
    assert operate.handler({"action": "tick", "operation": "archive"}, Context())["seq"] == 2
    found = rows(database, "SELECT actor, reason FROM tallystick.audit_entry WHERE subject = 'job'")
    assert [(row["actor"], row["reason"]) for row in found] == [("me", "by hand")] * 2


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({}, "ACTION_NOT_ALLOWED"),
        ({"action": "delete"}, "ACTION_NOT_ALLOWED"),
        ({"action": "retry"}, "REASON_INVALID"),
        ({"action": "retry", "reason": "x", "actor": "me\x1b[2J"}, "REASON_INVALID"),
        ({"action": "retry", "reason": "x", "revision": True}, "ACTION_NOT_ALLOWED"),
        ({"action": "retry", "reason": "x", "max_bytes": True}, "ACTION_NOT_ALLOWED"),
        ({"action": "retry", "reason": "x"}, "JOB_UNKNOWN"),
        ({"action": "retry", "reason": "x", "job": "01234567"}, "JOB_UNKNOWN"),
    ],
)
def test_an_event_that_asks_for_nothing_possible_is_refused_by_code(
    shell: Shell, event: dict[str, object], code: str
) -> None:
    with pytest.raises(Refused, match=code):
        operate.handler(event, Context())


def test_a_deployment_migrates_first(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", empty_database)
    with pytest.raises(Refused, match="SCHEMA_MISSING"):
        archive.handler({}, Context())
    assert migrate.handler({}, None)["applied"]
    assert migrate.handler({}, None)["applied"] == []
    assert archive.handler({}, Context())["outcome"] == "idle"


def test_a_deployment_makes_its_directory_the_volume_and_leaves_one_that_is_it(
    empty_database: str, volume_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", empty_database)
    assert migrate.handler({}, None)["storage_id"] is None
    monkeypatch.setenv("TALLYSTICK_ARCHIVE_ROOT", str(volume_root))
    monkeypatch.setenv("TALLYSTICK_ARCHIVE_STORAGE_ID", "ab" * 16)
    assert migrate.handler({}, None)["storage_id"] == "ab" * 16
    marker = (volume_root / ".storage-id").stat()
    assert migrate.handler({}, None) == {"applied": [], "storage_id": "ab" * 16}
    assert (volume_root / ".storage-id").stat().st_ino == marker.st_ino
    monkeypatch.setenv("TALLYSTICK_ARCHIVE_STORAGE_ID", "cd" * 16)
    with pytest.raises(Refused, match="VOLUME_EXISTS"):
        migrate.handler({}, None)


def test_nothing_is_embedded_on_a_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))
    for handler in (archive.handler, scan.handler, migrate.handler):
        with pytest.raises(Refused, match="DATABASE_URL_MISSING"):
            handler({}, Context())
    assert not (tmp_path / "home").exists()
