"""Words for everything that can go wrong, and never a template that nobody fills."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from handlers.cli import app
from shared.archive.examine import Problem
from shared.archive.source import GONE, MEANING, SAID
from shared.chain.verdict import Reason, Verdict
from shared.errors import Code, Missing
from shared.messages import words
from shared.messages.catalogue import entries, entry
from shared.messages.template import UNKNOWN, fill, names
from shared.plans.outlook import Standing
from shared.volume.reconcile import Sighting

SHARED = Path(__file__).parents[2] / "shared"
RAISED = frozenset(
    {"Refused", "Passing", "Waits", "TooMuch", "Verdict", "Missing", "Busy", "Stale", "Uncertain"}
)
FAMILIES = (Code, Problem, Sighting, Standing, Reason, Verdict)
CODES = [str(code) for family in FAMILIES for code in family]
# Each of these is told in a context that names the file first.
NEXT_COMES_FROM_THE_CODE = frozenset(map(str, Reason)) | {"SOUND", "UNFINISHED"}
NOTHING_TO_DO = frozenset({"LEDGER_CORRECTED", "LEFTOVER_RESERVATION"})


def modules() -> Iterator[ast.Module]:
    for path in sorted(SHARED.rglob("*.py")):
        yield ast.parse(path.read_text("utf-8"))


def calls(classes: frozenset[str], family: str) -> Iterator[tuple[str, dict[str, ast.expr], bool]]:
    """Yield code, keywords and whether there may be more of them, for each place that makes one."""
    for module in modules():
        for node in ast.walk(module):
            if (
                not isinstance(node, ast.Call)
                or not isinstance(node.func, ast.Name)
                or not node.args
            ):
                continue
            first = node.args[0]
            if (
                node.func.id in classes
                and isinstance(first, ast.Attribute)
                and isinstance(first.value, ast.Name)
                and first.value.id == family
            ):
                keywords = {each.arg: each.value for each in node.keywords if each.arg}
                yield first.attr, keywords, len(keywords) < len(node.keywords)


def causes() -> set[tuple[str, str]]:
    """Return every constant cause, with the code it refines."""
    found = set()
    for code, keywords, _ in calls(RAISED, "Code"):
        cause = keywords.get("cause")
        if isinstance(cause, ast.Constant):
            found.add((code, str(cause.value)))
    for kind, why in [*MEANING.values(), *(told[1:] for told in SAID)]:
        assert kind is not Missing
        found.add(("EXPORT_FAILED", why))
    found |= {("EXPORT_FAILED", "refused-by-server"), ("CREDENTIAL_MISSING", "refused")}
    found |= {("SCHEMA_CHANGED", cause) for cause in GONE}
    found |= {("STORAGE_LIMIT", cause) for cause in ("job-budget", "volume-budget")}
    found |= {
        ("STORAGE_UNAVAILABLE", cause)
        for cause in ("not-there", "symbolic-link", "not-a-directory")
    }
    return found


def test_the_search_for_causes_finds_them() -> None:
    found = causes()
    assert {("STORAGE_UNAVAILABLE", "copied"), ("FILE_CHECK_FAILED", "read-back")} <= found
    assert len(found) > 30


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_words(code: str) -> None:
    found = entry("en", code)
    assert found is not None
    assert found.happened
    assert (
        found.next_step
        or code in NEXT_COMES_FROM_THE_CODE
        or code in NOTHING_TO_DO
        or code == "FILE_MISSING"
    )


@pytest.mark.parametrize(("code", "cause"), sorted(causes()))
def test_every_cause_has_words_of_its_own(code: str, cause: str) -> None:
    assert entry("en", f"{code}/{cause}") or entry("en", cause)
    assert words(code, {"cause": cause}).happened != words(code, {}).happened
    assert words(code, {"cause": cause}).next_step


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("settings.py", "SETTINGS_INVALID"),
        ("archive/kinds.py", "KINDS_INVALID"),
        ("archive/retention.py", "KINDS_INVALID"),
    ],
)
def test_every_problem_of_settings_and_kinds_has_words(module: str, code: str) -> None:
    text = (SHARED / module).read_text("utf-8")
    told = r'raise ValueError\("(\w+)"\)|"problem": "(\w+)"|"([a-z]+(?:_[a-z]+)+)"(?:\),|,\n)'
    problems = re.findall(told, text)
    assert len(problems) > 3
    missing = [
        name for pair in problems for name in pair if name and not entry("en", f"{code}/{name}")
    ]
    assert missing == []


def test_no_template_needs_a_parameter_that_its_code_does_not_bring() -> None:
    wrong = []
    made = [*calls(RAISED, "Code"), *calls(frozenset({"Broken"}), "Reason")]
    for code, keywords, open_ended in made:
        cause = keywords.get("cause")
        if open_ended or (cause is not None and not isinstance(cause, ast.Constant)):
            continue
        refined = f"{code}/{cause.value!s}" if isinstance(cause, ast.Constant) else code
        found = entry("en", refined) or entry("en", code)
        assert found
        for template in (found.happened, found.next_step):
            needed, _ = names(template)
            wrong += [(refined, name) for name in needed - keywords.keys() - {"file"}]
    assert sorted(set(wrong)) == []


@pytest.mark.parametrize(
    "files",
    [
        ("archive/examine.py", "archive/partitions.py", "archive/staying.py", "archive/survey.py"),
        ("volume/reconcile.py",),
        ("archive/survey.py",),
    ],
)
def test_findings_are_told_with_names_they_have(files: tuple[str, ...]) -> None:
    tree = ast.parse("\n".join((SHARED / file).read_text("utf-8") for file in files))
    given = {
        str(key.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {*Problem, *Sighting}
    }
    assert used
    for code in used:
        found = entry("en", code)
        assert found
        needed, optional = names(found.happened)
        assert needed | optional <= given | {"detail", "file"}, code


@pytest.mark.parametrize("key", sorted(entries("en")))
def test_without_parameters_a_text_still_reads(key: str) -> None:
    found = entries("en")[key]
    for template in (found.happened, found.next_step):
        text = fill(template, {})
        # What is left of brackets is text: an extra, or a table or a list of a kinds file.
        left = re.sub(r"tallystick\[[a-z]+\]|\[kinds\.NAME\]|key = \[[^\]]*\]", "", text)
        assert not re.search(r"[\[\]{}|]", left.replace(UNKNOWN, ""))
        assert "  " not in text


def _command(path: list[str]) -> Any:  # noqa: ANN401 - Typer's own command class has moved
    command: Any = typer.main.get_command(app)
    for word in path:
        command = command.commands[word]
        if not hasattr(command, "commands"):
            break
    return command


@pytest.mark.parametrize("key", sorted(entries("en")))
def test_every_command_a_text_names_is_there(key: str) -> None:
    found = entries("en")[key]
    commands = re.findall(r"`tallystick ([^`]*)`", found.happened + found.next_step)
    commands += re.findall(r"tallystick ((?:[^&']|'[^']*')*)", found.command)
    for quoted in commands:
        text = fill(quoted, {})
        command = _command(text.split())
        options = {
            option for each in command.params for option in (*each.opts, *each.secondary_opts)
        }
        assert set(re.findall(r"--[a-z0-9-]+", text)) <= options, text


def test_a_part_whose_parameter_is_missing_is_left_out() -> None:
    assert fill("Gone[: {file}][ in {place}].", {"file": "a"}) == "Gone: a."
    assert fill("retry {job|JOB}", {}) == "retry JOB"
    assert fill("{what} is gone", {}) == "(unknown) is gone"


def test_brackets_that_belong_to_the_text_stay() -> None:
    assert (
        fill("pip install 'tallystick[query]'[ in {place}]", {})
        == "pip install 'tallystick[query]'"
    )
    assert fill('key = ["…"]', {}) == 'key = ["…"]'
    doubled = 'key = [["{column}"]][, of {table}]'
    assert fill(doubled, {"column": "id"}) == 'key = ["id"]'
    assert fill(doubled, {"column": "]]", "table": "t"}) == 'key = ["]]"], of t'
    assert fill("{name}[[]]", {"name": "a[b]"}) == "a[b][]"
    assert names(doubled) == (frozenset({"column"}), frozenset({"table"}))


@pytest.mark.parametrize("key", sorted(entries("en")))
def test_no_text_loses_brackets_around_something_that_names_no_parameter(key: str) -> None:
    found = entries("en")[key]
    for template in (found.happened, found.next_step):
        for part in re.findall(r"\[[^\[\]{}]+\]", template):
            assert part in fill(template, {})


def test_values_are_told_as_people_read_them() -> None:
    assert fill("{size:bytes}", {"size": 3 * 1024**3}) == "3.0 GiB"
    assert fill("{time:seconds}", {"time": 5.0}) == "5 s"
    assert fill("{names}", {"names": ["a", "b"]}) == "a, b"


def test_a_value_cannot_move_the_cursor_or_fill_the_screen() -> None:
    text = fill("{value}", {"value": "a\x1b[31m\nb" + "c" * 5000})
    assert text.isprintable()
    assert len(text) <= 300


def test_a_cause_that_is_a_code_of_its_own_is_told_with_it() -> None:
    told = words("FILE_CHECK_FAILED", {"file": "000002.sql.zst", "cause": "FRAME_TRUNCATED"})
    assert "000002.sql.zst" in told.happened
    assert "cut off" in told.happened
    assert "tallystick archive verify JOB" in told.next_step


def test_every_problem_is_told_on_a_line_of_its_own() -> None:
    problems = [{"name": "TALLYSTICK_X", "problem": "unknown"} for _ in range(23)]
    lines = words("SETTINGS_INVALID", {"problems": problems}).happened.splitlines()
    assert lines[1].strip() == "TALLYSTICK_X is no setting (misspelt?)"
    assert lines[-1].strip() == "and 3 more"


def test_a_language_without_a_catalogue_is_an_error() -> None:
    with pytest.raises(LookupError):
        words("STORAGE_BUSY", {}, "xx")


@pytest.mark.parametrize("code", ["SCHEMA_CHANGED", "SOURCE_FAILED"])
def test_a_column_that_was_renamed_is_told_as_gone_and_a_new_one_as_not_there_before(
    code: str,
) -> None:
    where = {"cause": "columns", "table": "public.note", "column": "said"}
    gone = words(code, where | {"before": "text null", "now": None}).happened
    assert "column said; it was text null; it is now gone." in gone
    new = words(code, where | {"before": None, "now": "text null"}).happened
    assert "it was not there; it is now text null." in new
