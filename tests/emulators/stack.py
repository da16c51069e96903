"""The stack of the template, deployed into a running emulator the way the runbook deploys it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from localstack import template
from localstack.ministack import REGION, ROOT, Emulator

TRANSFORMED = ROOT / "build" / "localstack" / "template.json"
COMMAND = Path(sys.executable).with_name("tallystick")
# Where the transformation says that the package is.
BUCKET, PACKAGE = "packages", "tallystick.zip"
STACK = "shop"
STACK_SECONDS = 60
POLL_SECONDS = 0.2
BEGUN = time.monotonic()


@dataclass(frozen=True)
class Answered:
    """What a command answered."""

    code: int
    out: str
    err: str

    def json(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.out)


@dataclass(frozen=True)
class Account:
    """The account that the emulator is, and what its owner does there."""

    emulator: Emulator
    settings: Mapping[str, str]

    def owner(self, service: str, **credentials: str) -> Any:  # noqa: ANN401 - botocore makes its classes at run time
        """Return a client of a service, with credentials of somebody else where they are given."""
        known = {
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "region_name": REGION,
            "endpoint_url": self.emulator.url,
            "verify": str(self.emulator.certificate),
        }
        return boto3.client(service, **(known | credentials))

    def command(self, *arguments: str) -> Answered:
        """Run the program as whoever operates the stack does, from a shell of its own."""
        done = subprocess.run(
            [COMMAND, *arguments],
            env={"PATH": os.environ["PATH"], **self.emulator.variables(), **self.settings},
            capture_output=True,
            text=True,
            check=False,
        )
        return Answered(done.returncode, done.stdout, done.stderr)

    def answer(self, *arguments: str) -> Any:  # noqa: ANN401 - JSON
        """Run the program, which must succeed, and return the document that it answers with."""
        answered = self.command(*arguments, "--json")
        assert answered.code == 0, answered
        return answered.json()

    def secret(self, name: str, user: str, password: str) -> str:
        """Make a secret, or give it another value, and return its ARN."""
        service, text = (
            self.owner("secretsmanager"),
            json.dumps({"username": user, "password": password}),
        )
        if name in {each["Name"] for each in service.list_secrets()["SecretList"]}:
            return str(service.put_secret_value(SecretId=name, SecretString=text)["ARN"])
        return str(service.create_secret(Name=name, SecretString=text)["ARN"])

    def log(self, function: str) -> list[str]:
        """Return the lines that a function of the stack logged, in order."""
        service, group = self.owner("logs"), f"/aws/lambda/{STACK}-{function}"
        pages = service.get_paginator("filter_log_events").paginate(logGroupName=group)
        return [each["message"] for page in pages for each in page["events"]]

    def ticks(self, function: str) -> list[dict[str, Any]]:
        """Return the log lines of ticks of a function of the stack."""
        return [json.loads(line) for line in self.log(function) if '"message":"tick"' in line]

    def outputs(self) -> dict[str, str]:
        """Return the outputs of the stack."""
        (found,) = self.owner("cloudformation").describe_stacks(StackName=STACK)["Stacks"]
        return {each["OutputKey"]: each["OutputValue"] for each in found["Outputs"]}


def transformed() -> template.Json:
    """Return the template as `make localstack` transformed it."""
    found: template.Json = json.loads(TRANSFORMED.read_text())
    return found


def package(zipped: Path, bootstrap: str, place: Path) -> Path:
    """Return a copy of a package with the program in it that starts its handlers here."""
    made = place / PACKAGE
    made.write_bytes(zipped.read_bytes())
    with zipfile.ZipFile(made, "a") as file:
        file.writestr("bootstrap", bootstrap)
    return made


def say(text: str) -> None:
    """Tell whoever watches what happens, and when."""
    print(f"  {time.monotonic() - BEGUN:5.1f} s  {text}", flush=True)  # noqa: T201 - it is there to be read


def deploy(account: Account, zipped: Path, root: str | None, parameters: Mapping[str, str]) -> None:
    """Make the stack, with a network for it to name; fails with the events that say why it was not made."""
    s3, ec2 = account.owner("s3"), account.owner("ec2")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.upload_file(str(zipped), BUCKET, PACKAGE)
    found = template.runnable(transformed(), root)
    s3.put_object(Bucket=BUCKET, Key="template.json", Body=json.dumps(found).encode())
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{at}.0/24", AvailabilityZone=REGION + zone)
        for at, zone in enumerate("ab")
    ]
    subnet_a, subnet_b = (each["Subnet"]["SubnetId"] for each in subnets)
    network = {"VpcId": vpc, "SubnetA": subnet_a, "SubnetB": subnet_b}
    account.owner("cloudformation").create_stack(
        StackName=STACK,
        TemplateURL=f"{account.emulator.url}/{BUCKET}/template.json",
        Capabilities=["CAPABILITY_IAM"],
        Parameters=_parameters({**network, **parameters}),
    )
    _settled(account, "CREATE_COMPLETE")


def change(account: Account, **parameters: str) -> None:
    """Deploy the stack once more with parameters changed; the others keep their values."""
    service = account.owner("cloudformation")
    (found,) = service.describe_stacks(StackName=STACK)["Stacks"]
    kept = {each["ParameterKey"] for each in found["Parameters"]} - set(parameters)
    service.update_stack(
        StackName=STACK,
        UsePreviousTemplate=True,
        Capabilities=["CAPABILITY_IAM"],
        Parameters=[
            *_parameters(parameters),
            *({"ParameterKey": name, "UsePreviousValue": True} for name in sorted(kept)),
        ],
    )
    _settled(account, "UPDATE_COMPLETE")


def _parameters(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"ParameterKey": name, "ParameterValue": value} for name, value in values.items()]


def _settled(account: Account, wanted: str) -> None:
    service = account.owner("cloudformation")
    until = time.monotonic() + STACK_SECONDS
    while True:
        (found,) = service.describe_stacks(StackName=STACK)["Stacks"]
        if not found["StackStatus"].endswith("IN_PROGRESS"):
            break
        assert time.monotonic() < until, f"the stack is still {found['StackStatus']}"
        time.sleep(POLL_SECONDS)
    events = service.describe_stack_events(StackName=STACK)["StackEvents"]
    failed = [
        f"{each['LogicalResourceId']}: {each.get('ResourceStatusReason')}"
        for each in events
        if each["ResourceStatus"].endswith("FAILED")
    ]
    assert found["StackStatus"] == wanted, "\n".join([found["StackStatus"], *failed])
