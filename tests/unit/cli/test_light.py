"""What a command loads: help is light, and a directory is verified without a database at hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROBE = """
import json, sys
from handlers.cli import run
code = run(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


def loaded(*arguments: str) -> tuple[int, set[str], str]:
    """Run a command in a process of its own; return exit code, modules loaded and what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    return code, set(modules), done.stdout


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("jobs",)])
def test_help_loads_no_database_and_no_cloud(arguments: tuple[str, ...]) -> None:
    _, modules, _ = loaded(*arguments)
    assert not modules & {"psycopg", "boto3", "shared.settings", "shared.db", "rich"}


@pytest.mark.parametrize("arguments", [("help",), ("help", "code_unknown")])
def test_pages_load_no_database_settings_or_cloud(arguments: tuple[str, ...]) -> None:
    code, modules, text = loaded(*arguments)
    assert code == 0
    assert "CODE_UNKNOWN" in text
    assert not modules & {"psycopg", "boto3", "shared.settings", "shared.db"}


def test_the_first_help_does_not_even_load_pydantic() -> None:
    code, modules, text = loaded("--help")
    assert code == 0
    assert "tick" in text
    assert "pydantic" not in modules


def test_a_directory_is_verified_without_database_settings_or_cloud(tmp_path: Path) -> None:
    code, modules, text = loaded("archive", "verify", str(tmp_path), "--json")
    assert code == 1
    assert json.loads(text)["params"]["cause"] == "MANIFEST_MISSING"
    assert not modules & {"psycopg", "boto3", "shared.settings", "shared.db"}


@pytest.mark.parametrize(
    "arguments",
    [("find", "{}", "1"), ("find", "{}", "1", "--no-index"), ("cat", "{}", "--table", "t")],
)
def test_a_directory_is_read_without_database_settings_or_cloud(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "manifest.json").write_text("{}\n")
    code, modules, _ = loaded("archive", *(each.format(tmp_path) for each in arguments))
    assert code == 1
    assert not modules & {"psycopg", "boto3", "shared.settings", "shared.db", "duckdb"}
