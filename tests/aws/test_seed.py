"""What the seed makes in an account, and that it is what the template would make there."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from localstack import seed
from shared.aws import credential, deployed
from shared.aws.stack import Resource
from shared.settings import Settings
from tests.aws.account import AROUND, Account
from tests.deploy import template
from tests.worlds import one

NO_FUNCTIONS = "LocalStack's core makes no function without Docker"


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A package of the right name; what is in it plays no part here."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as zipped:
        zipped.writestr("handlers/archive.py", "")
    monkeypatch.setattr(seed, "PACKAGES", tmp_path)
    for machine in seed.MACHINES.values():
        (tmp_path / f"tallystick-{machine}.zip").write_bytes(made.getvalue())
    return made.getvalue()


def test_most_orders_are_old_and_a_second_time_adds_none(empty_database: str) -> None:
    for _ in range(2):
        seed.shop({"conninfo": empty_database})
    old = "SELECT count(*) FROM orders WHERE placed_at < now() - interval '365 days'"
    assert one(empty_database, "SELECT count(*) FROM orders") == 6000
    assert one(empty_database, "SELECT count(*) FROM order_line") == 18000
    assert 3000 < int(str(one(empty_database, old))) < 3100


def test_the_secret_is_one_that_functions_can_use(account: Account) -> None:
    for password in ("first", "second"):
        seed.secret({"username": "tallystick", "password": password, **seed.INSIDE})
    credential._kept.clear()
    assert "password=second" in credential.from_secret(seed.SECRET, None)
    assert "host=postgres" in credential.from_secret(seed.SECRET, None)


def test_a_queue_is_made_once(account: Account) -> None:
    assert seed.queue("tallystick-failure") == seed.queue("tallystick-failure")
    assert seed.queue("tallystick-failure").endswith(":tallystick-failure")


@pytest.mark.parametrize("name", seed.TICKING)
def test_a_schedule_is_the_template_s(account: Account, name: str) -> None:
    target = f"arn:aws:lambda:eu-central-1:123456789012:function:tallystick-{name}:live"
    for _ in range(2):
        seed.group()
        seed.schedule(name, target, seed.queue("tallystick-schedule"))
    asked = template.resources("AWS::Scheduler::Schedule")[f"{name.title()}Schedule"]
    made = account.owner("scheduler").get_schedule(
        GroupName="tallystick", Name=f"tallystick-{name}"
    )
    assert made["ScheduleExpression"] == template.defaults()[f"{name.title()}Rate"]
    assert made["FlexibleTimeWindow"] == asked["FlexibleTimeWindow"]
    assert made["Target"]["RetryPolicy"] == asked["Target"]["RetryPolicy"]
    assert json.loads(made["Target"]["Input"]) == json.loads(asked["Target"]["Input"])
    (found,) = deployed.schedules([Resource("ScheduleGroup", deployed.GROUP, "tallystick")])
    assert (found.enabled, found.function) == (True, f"tallystick-{name}")


@pytest.mark.skipif(bool(AROUND), reason=NO_FUNCTIONS)
def test_everything_is_made_and_a_second_time_too(
    account: Account,
    packed: bytes,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(seed, "shop", lambda _connection: None)
    for _ in range(2):
        seed.main()
    assert f"function:{seed.NAME}-operate:live" in capsys.readouterr().out
    service = account.owner("lambda")
    for name, function in template.functions().items():
        own = name.lower()
        made = service.get_function_configuration(FunctionName=f"{seed.NAME}-{own}")
        assert made["Handler"] == function["Handler"]
        assert made["Runtime"] == function["Runtime"]
        assert made["Timeout"] == function["Timeout"]
        assert made["MemorySize"] == template.defaults()["MemorySize"]
        told = service.get_function_event_invoke_config(
            FunctionName=f"{seed.NAME}-{own}", Qualifier="live"
        )
        assert events(told) == events(
            template.resources("AWS::Lambda::EventInvokeConfig")[f"{name}Events"]
        )


def events(config: dict[str, Any]) -> tuple[int, int]:
    return config["MaximumRetryAttempts"], config["MaximumEventAgeInSeconds"]


def test_every_variable_of_a_function_is_a_setting_that_the_template_has_too() -> None:
    assert set(seed.variables()) <= set(template.environment())
    ours = {name.removeprefix("TALLYSTICK_").lower() for name in seed.variables()}
    assert ours - {"powertools_service_name"} <= set(Settings.model_fields)
    mounts = template.template()["Globals"]["Function"]["FileSystemConfigs"]
    assert [mount["LocalMountPath"] for mount in mounts] == [seed.MOUNT]


def test_the_seed_and_the_compose_file_speak_of_the_same() -> None:
    services = yaml.safe_load((seed.HERE / "compose.yaml").read_text())["services"]
    postgres, shell = services["postgres"], services["shell"]["environment"]
    ours = seed.DATABASE
    assert postgres["environment"] == {
        "POSTGRES_DB": ours["dbname"],
        "POSTGRES_PASSWORD": ours["password"],
        "POSTGRES_USER": ours["user"],
    }
    port = seed.OUTSIDE["port"]
    assert postgres["ports"] == [f"{seed.OUTSIDE['host']}:{port}:{seed.INSIDE['port']}"]
    assert seed.INSIDE["host"] in services
    assert shell["TALLYSTICK_ARCHIVE_STORAGE_ID"] == seed.STORAGE_ID
    given = services["localstack"]["environment"]
    assert given["LAMBDA_DOCKER_FLAGS"].endswith(f":{seed.MOUNT}")
    *_, owner, _, group, _ = services["volume"]["entrypoint"]
    assert services["shell"]["user"] == f"{owner}:{group}"


def test_without_an_endpoint_or_a_package_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with pytest.raises(SystemExit, match="AWS_ENDPOINT_URL"):
        seed.main()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(seed, "PACKAGES", tmp_path)
    with pytest.raises(SystemExit, match="make package"):
        seed.main()
