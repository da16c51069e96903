"""A clock that is an hour off, on this node alone: the real command under a shifted clock."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.doctor.ward import Ward


def doctor(ward: Ward, *before: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [*before, "tallystick", "doctor", "--json"],
        # The deadline of the examination is counted on a clock that nobody shifts.
        env=ward.environment() | {"FAKETIME_DONT_FAKE_MONOTONIC": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


@pytest.mark.system
@pytest.mark.parametrize(
    ("shift", "cause"), [("+1h", "node-ahead"), ("-1h", "node-behind")], ids=["ahead", "behind"]
)
def test_a_clock_an_hour_off_is_named_and_its_command_is_there(
    ward: Ward, shift: str, cause: str
) -> None:
    code, found = doctor(ward, "faketime", "-f", shift)
    assert code == 1
    (finding,) = found["findings"]
    assert (finding["code"], finding["severity"]) == ("CLOCK_SKEW", "error")
    assert finding["params"]["cause"] == cause
    assert 3590 < finding["params"]["seconds"] < 3610
    # The one command that a test does not run: it would set this machine's clock.
    assert finding["command"] == "timedatectl set-ntp true"
    code, found = doctor(ward)
    assert (code, found["findings"]) == (0, [])
