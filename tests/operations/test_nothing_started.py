"""A command that only looks starts no server of ours, and asks no database that it does not need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.scenario import Shell
from tests.kinds.drafts import execute

NOTE = "CREATE TABLE note (id integer PRIMARY KEY, at timestamptz NOT NULL)"
INDEX = "CREATE INDEX ON note (at, id)"
KIND = '[kinds.note]\nroot = "public.note"\ntime = "at"\n'


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Home of a deployment in which nothing is configured and no database was ever made."""
    home = tmp_path / "home"
    monkeypatch.setenv("TALLYSTICK_HOME", str(home))
    return home


@pytest.mark.parametrize(
    "command",
    [
        "kinds list",
        "kinds check",
        "kinds check events",
        "kinds draft public.note",
        "preview public.note",
        "preview events",
        "archive export public.note --directory {home}-out --until 2020-01-01",
        "archive verify --all",
        "archive tails",
        "archive find note 1",
        "archive query note x",
        "jobs list",
        "policy list",
        "plan list",
        "namespaces list",
        "volume show",
        "apply --check",
        "migrate --check",
        "doctor",
        "settings",
        "db status",
        "explain SCHEMA_MISSING",
    ],
)
def test_no_server_is_started_by_a_command_that_only_looks(
    nobody: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answered = Shell(capsys)(*command.format(home=nobody).split())
    assert "Started" not in answered.err
    assert not (nobody / "postgres").exists()
    # Whatever it could not do was said as such.
    assert "INTERNAL_ERROR" not in answered.err + answered.out


def test_a_check_of_ones_own_kinds_needs_the_source_alone(
    nobody: Path,
    empty_database: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    execute(empty_database, NOTE, INDEX)
    nobody.mkdir()
    (nobody / "kinds.toml").write_text(KIND)
    monkeypatch.setenv("TALLYSTICK_KINDS_FILE", str(nobody / "kinds.toml"))
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", empty_database)
    answered = Shell(capsys)("kinds", "check")
    assert (answered.code, answered.out) == (0, "note: good\n")
    # Nor is a control database asked that is named and does not answer.
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", "postgresql:///none?host=/nowhere")
    answered = Shell(capsys)("kinds", "check", "--json")
    assert [each["kind"] for each in json.loads(answered.out)["items"]] == ["note"]
    listed = json.loads(Shell(capsys)("kinds", "list", "--json").out)["items"]
    assert {each["there"] for each in listed if each["source"] == "control"} == {None}
    assert [each["there"] for each in listed if each["kind"] == "note"] == [True]


def test_built_in_kinds_are_checked_where_there_are_no_others_and_only_those_that_are_there(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", database)
    answered = Shell(capsys)("kinds", "check")
    assert answered.code == 0
    assert "events: good" in answered.out
    assert "not there" not in answered.out


def test_before_the_schema_is_made_no_kind_of_ours_is_listed_as_missing(
    nobody: Path,
    empty_database: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    execute(empty_database, NOTE, INDEX)
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", empty_database)
    answered = Shell(capsys)("kinds", "check")
    assert (answered.code, answered.out) == (2, "")
    assert "tallystick migrate" in answered.err
    nobody.mkdir()
    (nobody / "kinds.toml").write_text(KIND)
    monkeypatch.setenv("TALLYSTICK_KINDS_FILE", str(nobody / "kinds.toml"))
    answered = Shell(capsys)("kinds", "check")
    assert (answered.code, answered.out) == (0, "note: good\n")
