"""The manifest: one spelling, exactly its members, nothing that a batch could not follow."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from shared.chain.canonical import canonical_json
from shared.chain.manifest import (
    Manifest,
    Policy,
    Previous,
    Table,
    encode_manifest,
    parse_manifest,
)
from shared.chain.verdict import Broken, Reason
from tests.unit.chain.scribe import ATTEMPTS, MANIFEST, OTHER_JOB, TASKS, column

DELETE = object()


def broken_by(data: bytes) -> Broken:
    with pytest.raises(Broken) as caught:
        parse_manifest(data)
    return caught.value


def changed(path: list[str | int], value: object) -> bytes:
    """Encode the sample manifest with one place in it changed or deleted."""
    document: Any = json.loads(encode_manifest(MANIFEST))
    place = document
    for step in path[:-1]:
        place = place[step]
    if value is DELETE:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return canonical_json(document) + b"\n"


@pytest.mark.parametrize(
    "manifest",
    [
        MANIFEST,
        replace(MANIFEST, policy=None, previous=Previous(OTHER_JOB, "ab" * 32)),
        replace(MANIFEST, window=replace(MANIFEST.window, after=("2025-01-01", "\x01é\n"))),
        replace(MANIFEST, window=replace(MANIFEST.window, margin_seconds=86_400)),
        replace(MANIFEST, policy=Policy(0, 0), tables=(TASKS,)),
        replace(MANIFEST, definition={"deep": [{"er": None}], "zahl": 10**30}),
    ],
)
def test_a_manifest_survives_its_file(manifest: Manifest) -> None:
    data = encode_manifest(manifest)
    assert parse_manifest(data) == manifest
    assert encode_manifest(parse_manifest(data)) == data


def test_the_file_is_one_ascii_line() -> None:
    data = encode_manifest(replace(MANIFEST, kind="tâches"))
    assert data.endswith(b"}\n")
    assert data.count(b"\n") == 1
    assert data.isascii()


@pytest.mark.parametrize(
    ("schema", "name", "label"),
    [
        ("app", "tasks", "app.tasks"),
        ("app", "Tasks", 'app."Tasks"'),
        ("my app", "a.b", '"my app"."a.b"'),
        ("app", 'say "hi"', 'app."say ""hi"""'),
        ("app", "1st", 'app."1st"'),
        ("_x", "y$2", "_x.y$2"),
        ("app", "tâche", 'app."tâche"'),
        ("app", "tasks\u2028", 'app."tasks\u2028"'),
    ],
)
def test_a_label_is_quoted_only_where_it_must_be(schema: str, name: str, label: str) -> None:
    assert Table(schema, name, None, (), (), ()).label == label


def test_generated_columns_are_not_copied() -> None:
    assert TASKS.copied == ("id", "note", "done_at")


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (["job"], "0B2F1C9E-8A8B-4D6F-9C57-1F2E3D4C5B6A", "value"),
        (["job"], None, "type"),
        (["format"], True, "type"),
        (["format"], DELETE, "members"),
        (["extra"], 1, "members"),
        (["kind"], "", "value"),
        (["kind"], "a\nb", "value"),
        (["namespace", "id"], "x", "value"),
        (["namespace"], [], "type"),
        (["definition"], [], "type"),
        (["window"], None, "type"),
        (["window", "after"], ["2026-01-01"], "length"),
        (["window", "after"], ["2026-01-01", None], "type"),
        (["window", "after"], ["2026-01-01", "\0"], "value"),
        (["window", "cutoff"], 5, "type"),
        (["window", "margin_seconds"], True, "type"),
        (["window", "margin_seconds"], -1, "value"),
        (["window", "margin_seconds"], DELETE, "members"),
        (["policy", "revision"], True, "type"),
        (["policy", "after_days"], -1, "value"),
        (["batch_size"], 0, "value"),
        (["source", "encoding"], DELETE, "members"),
        (["tables"], [], "empty"),
        (["tables", 0, "parent"], 0, "root_with_parent"),
        (["tables", 0, "foreign_key"], ["id"], "root_with_parent"),
        (["tables", 1, "parent"], None, "value"),
        (["tables", 1, "parent"], 1, "value"),
        (["tables", 1, "foreign_key"], [], "length"),
        (["tables", 1, "references"], ["id", "note"], "length"),
        (["tables", 1, "foreign_key"], ["nope"], "unknown_column"),
        (["tables", 1, "references"], ["nope"], "unknown_column"),
        (["tables", 1, "name"], "a\rb", "value"),
        (["tables", 1, "columns", 1, "name"], "task_id", "duplicate"),
        (["tables", 0, "columns", 0, "identity"], "x", "value"),
        (["tables", 0, "columns", 0, "identity"], False, "value"),
        (["tables", 0, "columns", 0, "not_null"], 0, "type"),
        (["tables", 0, "columns", 0, "labels"], "x", "type"),
        (["tables", 0, "columns", 0, "type"], DELETE, "members"),
        (["key"], [], "value"),
        (["key"], ["id", "id"], "value"),
        (["key"], ["nope"], "unknown_column"),
        (["time"], "nope", "unknown_column"),
        (["previous"], {"job": OTHER_JOB, "tail": "AB" * 32}, "value"),
    ],
)
def test_a_manifest_of_another_shape_is_broken(
    path: list[str | int], value: object, problem: str
) -> None:
    broken = broken_by(changed(path, value))
    assert broken.reason is Reason.MANIFEST_INVALID
    assert broken.params["problem"] == problem


def test_a_table_named_twice_is_broken() -> None:
    twice = json.loads(encode_manifest(MANIFEST))["tables"]
    twice[1]["name"] = "tasks"
    assert broken_by(changed(["tables"], twice)).params["problem"] == "duplicate"


def test_a_format_of_the_future_has_its_own_reason() -> None:
    assert broken_by(changed(["format"], 2)).reason is Reason.FORMAT_UNKNOWN


def test_any_other_spelling_is_broken() -> None:
    data = encode_manifest(MANIFEST)
    assert broken_by(data[:-1]).params["problem"] == "newline"
    assert broken_by(data.replace(b",", b", ", 1)).params["problem"] == "not_canonical"
    assert broken_by(data + b"\n").params["problem"] == "not_canonical"
    assert broken_by(data.replace(b'"kind"', b'"\\u006bind"')).params["problem"] == "not_canonical"


@pytest.mark.parametrize(
    "manifest",
    [
        replace(MANIFEST, definition={"ratio": 0.5}),
        replace(MANIFEST, time="nope"),
        replace(MANIFEST, tables=(TASKS, replace(ATTEMPTS, columns=(column("x\n"),)))),
    ],
)
def test_a_manifest_that_no_reader_would_take_is_never_written(manifest: Manifest) -> None:
    with pytest.raises(ValueError, match="_INVALID"):
        encode_manifest(manifest)
