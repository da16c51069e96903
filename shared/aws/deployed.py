"""What AWS says of a stack's functions, schedules, ticks, queues and alarms."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from shared.aws.client import answers, client
from shared.aws.stack import FUNCTION, function_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shared.aws.stack import Resource

QUEUE = "AWS::SQS::Queue"
ALARM = "AWS::CloudWatch::Alarm"
GROUP = "AWS::Scheduler::ScheduleGroup"
MESSAGES_MAX = 10
# So many names may be asked for at once; the answer may still come in pages.
ALARMS_MAX = 100
PERIOD_SECONDS = 60
RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
RATE_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}


@dataclass(frozen=True)
class Function:
    """A function: whether it can be invoked, why not, and the concurrency reserved for it (None: none)."""

    name: str
    state: str
    reason: str | None
    detail: str | None
    reserved: int | None


@dataclass(frozen=True)
class Schedule:
    """A schedule: the function it invokes, and the seconds between its ticks (None: they vary)."""

    name: str
    enabled: bool
    function: str
    seconds: int | None


@dataclass(frozen=True)
class Ticks:
    """What a function was invoked for lately; ``quiet_seconds`` is None where that was not at all."""

    function: str
    quiet_seconds: float | None
    invocations: int
    errors: int


@dataclass(frozen=True)
class Failure:
    """An event in a queue: the function it was for, and the error it came to, as far as it says so."""

    function: str | None
    error: str | None
    detail: str | None


@dataclass(frozen=True)
class Queue:
    """A queue of events that came to nothing: how many, and some of them."""

    url: str
    waiting: int
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class Alarm:
    """An alarm that is raised: what it is for, and what set it off."""

    name: str
    meaning: str
    reason: str


def functions(found: Iterable[Resource]) -> tuple[Function, ...]:
    """Ask for each function; raises as ``answers`` does, like everything here."""
    return tuple(_function(each.identity) for each in found if each.kind == FUNCTION)


def schedules(found: Iterable[Resource]) -> tuple[Schedule, ...]:
    """Ask for the schedules of each group."""
    service = client("scheduler")
    listed: list[dict[str, Any]] = []
    for group in (each.identity for each in found if each.kind == GROUP):
        with answers("scheduler", resource=group):
            for page in service.get_paginator("list_schedules").paginate(GroupName=group):
                listed += [
                    service.get_schedule(GroupName=group, Name=each["Name"])
                    for each in page["Schedules"]
                ]
    return tuple(
        Schedule(
            each["Name"],
            each["State"] == "ENABLED",
            function_name(each["Target"]["Arn"]),
            seconds_of(each["ScheduleExpression"]),
        )
        for each in listed
    )


def ticks(names: Sequence[str], seconds: float, lately_seconds: float) -> tuple[Ticks, ...]:
    """Ask how functions were invoked in the last ``seconds``; counts are of the last ``lately_seconds``."""
    if not names:
        return ()
    service = client("cloudwatch")
    now = datetime.now(UTC)
    metrics = [(name, metric) for name in names for metric in ("Invocations", "Errors")]
    found: dict[str, dict[datetime, float]] = {f"m{place}": {} for place in range(len(metrics))}
    asked = {
        "StartTime": now - timedelta(seconds=seconds),
        "EndTime": now + timedelta(seconds=PERIOD_SECONDS),
        "MetricDataQueries": [_query(f"m{place}", *each) for place, each in enumerate(metrics)],
    }
    with answers("cloudwatch"):
        for page in service.get_paginator("get_metric_data").paginate(**asked):
            for each in page["MetricDataResults"]:
                found[each["Id"]] |= dict(zip(each["Timestamps"], each["Values"], strict=True))
    since = now - timedelta(seconds=lately_seconds)
    invocations, errors = list(found.values())[::2], list(found.values())[1::2]
    return tuple(
        Ticks(name, _quiet(were, now), _sum(were, since), _sum(failed, since))
        for name, were, failed in zip(names, invocations, errors, strict=True)
    )


def queues(found: Iterable[Resource]) -> tuple[Queue, ...]:
    """Ask for each queue, and look at some of its messages, which stay in it."""
    return tuple(_queue(each.identity) for each in found if each.kind == QUEUE)


def alarms(found: Iterable[Resource]) -> tuple[Alarm, ...]:
    """Ask which alarms are raised."""
    names = [each.identity for each in found if each.kind == ALARM]
    pages = client("cloudwatch").get_paginator("describe_alarms")
    told: list[dict[str, Any]] = []
    with answers("cloudwatch"):
        for begin in range(0, len(names), ALARMS_MAX):
            for page in pages.paginate(AlarmNames=names[begin : begin + ALARMS_MAX]):
                told += page["MetricAlarms"]
    return tuple(
        Alarm(each["AlarmName"], each.get("AlarmDescription", ""), each["StateReason"])
        for each in told
        if each["StateValue"] == "ALARM"
    )


def failure(body: str) -> Failure:
    """Read what the platform says of an event that came to nothing; some say nothing."""
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    context = _member(said, "requestContext")
    payload = _member(said, "responsePayload")
    arn = context.get("functionArn")
    return Failure(
        function_name(arn) if arn else None,
        payload.get("errorType") or context.get("condition"),
        payload.get("errorMessage"),
    )


def seconds_of(expression: str) -> int | None:
    """Return the seconds between the ticks of a rate; None for a schedule of any other form."""
    match = RATE.fullmatch(expression)
    return int(match[1]) * RATE_SECONDS[match[2]] if match else None


def _member(said: object, name: str) -> dict[str, Any]:
    found = said.get(name) if isinstance(said, dict) else None
    return found if isinstance(found, dict) else {}


def _function(name: str) -> Function:
    service = client("lambda")
    with answers("lambda", resource=name):
        told = service.get_function_configuration(FunctionName=name)
        reserved = service.get_function_concurrency(FunctionName=name)
    update_failed = told.get("LastUpdateStatus") == "Failed"
    prefix = "LastUpdateStatus" if update_failed else "State"
    return Function(
        name,
        "Failed" if update_failed else told.get("State", "Active"),
        told.get(f"{prefix}ReasonCode"),
        told.get(f"{prefix}Reason"),
        reserved.get("ReservedConcurrentExecutions"),
    )


def _query(name: str, function: str, metric: str) -> dict[str, Any]:
    dimensions = [{"Name": "FunctionName", "Value": function}]
    named = {"Namespace": "AWS/Lambda", "MetricName": metric, "Dimensions": dimensions}
    return {"Id": name, "MetricStat": {"Metric": named, "Period": PERIOD_SECONDS, "Stat": "Sum"}}


def _quiet(were: dict[datetime, float], now: datetime) -> float | None:
    at = [when for when, count in were.items() if count > 0]
    return max(0.0, (now - max(at)).total_seconds()) if at else None


def _sum(were: dict[datetime, float], since: datetime) -> int:
    return int(sum(count for when, count in were.items() if when >= since))


def _queue(url: str) -> Queue:
    service = client("sqs")
    count = "ApproximateNumberOfMessages"
    with answers("sqs", resource=url):
        told = service.get_queue_attributes(QueueUrl=url, AttributeNames=[count])
        waiting = int(told["Attributes"][count])
        messages: list[dict[str, Any]] = []
        if waiting:
            # Hidden from others for no time at all: looking takes nothing out.
            messages = service.receive_message(
                QueueUrl=url, VisibilityTimeout=0, MaxNumberOfMessages=MESSAGES_MAX
            ).get("Messages", [])
    return Queue(url, waiting, tuple(failure(each["Body"]) for each in messages))
