"""The guard around LocalStack's core: it reaches this machine, and whatever else it tries is known."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from localstack import core
from localstack.server import ADDRESS

TRY = """
import runpy, socket, sys

runpy.run_path(sys.argv[1])["guard"](__import__("pathlib").Path(sys.argv[2]))
address = sys.argv[3], int(sys.argv[4])
with socket.socket() as used:
    used.settimeout(1)
    {attempt}
"""


def tried(place: Path, attempt: str, host: str, port: int) -> tuple[bool, list[str]]:
    """Return whether a guarded process came through, and what was noted."""
    noted = place / "strayed"
    done = subprocess.run(
        [sys.executable, "-c", TRY.format(attempt=attempt), core.LAUNCHER, noted, host, str(port)],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0, noted.read_text().split()


def test_this_machine_is_reached(tmp_path: Path) -> None:
    with socket.create_server((ADDRESS, 0)) as server:
        port = server.getsockname()[1]
        assert tried(tmp_path, "used.connect(address)", ADDRESS, port) == (True, [])


@pytest.mark.parametrize(
    ("attempt", "event", "host"),
    [
        ("used.connect(address)", "socket.connect", "192.0.2.1"),
        ("socket.getaddrinfo(*address)", "socket.getaddrinfo", "telemetry.example"),
        ("socket.gethostbyname(address[0])", "socket.gethostbyname", "telemetry.example"),
        (
            "socket.socket(type=socket.SOCK_DGRAM).sendto(b'', address)",
            "socket.sendto",
            "192.0.2.1",
        ),
    ],
)
def test_what_is_elsewhere_is_refused_and_noted(
    tmp_path: Path, attempt: str, event: str, host: str
) -> None:
    assert tried(tmp_path, attempt, host, 443) == (False, [event, host])


@pytest.fixture
def straying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File that says where the emulator tried to go; in its place something else answers."""
    to = tmp_path / "to"
    launcher = tmp_path / "launcher.py"
    launcher.write_text(ANSWERING.format(to=to))
    monkeypatch.setattr(core, "PROGRAM", Path(sys.executable))
    monkeypatch.setattr(core, "LAUNCHER", launcher)
    monkeypatch.setattr(core, "SERVICES", {})
    return to


def test_a_command_that_went_well_fails_where_the_emulator_tried_to_leave(
    straying: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    straying.write_text("telemetry.example")
    assert core.main([sys.executable, "-c", ""]) == core.STRAYED
    assert "telemetry.example" in capsys.readouterr().out


def test_the_code_of_the_command_is_the_answer_and_it_is_told_where_the_emulator_is(
    straying: Path,
) -> None:
    straying.write_text("")
    ask = f"import os, sys; sys.exit(7 if os.environ['{core.VARIABLE}'].startswith('http') else 0)"
    assert core.main([sys.executable, "-c", ask]) == 7


ANSWERING = """
import os, shutil, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

shutil.copy("{to}", sys.argv[1])
host, _, port = os.environ["GATEWAY_LISTEN"].partition(":")
HTTPServer((host, int(port)), BaseHTTPRequestHandler).serve_forever()
"""
