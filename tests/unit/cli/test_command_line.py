"""The form of an answer: one document on standard output, errors on the other, an exit code."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from handlers.cli import app, run

ROOT = Path(__file__).parents[3]


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(commands(typer.main.get_command(app)))
CHANGES = [
    ("volume", "adopt"),
    ("policy", "set"),
    ("plan", "set"),
    ("plan", "sweep"),
    ("namespaces", "create"),
    ("namespaces", "enable"),
    ("namespaces", "disable"),
    ("jobs", "retry"),
    ("jobs", "abandon"),
    ("jobs", "pause"),
    ("jobs", "resume"),
]


def options(path: tuple[str, ...]) -> dict[str, Any]:
    return {option: each for each in ALL[path].params for option in each.opts}


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_json(path: tuple[str, ...]) -> None:
    assert "--json" in options(path)


@pytest.mark.parametrize("path", CHANGES, ids=" ".join)
def test_every_change_asks_for_a_reason_and_takes_an_actor(path: tuple[str, ...]) -> None:
    found = options(path)
    assert found["--reason"].required
    assert "--actor" in found
    assert "--revision" in found or path == ("namespaces", "create")


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_is_in_the_reference(path: tuple[str, ...]) -> None:
    text = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
    section = text.partition(f"### `tallystick {' '.join(path)}")[2].partition("\n### ")[0]
    assert section, f"{' '.join(path)} has no section"
    missing = [
        option
        for option in options(path)
        if option.startswith("--") and option != "--json" and f"`{option}" not in section
    ]
    assert missing == []


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_says_in_one_short_sentence_what_it_does(path: tuple[str, ...]) -> None:
    first = (ALL[path].help or "").partition("\n")[0]
    assert first.endswith(".")
    assert len(first) <= 60


def test_a_wrong_command_line_is_told_as_json_when_json_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["jobs", "shw", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["error"]["code"] == "USAGE"


def test_a_wrong_value_names_the_option_the_value_and_the_form(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["jobs", "retry", "01234567", "--reason", "x", "--max-bytes", "lots"]
    assert run(arguments) == 2
    text = capsys.readouterr().err
    assert "--max-bytes" in text
    assert "'lots'" in text
    assert "256MiB" in text


def test_settings_that_are_wrong_are_told_at_once_and_never_with_their_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TALLYSTICK_LEASE_SECONDS", "topsecret")
    monkeypatch.setenv("TALLYSTICK_DATABSE_URL", "topsecret")
    assert run(["settings"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "TALLYSTICK_LEASE_SECONDS" in captured.err
    assert "TALLYSTICK_DATABSE_URL is no setting" in captured.err
    assert "topsecret" not in captured.err


def test_secrets_are_masked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", "postgresql://u:topsecret@nowhere/db")
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", "postgresql://u:topsecret@nowhere/db")
    for arguments in (["settings"], ["settings", "--json"]):
        assert run(arguments) == 0
        captured = capsys.readouterr()
        assert "topsecret" not in captured.out + captured.err


def test_a_fault_of_ours_is_an_error_and_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_settings: object) -> dict[str, str]:
        raise KeyError(_settings, "a row value")

    monkeypatch.setattr("shared.settings.origins", fails)
    assert run(["settings", "--json"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    told = json.loads(captured.err)["error"]
    assert told["code"] == "INTERNAL_ERROR"
    assert "row value" not in captured.err


def test_handlers_of_the_platform_stay_thin() -> None:
    for name in ("archive", "scan", "operate", "migrate"):
        text = (ROOT / "handlers" / f"{name}.py").read_text("utf-8")
        functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
        assert [function.name for function in functions] == ["handler"]
        first = functions[0]
        assert (first.end_lineno or 0) - first.lineno < 40
