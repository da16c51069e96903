"""The whole stack in an emulator of AWS: what its schedule moves by itself, and what operators do to it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.crash.judge import judge
from tests.emulators.shop import DRAINED, KILLED, KINDS, ORDERS, TIGHT, Shop
from tests.emulators.stack import BUCKET, PACKAGE, STACK, Account
from tests.emulators.story import Run

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(900)]

# Between an event that comes to nothing and its message in the queue.
QUEUE_SECONDS = 30
POLL_SECONDS = 0.5
WRONG_TAIL = "0" * 64


def test_every_old_row_is_in_the_archives_once_and_none_is_gone_from_the_shop(
    run: Run, database: Shop, volume: Path
) -> None:
    assert judge(run.before, database.owner, [volume], database.owner) == []
    assert len(run.before.trees) == ORDERS


def test_the_schedule_alone_moves_thousands_of_rows(run: Run) -> None:
    moved = [tick for tick in run.scheduled if tick["rows"]]
    # As the schedule's event has it: the emulator fills nothing in.
    assert {tick["scheduled_time"] for tick in moved} == {"<aws.scheduler.scheduled-time>"}
    assert {tick["kind"] for tick in moved} == {KILLED, TIGHT}
    assert sum(tick["roots"] for tick in moved) == 2 * ORDERS
    assert sum(tick["rows"] for tick in moved) == 2 * 3 * ORDERS


def test_a_function_killed_in_mid_batch_is_taken_over_by_a_later_tick(
    account: Account, run: Run
) -> None:
    assert run.killed.written_bytes
    (job,) = (each for each in account.answer("jobs", "list")["items"] if each["kind"] == KILLED)
    events = account.answer("recovery", "list", "--job", job["id"])["items"]
    assert [event["type"] for event in events].count("job-reclaimed-after-restart") == 1
    (taken_over,) = (tick for tick in run.scheduled if tick["reclaimed"])
    assert (taken_over["job"], taken_over["outcome"]) == (job["id"], "finished")


def test_a_failed_job_goes_on_after_a_retry_by_hand(account: Account, run: Run) -> None:
    assert run.failed["error_code"] == "STORAGE_LIMIT"
    assert (run.retried["id"], run.retried["state"]) == (run.failed["id"], "PENDING")
    ticks = [tick for tick in run.scheduled if tick["job"] == run.failed["id"]]
    assert [tick["outcome"] for tick in ticks] == ["failed", "finished"]
    # The second was by a process that was there before its password changed.
    assert not ticks[1]["cold_start"]


def test_ticks_ask_for_each_other_until_nothing_is_left(account: Account, run: Run) -> None:
    since = account.ticks("archive")[len(run.scheduled) :]
    assert [tick["outcome"] for tick in since] == ["progressed", "progressed", "finished", "idle"]
    assert {tick.get("kind") for tick in since} == {DRAINED, None}


def test_every_chain_ends_with_the_tail_that_was_kept(
    account: Account, run: Run, volume: Path
) -> None:
    tails = account.answer("archive", "tails")["items"]
    assert {tail["kind"] for tail in tails} == set(KINDS)
    for tail in tails:
        (directory,) = volume.glob(f"*-{tail['job']}")
        verify = ("archive", "verify", str(directory), "--require-final", "--expected-sha256")
        assert account.answer(*verify, tail["tail"])["verdict"] == "SOUND"
        assert account.command(*verify, WRONG_TAIL).code == 1
    assert all(
        each["verdict"] == "SOUND" for each in account.answer("archive", "verify", "--all")["items"]
    )


def test_a_function_has_the_rights_of_its_role_and_no_others(account: Account, run: Run) -> None:
    as_function = {
        "aws_access_key_id": run.killed.variables["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": run.killed.variables["AWS_SECRET_ACCESS_KEY"],
        "aws_session_token": run.killed.variables["AWS_SESSION_TOKEN"],
    }
    account.secret(f"{STACK}/other", "somebody", "else")
    outputs = account.outputs()

    def client(service: str) -> Any:  # noqa: ANN401 - as in Account
        return account.owner(service, **as_function)

    client("secretsmanager").get_secret_value(SecretId=account.settings["TALLYSTICK_SOURCE_SECRET"])
    client("lambda").invoke(FunctionName=f"{STACK}-archive:live", Payload=b"{}")
    denied: dict[str, Callable[[], object]] = {
        "another secret": lambda: client("secretsmanager").get_secret_value(
            SecretId=f"{STACK}/other"
        ),
        "another function": lambda: client("lambda").invoke(FunctionName=f"{STACK}-migrate:live"),
        "itself past its alias": lambda: client("lambda").invoke(FunctionName=f"{STACK}-archive"),
        "its package": lambda: client("s3").get_object(Bucket=BUCKET, Key=PACKAGE),
        "the queue of failures": lambda: client("sqs").receive_message(
            QueueUrl=outputs["FailureQueueUrl"]
        ),
        "its schedule": lambda: client("scheduler").delete_schedule(
            Name=f"{STACK}-archive", GroupName=STACK
        ),
        "its role": lambda: client("iam").list_roles(),
    }
    assert {what: _refusal(call) for what, call in denied.items()} == dict.fromkeys(
        denied, "denied"
    )


def test_passwords_are_in_secrets_and_nowhere_else(account: Account, run: Run) -> None:
    service = account.owner("secretsmanager")
    for name in ("TALLYSTICK_DATABASE_SECRET", "TALLYSTICK_SOURCE_SECRET"):
        versions = service.list_secret_version_ids(
            SecretId=account.settings[name], IncludeDeprecated=True
        )["Versions"]
        for version in versions:
            found = service.get_secret_value(
                SecretId=account.settings[name], VersionId=version["VersionId"]
            )
            password = json.loads(found["SecretString"])["password"]
            assert password not in " ".join(run.killed.variables.values())
            assert password not in "\n".join(account.log("archive"))


def test_an_event_that_comes_to_nothing_lies_in_the_failure_queue_after_one_try(
    account: Account, run: Run
) -> None:
    until = time.monotonic() + QUEUE_SECONDS
    while not (messages := _queued(account, "FailureQueueUrl")) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    (message,) = messages
    assert message["requestPayload"] == {"action": "dance"}
    assert message["responsePayload"]["errorMessage"].startswith("ACTION_NOT_ALLOWED: ")
    told = [line for line in account.log("operate") if line.startswith("[ERROR] Refused: ")]
    assert len(told) == 1, told
    assert _queued(account, "ScheduleQueueUrl") == []
    examined = account.command("doctor", "--aws")
    assert "There is no action dance" in examined.out, examined


def test_every_invocation_left_its_lines_in_the_log_of_its_function(
    account: Account, run: Run
) -> None:
    log = account.log("archive")
    for tick in account.ticks("archive"):
        lines = [line for line in log if tick["function_request_id"] in line]
        assert [line.split(" ")[0] for line in lines if not line.startswith("{")] == [
            *("START", "END", "REPORT")
        ]


def _refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except ClientError as error:
        code = error.response["Error"]["Code"]
        return "denied" if code in {"AccessDenied", "AccessDeniedException"} else str(code)
    return "allowed"


def _queued(account: Account, output: str) -> list[dict[str, Any]]:
    """Return the messages of a queue of the stack, and leave them there."""
    answered = account.owner("sqs").receive_message(
        QueueUrl=account.outputs()[output], VisibilityTimeout=0, MaxNumberOfMessages=10
    )
    return [json.loads(each["Body"]) for each in answered.get("Messages", ())]
