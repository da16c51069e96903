"""The whole stack in an emulator of AWS: what its schedule moves by itself, and what operators do to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulators.stack import Account

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(900)]


def test_a_tick_of_the_stack_moves_a_batch_to_the_mounted_volume(
    account: Account, volume: Path
) -> None:
    assert account.command("invoke", "migrate", "--json").json()["payload"]["applied"]
    kinds = account.settings["TALLYSTICK_KINDS_FILE"]
    assert account.command("apply", kinds, "--reason", "one year online").code == 0
    tick = '{"action": "tick", "operation": "archive"}'
    answered = account.command("invoke", "operate", "--event", tick, "--json")
    assert answered.json()["payload"]["outcome"] == "progressed", answered
    assert answered.json()["payload"]["roots"] == 1000
    assert len(list(volume.glob("*/000001.sql.zst"))) == 1
