"""Trouble with AWS: no credentials, no way there, not allowed, or a secret that says nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from handlers import archive, operate
from shared.aws.function import RESERVED
from shared.errors import Code
from tests.aws.account import REGION, Account, entered, forget, served
from tests.aws.deployment import alarm, counted, queue, schedule
from tests.aws.functions import Functions, Reply, handled, listening, refusal
from tests.operations import afresh
from tests.remedies.scene import Scene, Variables, path, remedy

# What an operator's `aws` does with a service, an operation and its options.
AWS = """#!{python}
import json
import pathlib
import sys
import boto3

def words(text):
    return "".join(part.capitalize() for part in text.split("-"))

service, operation, *options = sys.argv[1:]
values = [int(value) if value.isdigit() else value for value in options[1::2]]
given = dict(zip((words(name[2:]) for name in options[::2]), values))
if "CliInputJson" in given:
    given = json.loads(pathlib.Path(given["CliInputJson"].removeprefix("file://")).read_text())
if "AlarmNames" in given:
    given["AlarmNames"] = [given["AlarmNames"]]
answer = getattr(boto3.client(service), operation.replace("-", "_"))(**given)
print(json.dumps(answer, default=str))
"""
CREDENTIAL = json.dumps({"username": "postgres", "password": "any"})


@contextmanager
def account(scene: Scene) -> Iterator[Account]:
    with served() as url, entered(url, scene.monkeypatch) as made:
        yield made


def with_aws(scene: Scene) -> str:
    """Return a PATH on which there is an ``aws``."""
    program = scene.directory / "bin" / "aws"
    program.parent.mkdir()
    program.write_text(AWS.format(python=sys.executable))
    program.chmod(0o700)
    return os.pathsep.join([str(program.parent), path()])


@remedy(Code.AWS_NOT_CONFIGURED, 1)
def no_profile_was_named(scene: Scene) -> Iterator[Variables]:
    with account(scene) as made:
        made.secret("db", CREDENTIAL)
        scene.setenv(DATABASE_SECRET="db")
        profiles = scene.directory / "config"
        keys = "aws_access_key_id = test\naws_secret_access_key = test"
        profiles.write_text(f"[profile shop]\nregion = {REGION}\n{keys}\n")
        scene.monkeypatch.setenv("AWS_CONFIG_FILE", str(profiles))
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "DEFAULT_REGION"):
            scene.monkeypatch.delenv(f"AWS_{name}")
        forget()
        scene.ask("jobs", "list", code=2)
        yield {"PROFILE": "shop"}
        forget()
        scene.ask("jobs", "list", code=0)


@remedy(Code.AWS_REFUSED, 1)
def the_secret_has_another_name(scene: Scene) -> Iterator[Variables]:
    with account(scene) as made:
        made.secret("tallystick/db", CREDENTIAL)
        scene.setenv(DATABASE_SECRET="tallystick/database")
        assert scene.ask("jobs", "list", code=2)["params"]["cause"] == "not-found"
        yield {"SECRET": "tallystick/db"}
        scene.ask("jobs", "list", code=0)


@remedy(Code.AWS_UNAVAILABLE, 1)
def the_endpoint_has_no_private_name(scene: Scene) -> Iterator[Variables]:
    with account(scene) as made:
        made.secret("db", CREDENTIAL)
        scene.setenv(DATABASE_SECRET="db")
        scene.monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", "http://127.0.0.1:1")
        assert scene.ask("jobs", "list", code=1)["params"]["cause"] == "unreachable"
        yield {"ENDPOINT": made.url}
        forget()
        scene.ask("jobs", "list", code=0)


@remedy(Code.SECRET_UNUSABLE, 1)
def the_secret_is_a_bare_password(scene: Scene) -> Iterator[Variables]:
    with account(scene) as made:
        made.secret("db", "sesame")
        scene.setenv(DATABASE_SECRET="db")
        assert scene.ask("jobs", "list", code=2)["params"]["cause"] == "malformed"
        yield {"SECRET": "db", "JSON": CREDENTIAL, "PATH": with_aws(scene)}
        forget()
        scene.ask("jobs", "list", code=0)


@remedy(Code.SECRET_UNUSABLE, 2)
def nothing_says_where_the_database_is(scene: Scene) -> Iterator[Variables]:
    host, name = database_of(scene)
    with account(scene) as made:
        made.secret("db", CREDENTIAL)
        scene.setenv(DATABASE_URL=None, DATABASE_SECRET="db")
        assert scene.ask("jobs", "list", code=2)["params"]["cause"] == "no-host"
        yield {"HOST": host, "DATABASE_NAME": name}
        scene.ask("jobs", "list", code=0)


def database_of(scene: Scene) -> tuple[str, str]:
    """Return host and name of the database as a URL has them; a directory of sockets stands there escaped."""
    parts = conninfo_to_dict(scene.database)
    return quote(str(parts["host"]), safe=""), str(parts["dbname"])


FOLLOWING = """
import json, sys
from handlers import archive

class Context:
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:shop-archive:live"

    def get_remaining_time_in_millis(self):
        return 60000

archive.handler({}, Context())
"""


def logged(scene: Scene) -> list[str | None]:
    """Invoke a scheduled handler in a process of its own; return the codes of its log lines."""
    done = subprocess.run(
        [sys.executable, "-c", FOLLOWING], capture_output=True, text=True, check=True
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    scene.see(lines)
    return [line.get("code") for line in lines]


@remedy(Code.FOLLOW_UP_FAILED, 1)
def a_function_may_not_invoke_itself(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    with account(scene), listening() as functions:
        scene.monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", functions.url)
        assert logged(scene) == [None, Code.FOLLOW_UP_FAILED]
        yield {}
        assert logged(scene) == [None]
    assert scene.newest()["batches"] == 2


PREFIX = "arn:aws:lambda:eu-central-1:123456789012:function:"
LIVE = f"{PREFIX}shop-operate:live"


class Context:
    """An invocation with a minute left."""

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


@contextmanager
def stack(scene: Scene) -> Iterator[Functions]:
    """Deploy 45 old orders, and a stack ``shop`` whose handlers are those of this process."""
    scene.deploy()
    with account(scene), listening() as made, afresh.process():
        for service in ("LAMBDA", "CLOUDFORMATION"):
            scene.monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", made.url)
        made.stacks["shop"] = [
            ("Operate", "AWS::Lambda::Function", "shop-operate"),
            ("OperateAlias", "AWS::Lambda::Alias", LIVE),
        ]
        made.replies[LIVE] = lambda event: handled(operate.handler, event, Context())
        yield made


def is_ticked(scene: Scene) -> None:
    assert scene.newest()["batches"] == 1


@remedy(Code.STACK_MISSING, 1)
def no_stack_was_named(scene: Scene) -> Iterator[Variables]:
    with stack(scene):
        scene.ask("tick", "--remote", code=2)
        yield {"STACK": "shop"}
        is_ticked(scene)


@remedy(Code.STACK_UNKNOWN, 1)
def the_stack_has_another_name(scene: Scene) -> Iterator[Variables]:
    with stack(scene):
        scene.setenv(STACK="shopp")
        scene.ask("tick", "--remote", code=2)
        yield {"STACK": "shop"}
        is_ticked(scene)


def ticks(made: Functions, *trouble: Reply) -> None:
    """Let ``shop-archive`` answer with what is given, once each, and then tick."""
    left = list(trouble)

    def answer(_event: object) -> Reply:
        return left.pop(0) if left else handled(archive.handler, {}, Context())

    made.replies["shop-archive"] = answer


@remedy(Code.FUNCTION_UNKNOWN, 1)
def the_function_has_another_name(scene: Scene) -> Iterator[Variables]:
    with stack(scene) as made:
        ticks(made)
        scene.ask("invoke", "archive", code=2)
        yield {"FUNCTION": "shop-archive"}
        is_ticked(scene)


@remedy(Code.FUNCTION_NOT_MOUNTED, 1)
def the_first_mount_took_too_long(scene: Scene) -> Iterator[Variables]:
    with stack(scene) as made:
        ticks(made, refusal(408, "EFSMountTimeoutException"))
        scene.ask("invoke", "shop-archive", code=2)
        yield {"FUNCTION": "shop-archive"}
        is_ticked(scene)


@remedy(Code.FUNCTION_THROTTLED, 1)
def somebody_reserved_nothing_for_it(scene: Scene) -> Iterator[Variables]:
    stopped = refusal(429, "TooManyRequestsException", Reason=RESERVED)
    with stack(scene) as made:
        ticks(made)
        tick = made.replies["shop-archive"]
        found = made.settings["shop-archive"] = {"ReservedConcurrentExecutions": 0}
        made.replies["shop-archive"] = lambda event: stopped if found else tick(event)
        assert scene.ask("invoke", "shop-archive", code=2)["params"]["cause"] == "reserved"
        yield {"FUNCTION": "shop-archive", "PATH": with_aws(scene)}
        is_ticked(scene)


@remedy(Code.FUNCTION_FAILED, 1)
def the_function_has_three_seconds(scene: Scene) -> Iterator[Variables]:
    said = {"errorType": "Sandbox.Timedout", "errorMessage": "Task timed out after 3.00 seconds"}
    with stack(scene) as made:
        found = made.settings["shop-operate"] = {"Timeout": 3}
        operated = made.replies[LIVE]

        def answer(event: object) -> Reply:
            return (
                operated({"action": "tick"}) if found["Timeout"] > 45 else Reply(said, "Unhandled")
            )

        made.replies |= {LIVE: answer, "shop-operate": answer}
        scene.setenv(STACK="shop")
        scene.ask("tick", "--remote", code=1)
        scene.setenv(STACK=None)
        yield {"FUNCTION": "shop-operate", "PATH": with_aws(scene)}
        is_ticked(scene)


@remedy(Code.INVOCATION_LOST, 1)
def the_answer_of_a_tick_was_lost(scene: Scene) -> Iterator[Variables]:
    with stack(scene) as made:

        def answer(event: object) -> Reply:
            return replace(handled(operate.handler, event, Context()), lost=True)

        made.replies[LIVE] = answer
        scene.setenv(STACK="shop")
        scene.ask("tick", "--remote", code=1)
        yield {}
        is_ticked(scene)


def watched(scene: Scene, made: Functions) -> Account:
    """Give the stack ``shop`` a schedule, a queue and an alarm, all in good order, and return its owner."""
    owner = Account(os.environ["AWS_ENDPOINT_URL"])
    schedule(owner)
    alarm(owner, "OK")
    counted(owner, "shop-archive", Invocations=2)
    made.settings |= {"shop-archive": {"State": "Active"}, "shop-operate": {"State": "Active"}}
    made.stacks["shop"] += [
        ("Archive", "AWS::Lambda::Function", "shop-archive"),
        ("FailureQueue", "AWS::SQS::Queue", queue(owner)),
        ("ScheduleGroup", "AWS::Scheduler::ScheduleGroup", "shop"),
        ("SlowAlarm", "AWS::CloudWatch::Alarm", "shop-slow"),
    ]
    scene.setenv(STACK="shop")
    assert found(scene) == []
    return owner


def found(scene: Scene) -> list[str]:
    return [each["code"] for each in scene.ask("doctor", "--aws")["findings"]]


@remedy(Code.SCHEDULE_DISABLED, 1)
def somebody_switched_the_schedule_off(scene: Scene) -> Iterator[Variables]:
    with stack(scene) as made:
        off = schedule(watched(scene, made), state="DISABLED")
        assert found(scene) == [Code.SCHEDULE_DISABLED]
        editor = scene.editor(json.dumps(off | {"State": "ENABLED"}))
        named = {"STACK": "shop", "SCHEDULE": "shop-archive"}
        yield named | {"EDITOR": editor, "PATH": with_aws(scene)}
        assert found(scene) == []


@remedy(Code.INVOCATIONS_FAILED, 1)
def a_tick_ended_in_an_error(scene: Scene) -> Iterator[Variables]:
    with stack(scene) as made:
        counted(watched(scene, made), "shop-archive", Errors=1)
        assert found(scene) == [Code.INVOCATIONS_FAILED]
        ticks(made)
        yield {"FUNCTION": "archive"}
        is_ticked(scene)


@remedy(Code.QUEUE_NOT_EMPTY, 1)
def an_event_came_to_nothing(scene: Scene) -> Iterator[Variables]:
    with stack(scene) as made:
        owner = watched(scene, made)
        owner.owner("sqs").send_message(QueueUrl=queue(owner), MessageBody="{}")
        assert found(scene) == [Code.QUEUE_NOT_EMPTY]
        yield {"QUEUE": queue(owner), "PATH": with_aws(scene)}
        assert found(scene) == []


@remedy(Code.ALARM_RAISED, 1)
def an_alarm_is_raised(scene: Scene) -> Iterator[Variables]:
    with stack(scene) as made:
        owner = watched(scene, made)
        alarm(owner, "ALARM")
        assert found(scene) == [Code.ALARM_RAISED]
        yield {"ALARM": "shop-slow", "PATH": with_aws(scene)}
        # As AWS does when the cause is gone.
        alarm(owner, "OK")
        assert found(scene) == []
