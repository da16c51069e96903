"""Boots a guest with an NFSv4.1 server and two clients, and runs the tests below ``inside`` in it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.nfs.guest import Guest

pytestmark = pytest.mark.guest

LIFE_SECONDS = 900.0
INSIDE = Path(__file__).parent / "inside"


@pytest.mark.timeout(0)
def test_two_clients_with_the_mount_options_of_efs_pass_every_test(tmp_path: Path) -> None:
    guest = Guest("clients", tmp_path)
    try:
        guest.wait(LIFE_SECONDS)
    finally:
        guest.cut()
    results = tmp_path / "nfs.xml"
    assert results.exists(), guest.said()
    suite = ET.parse(results).getroot()[0]  # noqa: S314 - written by our own guest
    counts = {name: int(suite.get(name, "0")) for name in ("errors", "failures", "skipped")}
    assert counts == {"errors": 0, "failures": 0, "skipped": 0}, guest.said()
    written = sum(file.read_text().count("\ndef test_") for file in INSIDE.glob("test_*.py"))
    assert int(suite.get("tests", "0")) == written > 0
