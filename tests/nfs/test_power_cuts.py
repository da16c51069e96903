"""The power goes while ticks run, on a real ext4 with Postgres and the volume on it: nothing is lost."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.crash import record
from tests.nfs.guest import Guest

pytestmark = pytest.mark.guest

# Read before any test runs: a test sees none of the developer's own settings.
CUTS = int(os.environ.get("TALLYSTICK_TEST_CUTS", "3"))
SEED = 20261130
# The power goes at most this long after a tick has said what it did; some ticks take longer in the guest.
WINDOW_SECONDS = 2.0
TICKS = 10
# So many cuts hit one disk, one after the other; several disks at a time use more than one core.
SERIES = 10
LIFE_SECONDS = 300.0
DISK_BYTES = 1024**3


@pytest.mark.timeout(0)
@pytest.mark.parametrize("first", range(0, CUTS, SERIES))
def test_after_every_power_cut_on_ext4_the_judge_finds_no_fault(tmp_path: Path, first: int) -> None:
    disk, out = tmp_path / "disk", tmp_path / "out"
    out.mkdir()
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", disk], check=True)
    cuts = min(SERIES, CUTS - first)
    verdicts = list(cut_and_judged(disk, out, cuts, SEED + first))
    faults = [
        f"cut {first + number}: {fault}"
        for number, verdict in enumerate(verdicts, 1)
        for fault in verdict["faults"]
    ]
    amid = sum(not (out / f"idle-{number}").exists() for number in range(1, cuts + 1))
    record.keep(record.Line("cut", "ext4, amid a tick", "", amid, amid, faults))
    record.keep(record.Line("cut", "ext4, after the last", "", cuts - amid, cuts - amid, ()))
    assert len(verdicts) == cuts
    assert faults == []
    # Cuts that all came after the work would have shown nothing.
    assert amid > 0


def has_lines(file: Path, count: int) -> bool:
    return len(file.read_text().splitlines()) >= count


def cut_and_judged(disk: Path, out: Path, cuts: int, seed: int) -> Iterator[dict[str, Any]]:
    """Cut so often; each life of the guest but the first begins with the verdict on the one before."""
    chosen = random.Random(seed)
    for number in range(1, cuts + 2):
        guest = Guest("disk", out, disk)
        try:
            guest.until((out / f"ready-{number}").exists, LIFE_SECONDS)
            if number <= cuts:
                told, ticks = out / f"told-{number}", chosen.randrange(TICKS)
                guest.until(partial(has_lines, told, ticks), LIFE_SECONDS)
                time.sleep(chosen.uniform(0, WINDOW_SECONDS))
        finally:
            guest.cut()
        if number > 1:
            yield json.loads((out / f"verdict-{number - 1}").read_text())
