"""The shipped handlers in the platform's own runtime: what events come to, and what they leave behind."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shared.tick import PHASES
from tests.operations import emf
from tests.runtime.environment import Platform, Start
from tests.runtime.package import Workshop
from tests.worlds import one, rows

# What a schedule sends: its own words in place of the markers it is told to fill in.
SCHEDULED = {
    "scheduled_time": "2026-11-30T12:00:00Z",
    "execution_id": "d32c5kddcf5bb8c3",
    "attempt_number": "1",
}
# An answer is read by people: far below what the platform allows.
ANSWER_MAX_BYTES = 64 * 1024


def test_the_schedules_events_archive_everything_and_then_find_nothing(archive: Platform) -> None:
    answers = [archive.invoke(SCHEDULED) for _ in range(4)]
    assert [answer.error for answer in answers] == [None] * 4
    told = [answer.payload for answer in answers]
    assert [each["outcome"] for each in told] == ["progressed", "progressed", "finished", "idle"]
    assert [each["roots"] for each in told] == [20, 20, 5, 0]
    assert [each["seq"] for each in told] == [1, 2, 3, None]
    assert max(len(json.dumps(each)) for each in told) < ANSWER_MAX_BYTES


@pytest.mark.parametrize("event", [{}, None, [], "tick", {"Records": [{"body": "x"}]}])
def test_an_event_without_anything_to_read_is_a_tick_all_the_same(
    archive: Platform, event: object
) -> None:
    assert archive.invoke(event).payload["outcome"] == "progressed"


def test_a_tick_leaves_one_line_and_metrics(archive: Platform) -> None:
    first, second = archive.invoke(SCHEDULED), archive.invoke(SCHEDULED)
    for answer, unit, cold in ((first, 1, True), (second, 2, False)):
        (line,) = answer.ticks
        assert (line["level"], line["service"], line["cold_start"]) == ("INFO", "tallystick", cold)
        assert line["job"] == answer.payload["job"]["id"]
        assert (line["generation"], line["unit"], line["outcome"]) == (unit, unit, "progressed")
        assert {name: line[name] for name in SCHEDULED} == SCHEDULED
        assert line["function_name"] == "tallystick"
        assert line["function_arn"].endswith(":function:tallystick:live")
        assert line["function_memory_size"] == "1024"
        assert line["timestamp"]
        assert line["location"]
        assert list(line["phases"]) == list(PHASES)
        assert [emf.problems(each) for each in answer.metrics] == [[]] * len(answer.metrics)
        assert len(answer.metrics) == len(answer.lines) - 1
    assert first.ticks[0]["function_request_id"] != second.ticks[0]["function_request_id"]


def test_the_platforms_own_format_of_logs_does_not_write_a_tick_twice(
    functions: Start, settings: dict[str, str]
) -> None:
    json_logs = settings | {"AWS_LAMBDA_LOG_FORMAT": "JSON", "AWS_LAMBDA_LOG_LEVEL": "INFO"}
    answer = functions("handlers.archive.handler", json_logs).invoke(SCHEDULED)
    assert len(answer.ticks) == 1
    assert len(answer.metrics) == len(answer.lines) - 1


def test_a_failed_job_is_retried_by_hand_and_goes_on(
    archive: Platform, operate: Platform, database: str
) -> None:
    job = archive.invoke(SCHEDULED).payload["job"]["id"]
    rows(database, "ALTER TABLE app.line RENAME TO gone")
    failed = archive.invoke(SCHEDULED)
    assert (failed.payload["outcome"], failed.error) == ("failed", None)
    assert failed.ticks[0]["level"] == "ERROR"
    rows(database, "ALTER TABLE app.gone RENAME TO line")
    event = {"action": "retry", "job": job, "reason": "the table is back"}
    retried = operate.invoke(event)
    assert (retried.payload["id"], retried.payload["state"]) == (job, "PENDING")
    assert archive.invoke(SCHEDULED).payload["seq"] == 2
    # Sent once more, as by somebody who was not sure: the job is not failed any more.
    again = operate.invoke(event)
    assert again.error == "Refused"
    assert "ACTION_NOT_ALLOWED" in again.payload["errorMessage"]


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (None, "ACTION_NOT_ALLOWED: There is no action"),
        ({}, "ACTION_NOT_ALLOWED: There is no action"),
        ("retry", "ACTION_NOT_ALLOWED: The event cannot be read"),
        ({"action": "retry", "reason": "x", "jbo": "1"}, "of the wrong form, is jbo"),
        ({"action": "retry", "job": 7, "reason": "x", "max_bytes": "?"}, "is job, max_bytes"),
        ({"action": "retry", "job": "01234567", "reason": "x"}, "JOB_UNKNOWN: "),
        ({"action": "tick", "operation": "sweep"}, "OPERATION_UNKNOWN: "),
    ],
)
def test_what_an_operator_cannot_have_is_refused_in_words(
    operate: Platform, event: object, told: str
) -> None:
    answer = operate.invoke(event)
    assert answer.error == "Refused"
    assert told in answer.payload["errorMessage"]


def test_settings_that_are_wrong_are_all_named_and_nothing_secret_is(
    functions: Start, settings: dict[str, str]
) -> None:
    secret = "postgresql://me:a-password@[broken/x"
    wrong = {"TALLYSTICK_LEASE_SECONDS": "10", "TALLYSTICK_TYPO": "1"}
    for changed, words in (
        (wrong, ["SETTINGS_INVALID: ", *wrong]),
        ({"TALLYSTICK_DATABASE_URL": secret}, ["DATABASE_REFUSED: "]),
    ):
        answer = functions("handlers.archive.handler", settings | changed).invoke(SCHEDULED)
        assert answer.error == "Refused"
        assert [word for word in words if word not in answer.payload["errorMessage"]] == []
        assert "a-password" not in "".join([*answer.lines, json.dumps(answer.payload)])


def test_a_deployment_migrates_before_new_code_ticks(functions: Start, empty_database: str) -> None:
    settings = {"TALLYSTICK_DATABASE_URL": empty_database}
    archive = functions("handlers.archive.handler", settings)
    early = archive.invoke(SCHEDULED)
    assert early.error == "Refused"
    assert "SCHEMA_MISSING" in early.payload["errorMessage"]
    migrate = functions("handlers.migrate.handler", settings)
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(migrate.invoke, [{}, {}]))
    assert [each.error for each in both] == [None, None]
    assert sum(bool(each.payload["applied"]) for each in both) == 1
    # The process that was refused is not a lost one.
    assert archive.invoke(SCHEDULED).payload["outcome"] == "idle"


def test_a_timeout_too_short_for_a_unit_claims_nothing(
    functions: Start, settings: dict[str, str], database: str
) -> None:
    short = functions("handlers.archive.handler", settings, timeout_seconds=15.0)
    answer = short.invoke(SCHEDULED)
    assert (answer.payload["outcome"], answer.payload["code"]) == ("waiting", "TOO_LITTLE_TIME")
    assert one(database, "SELECT count(*) FROM tallystick.unit") == 0


def test_a_package_that_lacks_a_library_names_it_when_it_starts(
    functions: Start, workshop: Workshop, tmp_path: Path
) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    for each in workshop.unpacked("local").iterdir():
        if not each.name.startswith("psycopg_binary"):
            (folder / each.name).symlink_to(each)
    # As where there is no libpq of the system to fall back on.
    bare = {"PSYCOPG_IMPL": "binary"}
    answer = functions("handlers.archive.handler", bare, task_root=folder).invoke(SCHEDULED)
    assert answer.error == "Runtime.ImportModuleError"
    assert "psycopg_binary" in answer.payload["errorMessage"]
