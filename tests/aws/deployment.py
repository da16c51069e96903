"""A stack ``shop`` on AWS: what its owner makes, and what happens to it."""

from __future__ import annotations

from typing import Any

from tests.aws.account import ACCOUNT, REGION, Account

LIVE = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:shop-archive:live"


def schedule(account: Account, *, state: str = "ENABLED", target: str = LIVE) -> dict[str, Any]:
    """Make the schedule of ``shop-archive``, or change it; return it as it can be given again."""
    scheduler = account.owner("scheduler")
    if not scheduler.list_schedule_groups(NamePrefix="shop")["ScheduleGroups"]:
        scheduler.create_schedule_group(Name="shop")
    made = {
        "Name": "shop-archive",
        "GroupName": "shop",
        "ScheduleExpression": "rate(1 minute)",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {"Arn": target, "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/ticks"},
        "State": state,
    }
    there = scheduler.list_schedules(GroupName="shop")["Schedules"]
    (scheduler.update_schedule if there else scheduler.create_schedule)(**made)
    return made


def queue(account: Account) -> str:
    """Make the queue of failures, or find it, and return its URL."""
    return str(account.owner("sqs").create_queue(QueueName="shop-failure")["QueueUrl"])


def alarm(account: Account, state: str) -> None:
    """Make the alarm ``shop-slow``, in some state."""
    watch = account.owner("cloudwatch")
    watch.put_metric_alarm(
        AlarmName="shop-slow",
        AlarmDescription="Ticks are slow.",
        ComparisonOperator="GreaterThanThreshold",
        EvaluationPeriods=1,
        MetricName="Duration",
        Namespace="AWS/Lambda",
        Period=60,
        # No emulator evaluates percentiles, so the state is the one that is set.
        ExtendedStatistic="p99",
        Threshold=40,
    )
    watch.set_alarm_state(AlarmName="shop-slow", StateValue=state, StateReason="41 > 40")


def counted(account: Account, function: str, **metrics: int) -> None:
    """Let the platform have counted something for a function just now."""
    account.owner("cloudwatch").put_metric_data(
        Namespace="AWS/Lambda",
        MetricData=[
            {
                "MetricName": name,
                "Dimensions": [{"Name": "FunctionName", "Value": function}],
                "Value": value,
            }
            for name, value in metrics.items()
        ],
    )
