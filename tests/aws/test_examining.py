"""``doctor --aws``: what the services say of a stack, as findings with what mends each."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.stub import Stubber

from shared.aws import deployed
from shared.aws.client import client
from shared.aws.deployed import Schedule, Ticks
from shared.aws.stack import Resource
from shared.doctor import deployment
from tests.aws.account import Account
from tests.aws.deployment import LIVE, alarm, counted, queue, schedule
from tests.aws.functions import Functions
from tests.golden.scenario import Shell

NAME = "shop-archive"
SUBJECTS = ["functions", "schedules", "ticks", "queues", "alarms"]


class Doctor:
    """Asks for the examination of a stack."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def document(self, code: int) -> dict[str, Any]:
        told = self._shell("doctor", "--aws", "--stack", "shop", "--json")
        assert told.code == code, told
        found: dict[str, Any] = json.loads(told.out)
        return found

    def finding(self, code: int) -> dict[str, Any]:
        (found,) = self.document(code)["findings"]
        assert isinstance(found, dict)
        assert "(unknown)" not in f"{found['message']} {found['next']}"
        return found


@pytest.fixture
def doctor(deployment: Shell, account: Account, functions: Functions) -> Doctor:
    """A stack in good order."""
    schedule(account)
    alarm(account, "OK")
    counted(account, NAME, Invocations=3)
    functions.settings[NAME] = {"State": "Active"}
    functions.stacks["shop"] = [
        ("Archive", "AWS::Lambda::Function", NAME),
        ("ArchiveAlias", "AWS::Lambda::Alias", LIVE),
        ("FailureQueue", "AWS::SQS::Queue", queue(account)),
        ("ScheduleGroup", "AWS::Scheduler::ScheduleGroup", "shop"),
        ("SlowAlarm", "AWS::CloudWatch::Alarm", "shop-slow"),
    ]
    return Doctor(deployment)


def test_a_stack_in_good_order_has_no_findings(doctor: Doctor) -> None:
    document = doctor.document(0)
    assert document["findings"] == []
    assert [each["subject"] for each in document["subjects"]] == SUBJECTS
    assert {each["severity"] for each in document["subjects"]} == {"ok"}


def test_the_examination_from_here_knows_nothing_of_aws(deployment: Shell) -> None:
    subjects = json.loads(deployment("doctor", "--json").out)["subjects"]
    assert set(SUBJECTS).isdisjoint(each["subject"] for each in subjects)


def test_a_stopped_function_is_told_with_the_command_that_starts_it(
    doctor: Doctor, functions: Functions
) -> None:
    functions.settings[NAME]["ReservedConcurrentExecutions"] = 0
    found = doctor.finding(0)
    assert (found["code"], found["severity"]) == ("FUNCTION_THROTTLED", "warning")
    assert found["command"] == f"aws lambda delete-function-concurrency --function-name {NAME}"
    functions.settings[NAME]["ReservedConcurrentExecutions"] = 3
    assert doctor.document(0)["findings"] == []


@pytest.mark.parametrize(
    ("settings", "code", "cause"),
    [
        (
            {"State": "Inactive", "StateReasonCode": "EFSMountConnectivityError"},
            "FUNCTION_NOT_MOUNTED",
            "connectivity",
        ),
        ({"State": "Failed", "StateReasonCode": "EFSIOError"}, "FUNCTION_NOT_MOUNTED", "io"),
        ({"State": "Failed", "StateReasonCode": "InvalidSubnet"}, "FUNCTION_FAILED", "state"),
        (
            {"LastUpdateStatus": "Failed", "LastUpdateStatusReasonCode": "EFSMountTimeout"},
            "FUNCTION_NOT_MOUNTED",
            "timeout",
        ),
    ],
)
def test_a_function_that_cannot_be_invoked_is_told_with_the_cause(
    doctor: Doctor, functions: Functions, settings: dict[str, str], code: str, cause: str
) -> None:
    functions.settings[NAME] |= settings
    found = doctor.finding(1)
    assert (found["code"], found["params"]["cause"]) == (code, cause)


def test_a_schedule_that_is_off_is_told_and_its_silence_is_not(
    doctor: Doctor, account: Account
) -> None:
    schedule(account, state="DISABLED")
    found = doctor.finding(0)
    assert (found["code"], found["severity"]) == ("SCHEDULE_DISABLED", "warning")
    assert found["params"] == {"schedule": NAME, "function": NAME}


def test_a_stack_without_a_schedule_is_an_error(doctor: Doctor, functions: Functions) -> None:
    functions.stacks["shop"] = [each for each in functions.stacks["shop"] if each[2] != "shop"]
    found = doctor.finding(1)
    assert (found["code"], found["params"]["cause"]) == ("SCHEDULE_DISABLED", "none")


@pytest.mark.parametrize(
    ("seconds", "quiet", "silent"),
    [
        (60, 900.0, False),
        (60, 901.0, True),
        (60, None, True),
        (3600, 3 * 3600.0, False),
        (3600, 3 * 3600.0 + 1, True),
        (None, None, False),
    ],
)
def test_a_function_is_silent_after_three_ticks_and_no_less_than_15_minutes(
    seconds: int | None, quiet: float | None, silent: bool
) -> None:
    planned = [Schedule("s", True, NAME, seconds)]
    found = deployment.judged_ticks(planned, [Ticks(NAME, quiet, 1, 0)])
    assert [each.code for each in found] == (["NO_TICK"] if silent else [])


def test_a_schedule_whose_ticks_do_not_arrive_is_an_error(
    doctor: Doctor, functions: Functions, account: Account
) -> None:
    functions.stacks["shop"][0] = ("Archive", "AWS::Lambda::Function", "shop-new")
    functions.settings["shop-new"] = {"State": "Active"}
    schedule(account, target=LIVE.replace(NAME, "shop-new"))
    found = doctor.finding(1)
    assert (found["code"], found["subject"]) == ("NO_TICK", "ticks")
    assert found["params"]["function"] == "shop-new"


@pytest.mark.parametrize(("errors", "severity", "code"), [(1, "warning", 0), (3, "error", 1)])
def test_errors_of_a_function_are_counted(
    doctor: Doctor, account: Account, errors: int, severity: str, code: int
) -> None:
    counted(account, NAME, Errors=errors)
    found = doctor.finding(code)
    assert (found["code"], found["severity"]) == ("INVOCATIONS_FAILED", severity)
    assert (found["params"]["errors"], found["params"]["invocations"]) == (errors, 3)


def failed(error: str, message: str) -> str:
    return json.dumps(
        {
            "requestContext": {"functionArn": LIVE, "condition": "RetriesExhausted"},
            "responsePayload": {"errorType": error, "errorMessage": message},
        }
    )


def test_what_waits_in_a_queue_is_told_by_its_error_and_stays_there(
    doctor: Doctor, account: Account
) -> None:
    sqs = account.owner("sqs")
    sqs.send_message(QueueUrl=queue(account), MessageBody=failed("Refused", "SCHEMA_OLDER: …"))
    for _ in range(2):
        found = doctor.finding(0)
        assert (found["code"], found["params"]["waiting"]) == ("QUEUE_NOT_EMPTY", 1)
        assert found["params"]["function"] == NAME
        assert "SCHEMA_OLDER" in found["message"]


def test_a_mount_error_in_a_queue_is_told_with_its_cause(doctor: Doctor, account: Account) -> None:
    sqs = account.owner("sqs")
    for error in (
        "EFSMountConnectivityException",
        "EFSMountConnectivityException",
        "EFSIOException",
    ):
        sqs.send_message(QueueUrl=queue(account), MessageBody=failed(error, "no mount"))
    found = doctor.document(1)["findings"]
    assert [each["code"] for each in found] == ["QUEUE_NOT_EMPTY"] + ["FUNCTION_NOT_MOUNTED"] * 2
    assert {each["params"]["cause"] for each in found[1:]} == {"connectivity", "io"}
    assert "2049" in " ".join(each["next"] for each in found)


@pytest.mark.parametrize("body", ["", "no JSON", "[]", "{}", '{"requestContext": 1}', '"x"'])
def test_a_message_that_says_nothing_is_counted_all_the_same(body: str) -> None:
    assert deployed.failure(body) == deployed.Failure(None, None, None)


def test_an_alarm_is_told_in_its_own_words(doctor: Doctor, account: Account) -> None:
    alarm(account, "ALARM")
    found = doctor.finding(1)
    assert found["code"] == "ALARM_RAISED"
    assert "Ticks are slow." in found["message"]
    assert "41 > 40" in found["message"]


def test_every_alarm_of_a_large_stack_is_asked_for(account: Account) -> None:
    names = [f"shop-{number:03}" for number in range(120)]
    found = [Resource(name, "AWS::CloudWatch::Alarm", name) for name in names]

    def told(of: list[str]) -> dict[str, Any]:
        raised = {"StateValue": "ALARM", "StateReason": "41 > 40"}
        return {"MetricAlarms": [{"AlarmName": name, **raised} for name in of]}

    with Stubber(client("cloudwatch")) as service:
        for of, page, answer in (
            (names[:100], {}, told(names[:50]) | {"NextToken": "more"}),
            (names[:100], {"NextToken": "more"}, told(names[50:100])),
            (names[100:], {}, told(names[100:])),
        ):
            service.add_response("describe_alarms", answer, {"AlarmNames": of, **page})
        assert [each.name for each in deployed.alarms(found)] == names
        service.assert_no_pending_responses()
    assert deployed.alarms([]) == ()


@pytest.mark.parametrize(
    ("service", "subject"),
    [("LAMBDA", "functions"), ("SCHEDULER", "schedules"), ("SQS", "queues")],
)
def test_a_service_that_does_not_answer_hides_nothing_else(
    doctor: Doctor,
    account: Account,
    monkeypatch: pytest.MonkeyPatch,
    service: str,
    subject: str,
) -> None:
    alarm(account, "ALARM")
    monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", "http://127.0.0.1:1")
    found = {each["subject"]: each["code"] for each in doctor.document(1)["findings"]}
    assert found == {subject: "AWS_UNAVAILABLE", "alarms": "ALARM_RAISED"}


def test_the_examination_names_a_stack_that_is_not_there_or_not_named(
    doctor: Doctor, deployment: Shell
) -> None:
    for arguments, code in ((("--stack", "shopp"), "STACK_UNKNOWN"), ((), "STACK_MISSING")):
        told = deployment("doctor", "--aws", *arguments, "--json")
        assert (told.code, json.loads(told.err)["error"]["code"]) == (2, code)


@pytest.mark.parametrize(
    ("expression", "seconds"),
    [
        ("rate(1 minute)", 60),
        ("rate(5 minutes)", 300),
        ("rate(2 hours)", 7200),
        ("rate(1 day)", 86400),
        ("cron(0 3 * * ? *)", None),
    ],
)
def test_the_seconds_of_a_rate(expression: str, seconds: int | None) -> None:
    assert deployed.seconds_of(expression) == seconds
