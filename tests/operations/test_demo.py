"""The demo, as a newcomer starts it: a real process, its own Postgres, a tick killed for real."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from shared.db import embedded

YOURS = Path(__file__).parents[2] / "handlers" / "demo" / "yours.sh"
COMMAND = [sys.executable, "-m", "handlers.cli"]
# Half a minute on a machine that does nothing else.
PATIENCE_SECONDS = 400

pytestmark = pytest.mark.timeout(PATIENCE_SECONDS + 20)


@pytest.fixture(scope="module")
def demo(
    tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> subprocess.CompletedProcess[str]:
    """The demo, played on a terminal that knows nothing but text: once, however many workers ask."""
    place = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        place = place.parent
    played = place / "demo.json"
    with (place / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not played.exists():
            done = play(place / "demo")
            played.write_text(json.dumps([done.returncode, done.stdout, done.stderr]), "utf-8")
    return subprocess.CompletedProcess("demo", *json.loads(played.read_text("utf-8")))


def play(place: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TERM": "dumb", "TALLYSTICK_HOME": str(place / "home")}
    options = ["--home", str(place / "home"), "--pictures", str(place / "pictures"), "--json"]
    return subprocess.run(
        [*COMMAND, "demo", *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


@pytest.fixture(scope="module")
def told(demo: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert demo.returncode == 0, demo.stderr
    document: dict[str, Any] = json.loads(demo.stdout)
    return document


def test_the_killed_tick_is_taken_over_and_leaves_nothing(
    told: dict[str, Any], demo: subprocess.CompletedProcess[str]
) -> None:
    assert "$ kill -9 " in demo.stderr
    assert "  taken over  " in demo.stderr
    assert "job-reclaimed-after-restart" in demo.stderr
    assert "Left in .tmp: 0 files." in demo.stderr
    assert not list((Path(told["volume"]) / ".tmp").iterdir())


def test_the_flipped_bit_is_caught_where_it_is(
    told: dict[str, Any], demo: subprocess.CompletedProcess[str]
) -> None:
    assert f"Broken at {told['flipped_and_caught']}." in demo.stderr


def test_what_is_restored_is_what_the_shop_has(told: dict[str, Any]) -> None:
    tables = [row["table"] for row in told["restored"]]
    assert tables == ["order", "order_line", "payment", "ticket", "comment"]
    for row in told["restored"]:
        assert row["rows"] > 0
        assert row["restored"] == row["shop"]


def test_a_dumb_terminal_is_shown_plain_text(demo: subprocess.CompletedProcess[str]) -> None:
    assert "\x1b" not in demo.stderr
    assert "$ tallystick archive find orders " in demo.stderr


def test_the_pictures_are_whole_and_ask_no_server_for_anything(told: dict[str, Any]) -> None:
    pictures = sorted((Path(told["home"]).parent / "pictures").iterdir())
    names = [f"{act}-{theme}.svg" for act in ("killed", "restored") for theme in ("dark", "light")]
    assert [picture.name for picture in pictures] == names
    for picture in pictures:
        text = picture.read_text("utf-8")
        assert ET.fromstring(text).tag.endswith("svg")  # noqa: S314 - our own
        assert "url(" not in text.replace("url(#", "")


def test_the_commands_it_ends_with_work_on_a_database_of_ones_own(
    told: dict[str, Any],
    demo: subprocess.CompletedProcess[str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    lines = YOURS.read_text("utf-8")
    assert demo.stderr.rstrip().endswith("\n".join(f"$ {line}" for line in lines.splitlines()))
    home = Path(told["home"])
    request.addfinalizer(lambda: embedded.stop(home))
    shop = embedded.start(home).replace("/postgres?", "/demo_shop?")
    mine = (
        lines.replace("postgresql://reader@db.example/shop", f"'{shop}'")
        .replace("invoice", "ticket")
        .replace("4711", "T-00011")
    )
    script = f'tallystick() {{ {sys.executable} -m handlers.cli "$@"; }}\n{mine}'
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Where is my parcel? (11)" in done.stdout
