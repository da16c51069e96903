"""Deployments that tests of the command line and of handlers begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.scenario import Shell, deployed

SIGNED = ("--actor", "tester", "--reason", "a test needs it")


@pytest.fixture
def deployment(
    database: str,
    volume_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    """A shell in whose settings a database, a volume and one kind are deployed; nothing is planned."""
    made = Shell(capsys)
    deployed(made, database, volume_root, monkeypatch.setenv)
    return made


@pytest.fixture
def shell(deployment: Shell) -> Shell:
    """A deployment with one kind planned, 45 old orders in batches of 20, due now."""
    for command in (
        ("policy", "set", "orders", "--after", "365d"),
        ("plan", "set", "orders", "--batch-size", "20", "--enable"),
    ):
        assert deployment(*command, *SIGNED).code == 0
    return deployment
