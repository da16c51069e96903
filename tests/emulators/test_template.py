"""What is different in an emulator is what it cannot run, and nothing else."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from localstack.template import mount_paths, runnable

STACK: dict[str, Any] = {
    "Parameters": {"DatabaseUrl": {"Type": "String"}},
    "Resources": {
        "Archive": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "Runtime": "python3.13",
                "Architectures": ["arm64"],
                "Timeout": 50,
                "FileSystemConfigs": [{"Arn": "arn", "LocalMountPath": "/mnt/archive"}],
                "Environment": {
                    "Variables": {"TALLYSTICK_ARCHIVE_ROOT": "/mnt/archive", "OTHER": "1"}
                },
            },
            "DependsOn": "AccessPoint",
        },
        "Events": {
            "Type": "AWS::Lambda::EventInvokeConfig",
            "Properties": {"Qualifier": "live", "MaximumRetryAttempts": 0},
        },
        "AccessPoint": {"Type": "AWS::EFS::AccessPoint", "Properties": {"PosixUser": {}}},
        "Plain": {"Type": "AWS::CloudWatch::Alarm", "Properties": {"MetricName": "Duration"}},
        "Calculated": {"Type": "AWS::CloudWatch::Alarm", "Properties": {"Metrics": []}},
    },
    "Outputs": {"ArchiveFunction": {"Value": {"Ref": "Archive"}}},
}


def test_nothing_is_different_but_what_the_emulator_cannot_run() -> None:
    expected = deepcopy(STACK)
    del expected["Resources"]["Calculated"]
    expected["Resources"]["Archive"]["Properties"]["Runtime"] = "provided.al2023"
    expected["Resources"]["Events"]["Properties"]["Qualifier"] = "$LATEST"
    assert runnable(STACK) == expected


def test_where_nothing_can_be_mounted_the_volume_is_the_directory_itself() -> None:
    expected = deepcopy(runnable(STACK))
    variables = expected["Resources"]["Archive"]["Properties"]["Environment"]["Variables"]
    variables["TALLYSTICK_ARCHIVE_ROOT"] = "/home/somebody/volume"
    assert runnable(STACK, "/home/somebody/volume") == expected


def test_the_template_itself_is_not_changed() -> None:
    before = deepcopy(STACK)
    runnable(STACK, "/home/somebody/volume")
    assert before == STACK


def test_mounts_are_where_the_functions_say() -> None:
    assert mount_paths(STACK) == {"/mnt/archive"}
