"""The answers of every command are frozen: shapes for machines, lists for people at 80 columns.

With UPDATE_GOLDEN=1 the frozen answers are written anew; read the difference before keeping it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.golden.scenario import Shell, deployed

FROZEN = Path(__file__).parent / "cli"
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))
SIGNED = ("--actor", "tester", "--reason", "a test needs it")
DEFAULT = ("--namespace", "default")

# In this order. What only looks is asked twice, for people and for machines; a change happens once.
SETUP: tuple[tuple[str, ...], ...] = (
    ("migrate", "--check"),
    ("migrate",),
    ("namespaces", "list"),
    ("kinds", "list"),
    ("kinds", "check", "orders"),
    ("kinds", "check", "orders", "nothing"),
    ("policy", "list"),
    ("plan", "list"),
    ("jobs", "list"),
    ("archive", "tails"),
    ("archive", "verify", "--all"),
    ("volume", "show"),
    ("plan", "set", "orders", "--enable", *SIGNED),
    ("policy", "set", "orders", "--after", "100d", *SIGNED),
    ("policy", "set", "orders", "--after", "365d", *SIGNED, "--json"),
    ("plan", "set", "orders", "--batch-size", "20", *SIGNED),
    ("plan", "set", "orders", "--max-bytes", "10MiB", "--enable", *SIGNED, "--json"),
    ("plan", "set", "--operation", "scan", "--every", "2h", "--enable", *SIGNED),
    ("plan", "set", "--operation", "prune", "--enable", *SIGNED),
    ("policy", "set", "flows", "--after", "30d", *SIGNED),
    ("policy", "set", "unheard", "--after", "30d", *SIGNED, "--json"),
    ("namespaces", "create", "second", *SIGNED, "--json"),
    ("namespaces", "create", "second", *SIGNED),
    ("policy", "set", "orders", "--after", "30d", "--namespace", "second", *SIGNED),
    ("policy", "set", "orders", "--after", "30d", *SIGNED),
    ("namespaces", "disable", "second", *SIGNED),
    ("namespaces", "enable", "second", *SIGNED, "--json"),
    ("namespaces", "disable", "second", "--revision", "1", *SIGNED),
    ("namespaces", "disable", "second", "--revision", "3", "--reason", " "),
    ("policy", "list"),
    ("plan", "list"),
    ("tick", "archive"),
    ("jobs", "list"),
)
BY_JOB: tuple[tuple[str, ...], ...] = (
    ("jobs", "show", "JOB"),
    ("jobs", "pause", "JOB", *SIGNED, "--json"),
    ("jobs", "pause", "JOB", *SIGNED, "--json"),
    ("tick", "archive"),
    ("jobs", "resume", "JOB", *SIGNED),
    ("jobs", "retry", "JOB", "--max-bytes", "20MiB", *SIGNED),
    ("tick", "archive", "--until-idle"),
    ("jobs", "show", "JOB", "--no-source"),
    ("archive", "verify", "JOB"),
    ("archive", "verify", "DIRECTORY"),
    ("archive", "verify", "DIRECTORY", "--expected-sha256", "0" * 64),
    ("archive", "verify", "--all"),
    ("archive", "tails"),
    ("tick", "scan"),
    ("tick", "prune"),
    ("tick", "nothing"),
    ("tick",),
    ("jobs", "list"),
    ("jobs", "list", "--limit", "1"),
    ("jobs", "show", "00000000"),
    ("recovery", "list"),
    ("recovery", "import"),
    ("volume", "adopt", *SIGNED),
    ("volume", "adopt", "--revision", "7", *SIGNED),
    ("volume", "adopt", *SIGNED, "--json"),
    ("volume", "show"),
    ("plan", "list"),
    ("apply", "--check", *DEFAULT),
    ("apply", *DEFAULT, *SIGNED),
    ("plan", "set", "orders", "--every", "2h", *DEFAULT, "--actor", "ann", "--reason", "late"),
    ("plan", "list"),
    ("apply", "--check", *DEFAULT),
    ("apply", *DEFAULT, *SIGNED, "--json"),
    ("apply", *DEFAULT),
    ("settings",),
)


def test_every_answer_is_as_frozen(
    database: str,
    volume_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shell = Shell(capsys)
    deployed(shell, database, volume_root, monkeypatch.setenv)
    answers = []
    for command in SETUP:
        answers += _answers(shell, command)
    job = str(shell("jobs", "list", "--json").json()["items"][0]["id"])  # type: ignore[index]
    directory = str(next(volume_root.glob(f"*-{job}")))
    shell.masked[job] = "<job>"
    for command in BY_JOB:
        real = [{"JOB": job, "DIRECTORY": directory}.get(word, word) for word in command]
        answers += _answers(shell, tuple(real))
    found = shell.mask("\n".join(answers))
    frozen = FROZEN / "answers.txt"
    if UPDATE:
        frozen.write_text(found)
    assert found == frozen.read_text()


def _answers(shell: Shell, command: tuple[str, ...]) -> list[str]:
    """Run a command for people and, where it only looks, for machines too."""
    answers = []
    once = "--json" in command or "--reason" in command
    for arguments in [command] if once else [command, (*command, "--json")]:
        answered = shell(*arguments)
        answers += [
            f"$ tallystick {' '.join(arguments)}",
            answered.out.rstrip("\n"),
            *([f"(standard error) {answered.err}".rstrip("\n")] if answered.err else []),
            f"(exit code {answered.code})\n",
        ]
    return answers
