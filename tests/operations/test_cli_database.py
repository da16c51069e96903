"""The embedded database, as the command line starts and stops it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.scenario import Shell


def test_the_embedded_database_starts_by_itself_says_so_once_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))
    shell = Shell(capsys)
    assert shell("db", "url").code == 1
    try:
        first = shell("migrate", "--json")
        assert first.code == 0
        assert json.loads(first.out)["applied"]
        assert "fsync on" in first.err
        assert "tallystick db stop" in first.err
        second = shell("jobs", "list", "--json")
        assert (second.code, second.err) == (0, "")
        url = shell("db", "url").out.strip()
        assert json.loads(shell("db", "start", "--json").out)["url"] == url
    finally:
        stopped = shell("db", "stop", "--json")
    assert json.loads(stopped.out) == {"stopped": True}
    assert json.loads(shell("db", "stop", "--json").out) == {"stopped": False}
    assert shell("db", "url").code == 1
