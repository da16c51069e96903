"""Rows on a terminal: what a value holds never commands it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.operations import stage as stages
from tests.operations.stage import execute
from tests.reading.scene import Scene


def seen(*arguments: str | Path) -> bytes:
    """Run a command with a terminal as its standard output, and return what the terminal gets."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "handlers.cli", *map(str, arguments)]
    with subprocess.Popen(command, stdout=theirs) as process:
        os.close(theirs)
        pieces = []
        try:
            while piece := os.read(ours, 65536):
                pieces.append(piece)
        except OSError:
            # Linux reports the end of a terminal as an error.
            pass
        os.close(ours)
    assert process.returncode == 0
    return b"".join(pieces)


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7fé"


@pytest.mark.parametrize(
    "words",
    [
        ("cat", "--table", "app.ticket", "--format", "csv"),
        ("cat", "--table", "app.ticket", "--format", "jsonl"),
        ("cat", "--table", "app.ticket", "--json"),
        ("query", "SELECT title FROM app.ticket", "--format", "csv"),
        ("query", "SELECT title FROM app.ticket", "--format", "jsonl"),
        ("find", "9", "900"),
    ],
    ids=" ".join,
)
def test_a_value_moves_no_cursor_and_changes_no_colour(shop: Scene, words: tuple[str, ...]) -> None:
    execute(
        shop.stage.source,
        "INSERT INTO app.ticket (shop, number, opened_at, title)"
        f" VALUES ('9', 900, '2021-03-01Z', E'{HOSTILE}')",
    )
    stages.plans_due(shop.stage)
    shop.stage.until_idle()
    shown = seen("archive", words[0], "tickets", *words[1:]).decode()
    assert "é" in shown
    assert "owned" in shown
    assert not set("\x1b\x07\x9b\x7f") & set(shown)


def test_what_is_not_a_terminal_gets_every_byte(shop: Scene) -> None:
    execute(
        shop.stage.source,
        f"UPDATE app.ticket SET title = E'{HOSTILE}'",
        "UPDATE app.ticket SET opened_at = opened_at + interval '1 year'",
    )
    stages.plans_due(shop.stage)
    shop.stage.until_idle()
    answered = shop("archive", "cat", "tickets", "--table", "app.ticket", "--columns", "title")
    assert HOSTILE.encode() in answered.raw
