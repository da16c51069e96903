"""Fills a LocalStack: ``python -m localstack.seed``, with ``AWS_ENDPOINT_URL`` set.

A shop with old rows, the secret to reach it, queues, the packed functions and their schedules. A second
time it changes what is there already.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
import psycopg
from botocore.exceptions import ClientError

HERE = Path(__file__).parent
PACKAGES = HERE.parent / "build" / "package"
# The machine of a zip, as AWS and this machine call it.
MACHINES = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "x86_64"}

NAME = "tallystick"
SECRET = "tallystick-database"  # noqa: S105 - its name
# As compose.yaml has it: seen from this machine, and from the functions.
DATABASE = {"user": "tallystick", "password": "tallystick", "dbname": "shop"}
OUTSIDE = {"host": "127.0.0.1", "port": 5432}
INSIDE = {"host": "postgres", "port": 5432}

TICKING = ("archive", "scan", "prune")
RATES = {"archive": "rate(1 minute)", "scan": "rate(5 minutes)", "prune": "rate(5 minutes)"}
# As infra/template.yaml has it, where each line is explained.
SECONDS = {"archive": 50, "scan": 50, "prune": 50, "operate": 50, "migrate": 300}
MEGABYTES = 1024
MOUNT = "/mnt/archive"
STORAGE_ID = "10ca15ac" * 4
INPUT = {
    "scheduled_time": "<aws.scheduler.scheduled-time>",
    "execution_id": "<aws.scheduler.execution-id>",
    "attempt_number": "<aws.scheduler.attempt-number>",
}
THERE_ALREADY = {
    "ConflictException",
    "EntityAlreadyExists",
    "ResourceConflictException",
    "ResourceExistsException",
}

Json = dict[str, Any]


def main() -> None:
    """Fill everything and say what there is; exits with words where something is missing."""
    if "AWS_ENDPOINT_URL" not in os.environ:
        sys.exit("localstack.seed: AWS_ENDPOINT_URL is not set, and this is for an emulator only")
    machine = MACHINES[platform.machine()]
    package = PACKAGES / f"tallystick-{machine}.zip"
    if not package.is_file():
        sys.exit(
            f'localstack.seed: make package ARGS="{machine} --kinds localstack/kinds.toml" first'
        )
    shop(OUTSIDE | DATABASE)
    secret({"engine": "postgres", "username": DATABASE["user"], **DATABASE, **INSIDE})
    failures, undelivered = queue(f"{NAME}-failure"), queue(f"{NAME}-schedule")
    functions = {name: function(name, package.read_bytes(), machine, failures) for name in SECONDS}
    group()
    for name in TICKING:
        schedule(name, functions[name], undelivered)
    print(
        "Orders, a secret, two queues, schedules, and the functions:",
        *functions.values(),
        sep="\n  ",
    )


def shop(connection: Mapping[str, Any]) -> None:
    """Make the shop's tables and rows."""
    with psycopg.connect(**connection) as database:
        database.execute((HERE / "shop.sql").read_bytes())


def secret(fields: Json) -> None:
    """Keep what the functions need to reach the database."""
    manager, text = client("secretsmanager"), json.dumps(fields)
    either(
        lambda: manager.create_secret(Name=SECRET, SecretString=text),
        lambda: manager.put_secret_value(SecretId=SECRET, SecretString=text),
    )


def queue(name: str) -> str:
    """Make a queue, or find it, and return its ARN."""
    sqs = client("sqs")
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return str(told["Attributes"]["QueueArn"])


def function(name: str, package: bytes, machine: str, failures: str) -> str:
    """Make a function, or give it the package, and return the ARN of its alias."""
    service = client("lambda")
    named = {"FunctionName": f"{NAME}-{name}"}
    either(
        lambda: service.create_function(
            **named,
            Runtime="python3.13",
            Handler=f"handlers.{name}.handler",
            Architectures=[machine],
            Role=role("lambda"),
            Code={"ZipFile": package},
            Timeout=SECONDS[name],
            MemorySize=MEGABYTES,
            Environment={"Variables": variables()},
        ),
        lambda: service.update_function_code(**named, ZipFile=package),
    )
    service.get_waiter("function_active_v2").wait(**named)
    alias = {**named, "Name": "live", "FunctionVersion": "$LATEST"}
    made: Json = either(
        lambda: service.create_alias(**alias), lambda: service.update_alias(**alias)
    )
    service.put_function_event_invoke_config(
        **named,
        Qualifier="live",
        MaximumRetryAttempts=0,
        MaximumEventAgeInSeconds=60,
        DestinationConfig={"OnFailure": {"Destination": failures}},
    )
    return str(made["AliasArn"])


def variables() -> dict[str, str]:
    """Return the settings of every function."""
    return {
        "POWERTOOLS_SERVICE_NAME": NAME,
        "TALLYSTICK_ARCHIVE_ROOT": MOUNT,
        "TALLYSTICK_ARCHIVE_STORAGE_ID": STORAGE_ID,
        "TALLYSTICK_DATABASE_SECRET": SECRET,
        "TALLYSTICK_KINDS_FILE": "/var/task/kinds.toml",
    }


def group() -> None:
    """Make the group of the schedules."""
    scheduler = client("scheduler")
    either(lambda: scheduler.create_schedule_group(Name=NAME), lambda: None)


def schedule(name: str, target: str, undelivered: str) -> None:
    """Make the schedule of a function, or set it anew."""
    scheduler = client("scheduler")
    made = {
        "Name": f"{NAME}-{name}",
        "GroupName": NAME,
        "ScheduleExpression": RATES[name],
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {
            "Arn": target,
            "RoleArn": role("scheduler"),
            "RetryPolicy": {"MaximumRetryAttempts": 2, "MaximumEventAgeInSeconds": 60},
            "DeadLetterConfig": {"Arn": undelivered},
            "Input": json.dumps(INPUT),
        },
    }
    either(lambda: scheduler.create_schedule(**made), lambda: scheduler.update_schedule(**made))


def role(service: str) -> str:
    """Make the role of a service, or find it, and return its ARN; nothing enforces roles here."""
    iam, name = client("iam"), f"{NAME}-{service}"
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": f"{service}.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ],
    }
    made: Json = either(
        lambda: iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust)),
        lambda: iam.get_role(RoleName=name),
    )
    return str(made["Role"]["Arn"])


def client(service: str) -> Any:  # noqa: ANN401 - botocore makes its classes at run time
    """Return a client of a service, at ``AWS_ENDPOINT_URL``."""
    return boto3.client(service)


def either(make: Callable[[], Any], change: Callable[[], Any]) -> Any:  # noqa: ANN401 - as botocore
    """Make something; where it is there already, change it."""
    try:
        return make()
    except ClientError as error:
        if error.response["Error"]["Code"] not in THERE_ALREADY:
            raise
        return change()


if __name__ == "__main__":
    main()
