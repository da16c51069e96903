"""The template for AWS, held against the program it deploys and against what is known to go wrong there."""

from __future__ import annotations

import json
import os
import re
from importlib import import_module
from typing import Any

import pytest

from shared import metrics
from shared.db.connect import Credentialed
from shared.errors import Code, Refused
from shared.jobs.model import Ending
from shared.settings import LEASE_MARGIN, Settings, load
from shared.wiring import named_control, named_source
from tests.deploy import template
from tests.deploy.image import ROOT
from tests.deploy.template import (
    NOTHING,
    defaults,
    environment,
    functions,
    resources,
    statements,
    taken,
)

TICKING = {"Archive", "Scan", "Prune"}
BY_HAND = {"Operate", "Migrate"}


URL = "postgresql://jobs@db.example/jobs"
SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:jobs-a1B2c3"
KEY = "arn:aws:kms:eu-central-1:123456789012:key/5a3e1f30-cdab-11ef-9a6b-0a1b2c3d4e5f"
USER = "db-ABCDEFGHIJKL01234/jobs"
# Which functions sign in to which database: only those that read rows from a source need its credential.
SIGNING_IN = {
    "Database": {"Archive", "Scan", "Prune", "Operate", "Migrate"},
    "Source": {"Archive", "Operate"},
}


def ref(name: str) -> dict[str, str]:
    return {"Ref": name}


def in_force(monkeypatch: pytest.MonkeyPatch, **given: str) -> Settings:
    """Return the settings as a function of a deployment with these parameters reads them."""
    for name in [name for name in os.environ if name.startswith("TALLYSTICK_")]:
        monkeypatch.delenv(name)
    for name, value in template.settings(**given).items():
        monkeypatch.setenv(name, value)
    return load()


def setting(name: str) -> Any:  # noqa: ANN401 - as pydantic has it
    return Settings.model_fields[name].default


def test_every_function_runs_a_handler_that_is_there() -> None:
    assert set(functions()) == TICKING | BY_HAND
    for name, function in functions().items():
        module, attribute = function["Handler"].rsplit(".", 1)
        assert module == f"handlers.{name.lower()}"
        assert callable(getattr(import_module(module), attribute))


def test_a_tick_is_killed_after_its_deadline_and_before_its_lease_runs_out() -> None:
    for name in (*TICKING, "Operate"):
        timeout = functions()[name]["Timeout"]
        assert timeout == setting("timeout_seconds") > setting("deadline_seconds")
        assert timeout * LEASE_MARGIN <= setting("lease_seconds")


def test_the_package_is_the_one_that_is_made_for_that_machine_and_python() -> None:
    from infra import packaging

    for function in functions().values():
        (machine,) = function["Architectures"]
        target = packaging.targets("")[machine]
        made = packaging.PLACE / f"tallystick-{target.name}.zip"
        assert (template.TEMPLATE.parent / function["CodeUri"]).resolve() == made
        assert function["Runtime"] == "python" + ".".join(map(str, packaging.PYTHON))


def test_nothing_but_the_network_and_a_database_has_to_be_said() -> None:
    assert template.refusals(DatabaseUrl=URL) == template.refusals(DatabaseSecret=SECRET) == []
    (needed,) = template.refusals()
    assert needed.startswith("Name the database")
    assert set(template.template()["Parameters"]) - set(defaults()) == {
        "VpcId",
        "SubnetA",
        "SubnetB",
    }
    for name, parameter in template.template()["Parameters"].items():
        assert parameter["Description"].endswith("."), name
        grouped = template.template()["Metadata"]["AWS::CloudFormation::Interface"]
        (_,) = [group for group in grouped["ParameterGroups"] if name in group["Parameters"]]


def test_every_default_of_a_parameter_is_one_that_it_allows() -> None:
    for name, parameter in template.template()["Parameters"].items():
        if "Default" not in parameter:
            continue
        if "AllowedPattern" in parameter:
            assert re.fullmatch(parameter["AllowedPattern"], parameter["Default"]), name
        if "AllowedValues" in parameter:
            assert parameter["Default"] in parameter["AllowedValues"], name


def test_a_setting_with_a_parameter_has_the_same_default_and_bounds() -> None:
    parameter = template.template()["Parameters"]["VolumeMaxBytes"]
    assert environment()["TALLYSTICK_ARCHIVE_MAX_BYTES"] == ref("VolumeMaxBytes")
    assert parameter["Default"] == setting("archive_max_bytes")
    low, high = Settings.model_fields["archive_max_bytes"].metadata
    assert (parameter["MinValue"], parameter["MaxValue"]) == (low.ge, high.le)


@pytest.mark.parametrize("name", ["DatabaseUrl", "SourceUrl"])
def test_a_password_has_no_place_in_a_parameter(name: str) -> None:
    pattern = template.template()["Parameters"][name]["AllowedPattern"]
    assert re.fullmatch(pattern, "postgresql://jobs@db.example:5432/jobs?sslmode=verify-full")
    assert re.fullmatch(pattern, "postgresql://db.example/jobs?sslmode=verify-full")
    assert re.fullmatch(pattern, "")
    assert not re.fullmatch(pattern, "postgresql://jobs:secret@db.example/jobs")
    assert not re.fullmatch(pattern, "postgresql://jobs:se@cret@db.example/jobs")
    assert not re.fullmatch(pattern, "postgresql://jobs@db.example/jobs?password=secret")
    assert not re.fullmatch(pattern, "postgresql://db.example/jobs?user=jobs&password=secret")
    assert re.fullmatch(pattern, "postgres://jobs%40work@a.example:5432,b.example,[::1]:5433/jobs")
    assert re.fullmatch(
        pattern, "postgresql://jobs@db/jobs?target_session_attrs=primary&options=-cx%3D1"
    )
    for secret in (
        "postgresql://jobs@db.example/jobs?p%61ssword=secret",
        "postgresql://jobs@db.example/jobs?sslmode=require&sslpassword=secret",
        "postgresql://jobs@db.example/jobs?scram_client_key=secret",
        "postgresql://jobs@db.example/jobs?oauth_client_secret=secret",
        "postgresql://jobs%3asecret@db.example/jobs",
        "postgresql://jobs@secret@db.example/jobs",
        "postgresql:///jobs:secret@db.example/jobs",
        "postgresql://jobs@db.example/jobs?PASSWORD=secret",
        "postgresql://jobs/secret@db.example/jobs",
        "postgresql://jobs:secret/jobs",
    ):
        assert not re.fullmatch(pattern, secret), secret


# What a schedule takes is not checked by the tools that check templates.
RATES = ["rate(1 minute)", "rate(2 minutes)", "rate(9 minutes)", "rate(10 minutes)"]
NO_RATES = [
    *(
        "rate(1 minutes)",
        "rate(2 minute)",
        "rate(0 minutes)",
        "rate(01 minutes)",
        "rate(30 seconds)",
    ),
    *("rate(-1 minutes)", "rate(1.5 hours)", "rate(1 week)", "rate( 1 minute)", "Rate(1 minute)"),
    *("rate(1 minute) ", "1 minute", "", "cron(* * * * *)", "cron(* * * * ? *)"),
    *("rate(11 minutes)", "rate(100 minutes)", "rate(1 hour)", "rate(1 day)"),
]


@pytest.mark.parametrize("name", sorted(TICKING))
def test_only_a_rate_that_the_schedule_understands_can_be_given(name: str) -> None:
    pattern = template.template()["Parameters"][f"{name}Rate"]["AllowedPattern"]
    assert [rate for rate in RATES if not re.fullmatch(pattern, rate)] == []
    assert [rate for rate in NO_RATES if re.fullmatch(pattern, rate)] == []


def test_every_tick_comes_by_its_alias_and_is_kept_when_it_cannot_be_delivered() -> None:
    schedules = resources("AWS::Scheduler::Schedule")
    assert set(schedules) == {f"{name}Schedule" for name in TICKING}
    for name in TICKING:
        schedule = schedules[f"{name}Schedule"]
        assert schedule["ScheduleExpression"] == ref(f"{name}Rate")
        assert schedule["State"] == ref("Schedules")
        assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
        target = schedule["Target"]
        assert target["Arn"] == ref(f"{name}Alias")
        assert target["RetryPolicy"] == {
            "MaximumRetryAttempts": 2,
            "MaximumEventAgeInSeconds": 60,
        }
        assert target["DeadLetterConfig"]["Arn"] == {"Fn::GetAtt": ["ScheduleQueue", "Arn"]}
        assert set(json.loads(target["Input"]).values()) == {
            "<aws.scheduler.scheduled-time>",
            "<aws.scheduler.execution-id>",
            "<aws.scheduler.attempt-number>",
        }


def test_a_tick_that_failed_or_waited_too_long_is_kept_and_not_tried_again() -> None:
    events = resources("AWS::Lambda::EventInvokeConfig")
    aliases = resources("AWS::Lambda::Alias")
    for name in functions():
        config = events[f"{name}Events"]
        assert config["FunctionName"] == aliases[f"{name}Alias"]["FunctionName"] == ref(name)
        assert config["Qualifier"] == aliases[f"{name}Alias"]["Name"] == "live"
        assert config["MaximumRetryAttempts"] == 0
        assert config["MaximumEventAgeInSeconds"] == 60
        queue = config["DestinationConfig"]["OnFailure"]["Destination"]
        assert queue == {"Fn::GetAtt": ["FailureQueue", "Arn"]}


def test_an_alias_follows_every_deployment_one_that_changes_a_parameter_only_too() -> None:
    for alias in resources("AWS::Lambda::Alias").values():
        assert alias["FunctionVersion"] == "$LATEST"
    assert not any("AutoPublishAlias" in function for function in functions().values())


def test_what_failed_is_one_queue_and_what_was_not_delivered_another_and_neither_starts_anything() -> (
    None
):
    assert set(resources("AWS::SQS::Queue")) == {"FailureQueue", "ScheduleQueue"}
    assert resources("AWS::Lambda::EventSourceMapping") == {}
    assert not any("Events" in function for function in functions().values())


def test_functions_are_reached_by_no_url_and_started_by_no_event() -> None:
    sorts = {each["Type"] for each in template.template()["Resources"].values()}
    reaching = ("AWS::Lambda::Url", "AWS::Lambda::Permission", "AWS::Lambda::EventSourceMapping")
    assert not [sort for sort in sorts if sort in reaching or "Api" in sort or "CloudFront" in sort]
    for function in functions().values():
        assert function.keys().isdisjoint({"FunctionUrlConfig", "Events"})


def test_a_new_account_deploys_without_concurrency_to_reserve() -> None:
    assert defaults()["ReservedConcurrency"] == -1
    reserved = {"Fn::If": ["Reserves", ref("ReservedConcurrency"), NOTHING]}
    for name in TICKING:
        assert functions()[name]["ReservedConcurrentExecutions"] == reserved
    for name in BY_HAND:
        assert "ReservedConcurrentExecutions" not in functions()[name]
    assert template.template()["Parameters"]["ReservedConcurrency"]["MinValue"] == -1


def test_the_volume_belongs_to_whoever_writes_to_it_and_to_nobody_else() -> None:
    (point,) = resources("AWS::EFS::AccessPoint").values()
    assert point["PosixUser"] == {"Uid": "65532", "Gid": "65532"}
    made = point["RootDirectory"]["CreationInfo"]
    assert made == {"OwnerUid": "65532", "OwnerGid": "65532", "Permissions": "0700"}
    assert re.fullmatch(
        template.template()["Parameters"]["AccessPointPath"]["AllowedPattern"],
        defaults()["AccessPointPath"],
    )


def test_the_volume_is_mounted_where_the_program_looks_for_it() -> None:
    for function in functions().values():
        (mount,) = function["FileSystemConfigs"]
        assert mount["Arn"] == {"Fn::GetAtt": ["AccessPoint", "Arn"]}
        assert mount["LocalMountPath"] == environment()["TALLYSTICK_ARCHIVE_ROOT"]
        assert re.fullmatch(r"/mnt/[a-zA-Z0-9-_.]+", mount["LocalMountPath"])


def test_no_function_is_made_before_its_volume_can_be_mounted() -> None:
    (point,) = resources("AWS::EFS::AccessPoint").values()
    assert template.references(point) >= {"MountTargetA", "MountTargetB", "MountIngress"}
    for target in resources("AWS::EFS::MountTarget").values():
        assert target["SecurityGroups"] == [ref("MountSecurityGroup")]
    # Rules inside a group are there as soon as it is.
    (rule,) = resources("AWS::EC2::SecurityGroup")["MountSecurityGroup"]["SecurityGroupIngress"]
    assert (rule["FromPort"], rule["ToPort"]) == (2049, 2049)
    assert rule["SourceSecurityGroupId"] == ref("FunctionSecurityGroup")


def test_there_is_a_mount_target_in_every_subnet_of_the_functions() -> None:
    subnets = [each["SubnetId"] for each in resources("AWS::EFS::MountTarget").values()]
    for function in functions().values():
        assert function["VpcConfig"]["SubnetIds"] == subnets


def test_the_file_system_has_no_credits_to_run_out_of() -> None:
    (made,) = resources("AWS::EFS::FileSystem").values()
    assert (made["ThroughputMode"], made["PerformanceMode"]) == ("elastic", "generalPurpose")
    assert made["Encrypted"] is True


def test_the_archive_outlives_its_stack() -> None:
    made = template.template()["Resources"]["FileSystem"]
    assert made["DeletionPolicy"] == "RetainExceptOnCreate"
    assert made["UpdateReplacePolicy"] == "Retain"


def test_no_client_mounts_in_the_clear_without_an_access_point_or_as_root() -> None:
    (made,) = resources("AWS::EFS::FileSystem").values()
    denied = {each["Sid"]: each for each in statements(made["FileSystemPolicy"])}
    assert {each["Effect"] for each in denied.values()} == {"Deny"}
    client = ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"]
    assert denied["OverTlsOnly"]["Action"] == client
    assert denied["OverTlsOnly"]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert denied["ThroughAnAccessPointOnly"]["Action"] == client
    assert denied["ThroughAnAccessPointOnly"]["Condition"] == {
        "Null": {"elasticfilesystem:AccessPointArn": "true"}
    }
    assert denied["NobodyIsRoot"]["Action"] == "elasticfilesystem:ClientRootAccess"


def test_the_id_of_a_stack_gives_a_storage_id() -> None:
    chosen = environment()["TALLYSTICK_ARCHIVE_STORAGE_ID"]["Fn::If"]
    assert chosen[:2] == ["NamesVolume", ref("StorageId")]
    last = {"Fn::Select": [2, {"Fn::Split": ["/", ref("AWS::StackId")]}]}
    assert chosen[2] == {"Fn::Join": ["", {"Fn::Split": ["-", last]}]}
    stack = "arn:aws:cloudformation:eu-west-1:123456789012:stack/jobs/5a3e1f30-CDAB-11ef-9a6b-0a1b2c3d4e5f"
    made = "".join(stack.split("/")[2].lower().split("-"))
    (pattern,) = [
        each.pattern
        for each in Settings.model_fields["archive_storage_id"].metadata
        if hasattr(each, "pattern")
    ]
    assert re.fullmatch(pattern, made)
    assert template.template()["Outputs"]["VolumeStorageId"]["Value"] == {"Fn::If": chosen}


def policies(role: str) -> set[str]:
    attached = template.deployed()[role]["Properties"]["ManagedPolicyArns"]
    return {each["Ref"] for each in attached}


def gained(name: str, **given: str) -> list[dict[str, Any]]:
    """Return what the role of a function may do in a deployment, and could not by default."""
    before = template.may(template.deployed(), f"{name}Role")
    now = template.may(template.deployed(**given), f"{name}Role")
    assert [each for each in before if each not in now] == []
    return [each for each in now if each not in before]


# What every function does: it is in a VPC, mounts the volume, leaves what came to nothing, writes its log.
EVERYWHERE = {
    *("ec2:AssignPrivateIpAddresses", "ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface"),
    *("ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets", "ec2:UnassignPrivateIpAddresses"),
    *("elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite", "sqs:SendMessage"),
    *("logs:CreateLogStream", "logs:PutLogEvents"),
}


def actions(stated: list[dict[str, Any]]) -> list[str]:
    """Return what statements allow, what is allowed by two of them twice."""
    each = [each["Action"] for each in stated if each["Effect"] == "Allow"]
    return sorted(one for some in each for one in (some if isinstance(some, list) else [some]))


def test_a_role_may_do_what_its_function_does_and_nothing_else() -> None:
    for name in functions():
        assert actions(template.may(template.deployed(), f"{name}Role")) == sorted(EVERYWHERE)


def test_all_that_can_be_asked_for_allows_a_role_no_more_than_that() -> None:
    everything: dict[str, str | int] = {
        "KmsKeyArn": KEY,
        "FollowUpTicks": 10,
        "SourceUrl": URL,
        "SourceIam": USER,
    }
    everything |= {"DatabaseSecret": SECRET, "DatabaseSecretKeyArn": KEY}
    for name in functions():
        more = ["kms:Decrypt", "kms:GenerateDataKey"]
        more += ["secretsmanager:GetSecretValue", "kms:Decrypt"]
        more += ["rds-db:connect"] * (name in SIGNING_IN["Source"])
        more += ["lambda:InvokeFunction"] * (name in TICKING)
        stated = template.may(template.deployed(**everything), f"{name}Role")
        assert actions(stated) == sorted([*EVERYWHERE, *more])


def test_what_came_to_nothing_goes_into_its_queue_and_under_the_key_of_that_alone() -> None:
    queue, key = allowed()["FailurePolicy"]
    assert queue == {
        "Sid": "TheQueue",
        "Effect": "Allow",
        "Action": "sqs:SendMessage",
        "Resource": {"Fn::GetAtt": ["FailureQueue", "Arn"]},
    }
    assert key == {
        "Sid": "ItsKeyAndThatOfTheVariables",
        "Effect": "Allow",
        "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
        "Resource": ref("KmsKeyArn"),
        "Condition": {
            "StringEquals": {
                "kms:ViaService": [
                    {"Fn::Sub": "sqs.${AWS::Region}.amazonaws.com"},
                    {"Fn::Sub": "lambda.${AWS::Region}.amazonaws.com"},
                ]
            }
        },
    }


@pytest.mark.parametrize("which", SIGNING_IN)
def test_a_secret_is_named_to_the_functions_and_read_by_those_that_sign_in_with_it(
    which: str,
) -> None:
    assert environment()[f"TALLYSTICK_{which.upper()}_SECRET"] == ref(f"{which}Secret")
    reading = {
        "Sid": "TheSecret",
        "Effect": "Allow",
        "Action": "secretsmanager:GetSecretValue",
        "Resource": ref(f"{which}Secret"),
    }
    for name in functions():
        expected = [reading] if name in SIGNING_IN[which] else []
        assert gained(name, **{f"{which}Secret": SECRET}) == expected


@pytest.mark.parametrize("which", SIGNING_IN)
def test_the_key_of_a_secret_opens_that_secret_and_nothing_else(which: str) -> None:
    given = {f"{which}Secret": SECRET, f"{which}SecretKeyArn": KEY}
    opening = {
        "Sid": "ItsKey",
        "Effect": "Allow",
        "Action": "kms:Decrypt",
        "Resource": ref(f"{which}SecretKeyArn"),
        "Condition": {
            "StringEquals": {
                "kms:ViaService": {"Fn::Sub": "secretsmanager.${AWS::Region}.amazonaws.com"},
                "kms:EncryptionContext:SecretARN": ref(f"{which}Secret"),
            }
        },
    }
    for name in functions():
        without = gained(name, **{f"{which}Secret": SECRET})
        expected = [*without, opening] if name in SIGNING_IN[which] else []
        assert gained(name, **given) == expected


@pytest.mark.parametrize("which", SIGNING_IN)
def test_a_token_is_asked_for_and_only_for_that_user_of_that_database(which: str) -> None:
    given = {f"{which}Url": URL, f"{which}Iam": USER}
    signing = {
        "Sid": "TheUser",
        "Effect": "Allow",
        "Action": "rds-db:connect",
        "Resource": {
            "Fn::Sub": "arn:${AWS::Partition}:rds-db:${AWS::Region}:${AWS::AccountId}"
            f":dbuser:${{{which}Iam}}"
        },
    }
    for name in functions():
        assert gained(name, **given) == ([signing] if name in SIGNING_IN[which] else [])
    variable = f"TALLYSTICK_{which.upper()}_IAM"
    switch = {"Fn::If": [f"SignsInto{which}", "true", "false"]}
    assert environment()[variable] == switch


def test_the_settings_of_a_deployment_without_a_credential_are_those_without_any() -> None:
    for name in functions():
        assert gained(name, DatabaseUrl=URL, SourceUrl=URL) == []
    for which in SIGNING_IN:
        assert f"{which}Policy" not in template.deployed()
        assert defaults()[f"{which}Secret"] == defaults()[f"{which}Iam"] == ""


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"DatabaseUrl": URL}, []),
        ({"DatabaseSecret": SECRET, "SourceSecret": SECRET}, ["database", "source"]),
        ({"DatabaseUrl": URL, "DatabaseSecret": SECRET, "SourceUrl": URL}, ["database"]),
        ({"DatabaseUrl": URL, "SourceUrl": URL, "SourceIam": USER}, ["source"]),
        ({"DatabaseUrl": URL, "DatabaseIam": USER, "SourceSecret": SECRET}, ["database", "source"]),
    ],
)
def test_what_a_deployment_says_of_signing_in_is_what_its_functions_do(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], kept: list[str]
) -> None:
    assert template.refusals(**given) == []
    found = in_force(monkeypatch, StorageId="0" * 32, **given)
    dsns = {"database": named_control(found), "source": named_source(found)}
    assert [name for name, dsn in dsns.items() if isinstance(dsn, Credentialed)] == kept
    assert (dsns["source"] is None) == (not given.keys() & {"SourceUrl", "SourceSecret"})


@pytest.mark.parametrize("which", SIGNING_IN)
def test_what_the_rules_refuse_would_be_refused_by_the_functions_too(
    monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    both = {f"{which}Url": URL, f"{which}Secret": SECRET, f"{which}Iam": USER}
    for given, problem in ((both, "iam_or_secret"), ({f"{which}Iam": USER}, "iam_needs_url")):
        with pytest.raises(Refused) as caught:
            in_force(monkeypatch, StorageId="0" * 32, **given)
        name = f"TALLYSTICK_{which.upper()}_IAM"
        assert caught.value.params["problems"] == [{"name": name, "problem": problem}]


@pytest.mark.parametrize("which", SIGNING_IN)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"Secret": SECRET, "Iam": USER}, "{}Iam and {}Secret are two ways to sign in. Name one."),
        ({"Url": "", "Iam": USER}, "{}Iam needs a {}Url, which names host and user."),
        ({"SecretKeyArn": KEY}, "{}SecretKeyArn is the key of a {}Secret, and there is none."),
    ],
)
def test_what_cannot_be_meant_together_is_refused_in_words(
    which: str, given: dict[str, str], said: str
) -> None:
    urls = {"DatabaseUrl": URL, "SourceUrl": URL}
    wrong = urls | {which + name: value for name, value in given.items()}
    assert said.format(which, which) in template.refusals(**wrong)
    assert template.refusals(**urls) == []


@pytest.mark.parametrize("which", SIGNING_IN)
def test_a_secret_is_named_by_its_whole_arn_and_a_user_beside_its_database(which: str) -> None:
    secret, user = taken(f"{which}Secret"), taken(f"{which}Iam")
    assert secret(SECRET)
    assert secret("arn:aws-cn:secretsmanager:cn-north-1:123456789012:secret:rds!db-5a3e1f30-a1B2c3")
    assert not secret("jobs")
    assert not secret(SECRET.removesuffix("-a1B2c3"))
    assert not secret(SECRET.replace("jobs", "*"))
    assert user(USER)
    assert user("cluster-ABCDEFGHIJKL01234/jobs_reader")
    assert user("prx-0123456789abcdef0/jobs")
    for wrong in ("jobs", "db-ABC", "db-ABC/", "db-ABC/*", "*/jobs", "true", "db-*/jobs"):
        assert not user(wrong)


def test_every_function_has_a_role_of_its_own_with_what_it_needs() -> None:
    roles = resources("AWS::IAM::Role")
    assert set(roles) == {f"{name}Role" for name in functions()} | {"ScheduleRole"}
    for name, function in functions().items():
        assert function["Role"] == {"Fn::GetAtt": [f"{name}Role", "Arn"]}
        assert policies(f"{name}Role") == {"NetworkPolicy", "VolumePolicy", "FailurePolicy"}
        (own,) = roles[f"{name}Role"]["Policies"]
        log, *others = statements(own["PolicyDocument"])
        assert log == {
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": {"Fn::GetAtt": [f"{name}Log", "Arn"]},
        }
        assert bool(others) == (name in TICKING)


def test_a_tick_may_ask_for_another_of_its_own_where_that_is_wanted_and_no_function_for_more() -> (
    None
):
    assert environment()["TALLYSTICK_FOLLOW_UP_TICKS"] == ref("FollowUpTicks")
    parameter = template.template()["Parameters"]["FollowUpTicks"]
    low, high = Settings.model_fields["follow_up_ticks"].metadata
    # None by default: in a VPC there is no way to the API unless one is made.
    assert parameter["Default"] == parameter["MinValue"] == low.ge
    assert parameter["MaxValue"] == high.le
    for name in TICKING:
        (own,) = resources("AWS::IAM::Role")[f"{name}Role"]["Policies"]
        _, asking = own["PolicyDocument"]["Statement"]
        named = functions()[name]["FunctionName"]["Fn::Sub"]
        alias = resources("AWS::Lambda::Alias")[f"{name}Alias"]["Name"]
        assert asking["Fn::If"] == [
            "FollowsUp",
            {
                "Effect": "Allow",
                "Action": "lambda:InvokeFunction",
                "Resource": {
                    "Fn::Sub": "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}"
                    f":function:{named}:{alias}"
                },
            },
            template.NOTHING,
        ]


def allowed() -> dict[str, list[dict[str, Any]]]:
    """Return what each policy allows, by the name of the policy or its role."""
    found = {
        name: statements(policy["PolicyDocument"])
        for name, policy in resources("AWS::IAM::ManagedPolicy").items()
    }
    for name, role in resources("AWS::IAM::Role").items():
        found[name] = [
            each for policy in role["Policies"] for each in statements(policy["PolicyDocument"])
        ]
    return {
        name: [each for each in stated if each["Effect"] == "Allow"]
        for name, stated in found.items()
    }


def test_nothing_is_allowed_on_everything_but_the_interfaces_of_a_vpc() -> None:
    for name, stated in allowed().items():
        for each in stated:
            actions = each["Action"] if isinstance(each["Action"], list) else [each["Action"]]
            assert not [action for action in actions if "*" in action], name
            if name != "NetworkPolicy":
                assert "*" not in json.dumps(each["Resource"]).replace(":*", ""), name
    allow, deny = resources("AWS::IAM::ManagedPolicy")["NetworkPolicy"]["PolicyDocument"][
        "Statement"
    ]
    assert {action.split(":")[0] for action in allow["Action"]} == {"ec2"}
    # The platform needs them, the code does not: taken from it again.
    assert (deny["Effect"], deny["Action"], deny["Resource"]) == ("Deny", allow["Action"], "*")
    assert set(deny["Condition"]["ArnLike"]) == {"lambda:SourceFunctionArn"}


def test_the_volume_is_written_through_its_access_point_and_no_other_way() -> None:
    (each,) = allowed()["VolumePolicy"]
    assert each["Action"] == ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"]
    assert each["Condition"] == {
        "StringEquals": {"elasticfilesystem:AccessPointArn": {"Fn::GetAtt": ["AccessPoint", "Arn"]}}
    }
    assert template.references(each["Resource"]) >= {"FileSystem", "FileSystemId"}


def test_the_schedule_invokes_ticks_by_their_aliases_and_nothing_else() -> None:
    role = resources("AWS::IAM::Role")["ScheduleRole"]
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"]["StringEquals"] == {
        "aws:SourceAccount": ref("AWS::AccountId"),
        "aws:SourceArn": {"Fn::GetAtt": ["ScheduleGroup", "Arn"]},
    }
    invoke, send, key = allowed()["ScheduleRole"]
    assert invoke["Action"] == "lambda:InvokeFunction"
    assert invoke["Resource"] == [ref(f"{name}Alias") for name in ("Archive", "Scan", "Prune")]
    assert send["Action"] == "sqs:SendMessage"
    assert send["Resource"] == {"Fn::GetAtt": ["ScheduleQueue", "Arn"]}
    assert key["Resource"] == ref("KmsKeyArn")


def test_every_log_is_kept_for_a_time_and_under_the_name_the_platform_gives_it() -> None:
    logs = resources("AWS::Logs::LogGroup")
    for name, function in functions().items():
        log = logs[f"{name}Log"]
        assert function["LoggingConfig"] == {"LogGroup": ref(f"{name}Log")}
        assert log["RetentionInDays"] == ref("LogRetentionDays")
        named = function["FunctionName"]["Fn::Sub"]
        assert log["LogGroupName"]["Fn::Sub"] == f"/aws/lambda/{named}"


def test_a_key_of_ones_own_encrypts_everything_that_lies_somewhere() -> None:
    at_rest = {
        "AWS::EFS::FileSystem": "KmsKeyId",
        "AWS::Logs::LogGroup": "KmsKeyId",
        "AWS::SNS::Topic": "KmsMasterKeyId",
        "AWS::SQS::Queue": "KmsMasterKeyId",
    }
    chosen = {"Fn::If": ["HasKey", ref("KmsKeyArn"), NOTHING]}
    for sort, name in at_rest.items():
        assert resources(sort)
        assert [each[name] for each in resources(sort).values()] == [chosen] * len(resources(sort))
    assert all(function["KmsKeyArn"] == chosen for function in functions().values())


MEASURES = {measure.name: measure for measure in metrics.MEASURES}


def test_every_alarm_is_on_a_metric_that_ticks_write_with_its_dimensions() -> None:
    seen = set()
    for alarm, watched in template.alarmed().items():
        for metric in watched:
            if metric["Namespace"] != "Tallystick":
                continue
            given = {each["Name"]: each["Value"] for each in metric["Dimensions"]}
            seen.add(metric["MetricName"])
            assert set(given) == {"service", *MEASURES[metric["MetricName"]].dimensions}, alarm
            assert given["service"] == environment()["POWERTOOLS_SERVICE_NAME"]
            assert given.get("outcome", "failed") in set(Ending)
            assert given.get("code", "STORAGE_BUSY") in set(Code)
    assert seen == {
        *("Ticks", "FailedTicks", "OldestDueSeconds", "Takeovers"),
        *("VolumeUsedBytes", "VolumeMaxBytes"),
    }


def test_every_widget_shows_a_metric_that_ticks_write_with_its_dimensions() -> None:
    seen = set()
    for widget in template.dashboard():
        for metric in widget["metrics"]:
            if isinstance(metric[0], dict):
                found = re.search(
                    r"\{Tallystick,([a-z,]+)\} .* MetricName=\"(\w+)\"", metric[0]["expression"]
                )
                assert found, metric
                given, name = set(found[1].split(",")), found[2]
            elif metric[0] == "Tallystick":
                given, name = set(metric[2::2]), metric[1]
            else:
                continue
            seen.add(name)
            assert given == {"service", *MEASURES[name].dimensions}
    assert {"Ticks", "FailedTicks", "OldestDueSeconds"} < seen


def test_every_alarm_tells_somebody_and_names_a_page_that_is_there() -> None:
    told = [{"Fn::If": ["MakesTopic", ref("AlarmTopic"), ref("AlarmTopicArn")]}]
    for name, alarm in resources("AWS::CloudWatch::Alarm").items():
        assert alarm["AlarmActions"] == told
        (page,) = re.findall(r"docs/runbooks/[\w-]+\.md$", alarm["AlarmDescription"])
        assert (ROOT / page).is_file(), name


def test_what_matters_has_an_alarm() -> None:
    assert set(resources("AWS::CloudWatch::Alarm")) == {
        f"{name}Alarm"
        for name in (
            *("MissingTicks", "Errors", "Slow", "Throttles", "DroppedTicks"),
            *("FailureQueue", "ScheduleQueue"),
            *("FailedJobs", "PausedJobs", "Retries", "Backlog", "Takeovers"),
            *("VolumeUsed", "VolumeOperations", "VolumeThroughput"),
        )
    }


def test_ticks_that_stop_are_an_alarm_and_ticks_that_were_switched_off_are_not() -> None:
    alarm = resources("AWS::CloudWatch::Alarm")["MissingTicksAlarm"]
    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/Lambda", "Invocations")
    assert alarm["TreatMissingData"] == "breaching"
    assert alarm["ActionsEnabled"] == {"Fn::If": ["IsScheduled", True, False]}


@pytest.mark.parametrize("rate", RATES)
def test_ticks_that_come_as_they_should_raise_no_alarm_however_seldom(rate: str) -> None:
    found = template.deployed(ArchiveRate=rate)
    seconds = 60 * int(rate.removeprefix("rate(").split()[0])
    silence = found["MissingTicksAlarm"]["Properties"]
    assert silence["Period"] * silence["EvaluationPeriods"] >= 3 * seconds
    # What a tick leaves is due until the next one.
    assert found["BacklogAlarm"]["Properties"]["Threshold"] > seconds
    assert silence["EvaluationPeriods"] == (3 if rate == "rate(1 minute)" else 30)


def test_an_api_that_is_called_has_a_way_to_it_by_parameter() -> None:
    endpoints = resources("AWS::EC2::VPCEndpoint")
    services = {
        each["ServiceName"]["Fn::Sub"].rsplit(".", 1)[1]: template.template()["Resources"][name][
            "Condition"
        ]
        for name, each in endpoints.items()
    }
    assert services == {"lambda": "ReachesLambda", "secretsmanager": "ReachesSecrets"}
    assert (defaults()["LambdaEndpoint"], defaults()["SecretsEndpoint"]) == ("false", "false")


def test_the_checks_that_are_passed_over_each_have_a_reason() -> None:
    lines = (ROOT / "infra" / "checkov.yaml").read_text().partition("skip-check:\n")[2].splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("  - "):
            assert re.fullmatch(r"  # .{30,}\.", before), line
    for name, resource in template.template()["Resources"].items():
        for skip in resource.get("Metadata", {}).get("checkov", {}).get("skip", []):
            assert len(skip["comment"]) > 30, name
