"""What the template asks for, made by LocalStack's core: it refuses what other emulators let pass."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shared.aws import deployed
from shared.aws.stack import resources
from tests.aws.account import ACCOUNT, AROUND, REGION, Account
from tests.deploy import template
from tests.golden.scenario import Shell

pytestmark = [
    pytest.mark.core,
    pytest.mark.skipif(not AROUND, reason="LocalStack's core is not around: make localstack-core"),
]

STACK = "shop"
TICKING = ("Archive", "Scan", "Prune")
# What of the template it can make. Functions it cannot run: their names and aliases are given as parameters.
MADE = {
    *("AWS::CloudWatch::Alarm", "AWS::IAM::Role", "AWS::SNS::Topic"),
    *("AWS::SQS::Queue", "AWS::SQS::QueuePolicy"),
    *("AWS::Scheduler::Schedule", "AWS::Scheduler::ScheduleGroup"),
}


def alias(name: str) -> str:
    return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{STACK}-{name.lower()}:live"


def makeable() -> template.Json:
    """Return the part of the template that needs no function, file system or network."""
    whole = template.template()
    given = {f"{name}Alias": alias(name) for name in TICKING} | {
        name: f"{STACK}-{name.lower()}" for name in TICKING
    }
    parameters = {name: each for name, each in whole["Parameters"].items() if "Default" in each}
    parameters |= {name: {"Type": "String", "Default": value} for name, value in given.items()}
    kept = {name: each for name, each in whole["Resources"].items() if each["Type"] in MADE}
    while cut := [name for name, each in kept.items() if _missing(each, parameters, kept)]:
        for name in cut:
            del kept[name]
    conditions = whole["Conditions"]
    return {"Parameters": parameters, "Conditions": conditions, "Resources": kept}


def _missing(resource: template.Json, *known: template.Json) -> set[str]:
    there = {name for each in known for name in each}
    return {name for name in template.references(resource) if not name.startswith("AWS")} - there


@pytest.fixture
def stack(account: Account) -> dict[str, str]:
    """The stack of the template, as far as it can be made: each resource's identity, by its name there."""
    service = account.owner("cloudformation")
    service.create_stack(
        StackName=STACK,
        TemplateBody=json.dumps(makeable()),
        Capabilities=["CAPABILITY_IAM"],
    )
    service.get_waiter("stack_create_complete").wait(
        StackName=STACK, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    told = service.list_stack_resources(StackName=STACK)["StackResourceSummaries"]
    return {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in told}


def findings(shell: Shell) -> list[dict[str, Any]]:
    """Return what the examination finds, the alarms apart: they are raised when it is time."""
    found = json.loads(shell("doctor", "--aws", "--stack", STACK, "--json").out)["findings"]
    return [each for each in found if each["subject"] != "alarms"]


def test_the_part_of_the_template_that_is_made_has_its_schedules_queues_and_their_roles() -> None:
    assert set(makeable()["Resources"]) >= {
        *(f"{name}Schedule" for name in TICKING),
        *("ScheduleGroup", "ScheduleRole", "ScheduleQueue", "FailureQueue", "QueuePolicy"),
    }


@pytest.mark.parametrize("name", TICKING)
def test_each_schedule_is_taken_and_kept_as_the_template_has_it(
    account: Account, stack: dict[str, str], name: str
) -> None:
    schedule = account.owner("scheduler").get_schedule(
        GroupName=stack["ScheduleGroup"], Name=f"{STACK}-{name.lower()}"
    )
    asked = template.resources("AWS::Scheduler::Schedule")[f"{name}Schedule"]
    sqs = account.owner("sqs")
    queue = sqs.get_queue_attributes(QueueUrl=stack["ScheduleQueue"], AttributeNames=["QueueArn"])
    target = schedule["Target"]
    assert schedule["ScheduleExpression"] == template.defaults()[f"{name}Rate"]
    assert (schedule["State"], schedule["FlexibleTimeWindow"]) == ("ENABLED", {"Mode": "OFF"})
    assert target["Arn"] == alias(name)
    assert target["RetryPolicy"] == asked["Target"]["RetryPolicy"]
    assert target["DeadLetterConfig"]["Arn"] == queue["Attributes"]["QueueArn"]
    assert json.loads(target["Input"]) == json.loads(asked["Target"]["Input"])
    assert stack["ScheduleRole"] in target["RoleArn"]


def test_a_stack_made_by_it_is_examined_without_a_finding(
    deployment: Shell, stack: dict[str, str]
) -> None:
    assert findings(deployment) == []


def test_what_waits_in_a_queue_of_the_stack_is_told_and_stays(
    deployment: Shell, account: Account, stack: dict[str, str]
) -> None:
    body = json.dumps({"responsePayload": {"errorType": "EFSMountTimeoutException"}})
    sqs = account.owner("sqs")
    sqs.send_message(QueueUrl=stack["FailureQueue"], MessageBody=body)
    for _ in range(2):
        codes = [each["code"] for each in findings(deployment)]
        assert codes == ["QUEUE_NOT_EMPTY", "FUNCTION_NOT_MOUNTED"]
    assert len(sqs.receive_message(QueueUrl=stack["FailureQueue"])["Messages"]) == 1


def test_a_schedule_of_the_stack_that_is_switched_off_is_told(
    deployment: Shell, account: Account, stack: dict[str, str]
) -> None:
    scheduler = account.owner("scheduler")
    named = {"GroupName": stack["ScheduleGroup"], "Name": f"{STACK}-archive"}
    kept = scheduler.get_schedule(**named)
    same = {name: kept[name] for name in ("ScheduleExpression", "FlexibleTimeWindow", "Target")}
    scheduler.update_schedule(**named, **same, State="DISABLED")
    (found,) = findings(deployment)
    assert (found["code"], found["params"]["function"]) == ("SCHEDULE_DISABLED", "shop-archive")


def test_ticks_that_never_come_raise_the_alarm_of_the_template(
    deployment: Shell, stack: dict[str, str]
) -> None:
    until = time.monotonic() + 90
    while not (raised := deployed.alarms(resources(STACK))) and time.monotonic() < until:
        time.sleep(1)
    assert [each.name for each in raised] == ["shop-missing-ticks"]
    told = deployment("doctor", "--aws", "--stack", STACK)
    assert (told.code, "shop-missing-ticks" in told.out) == (1, True), told


def scheduled(account: Account, expression: str) -> None:
    account.owner("scheduler").create_schedule(
        Name="tried",
        ScheduleExpression=expression,
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": alias("Archive"), "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/ticks"},
    )


@pytest.mark.parametrize(
    "rate", ["rate(1 minute)", *(f"rate({minutes} minutes)" for minutes in range(2, 11))]
)
def test_a_rate_that_the_template_lets_through_is_taken(account: Account, rate: str) -> None:
    assert all(template.taken(f"{name}Rate")(rate) for name in TICKING)
    scheduled(account, rate)


@pytest.mark.parametrize(
    "expression",
    [
        *("cron(* * * * *)", "cron(99 3 * * ? *)", "cron(0 3 * *)"),
        *("rate(1 week)", "rate(30 seconds)", "rate(1.5 hours)", "1 minute"),
    ],
)
def test_an_expression_that_is_refused_is_one_the_template_refuses_before(
    account: Account, expression: str
) -> None:
    assert not any(template.taken(f"{name}Rate")(expression) for name in TICKING)
    with pytest.raises(ClientError) as caught:
        scheduled(account, expression)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
