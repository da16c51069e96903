"""The runbooks for AWS: no account is at hand, so their words are held against what those calls take."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import botocore.loaders
import botocore.model
import pytest
import typer
from botocore import xform_name
from typer.exceptions import TyperException

from handlers.asking import TICK, asked
from handlers.cli import app
from tests.deploy import template
from tests.deploy.image import ROOT
from tests.deploy.test_how_to import commands

PAGES = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
EVERY_PAGE = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Options of the command line itself, and commands that are no call of an API.
EVERYWHERE = {"query", "output", "cli-read-timeout", "cli-binary-format"}
OF_THE_CLI = {
    ("cloudformation", "package"): {
        *("template-file", "s3-bucket", "s3-prefix", "output-template-file"),
    },
    ("cloudformation", "deploy"): {
        *("stack-name", "template-file", "s3-bucket", "capabilities", "parameter-overrides"),
    },
    ("cloudformation", "wait"): {"stack-name"},
    ("logs", "tail"): {"since"},
}


def lines(text: str) -> Iterator[str]:
    """Return the lines of all shell blocks, those that are continued joined."""
    for block in re.findall(r"^ *```sh.*?\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        yield from (line.strip() for line in block.replace("\\\n", " ").splitlines())


def calls(page: Path) -> list[list[str]]:
    """Return the words of every call of the AWS command line."""
    inline = re.findall(r"`(aws [^`]+)`", page.read_text().replace("\\`", "'"))
    found = [*lines(page.read_text().replace("\\`", "'")), *inline]
    return [
        shlex.split(line)[1:] for each in found if (line := each[each.find("aws ") :]) if _aws(each)
    ]


def _aws(line: str) -> bool:
    return bool(re.match(r"(AWS_MAX_ATTEMPTS=1 )?aws [a-z]", line))


def options(words: list[str]) -> dict[str, str]:
    pairs = zip(words, [*words[1:], ""], strict=True)
    return {word[2:]: value for word, value in pairs if word.startswith("--")}


@cache
def service(name: str) -> botocore.model.ServiceModel:
    loaded = botocore.loaders.Loader().load_service_model(name, "service-2")
    return botocore.model.ServiceModel(loaded, name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_call_that_a_page_makes_is_one_with_these_options(page: Path) -> None:
    for words in calls(page):
        name, operation = words[:2]
        given = set(options(words)) - EVERYWHERE
        if (name, operation) in OF_THE_CLI:
            assert given <= OF_THE_CLI[name, operation], words
            continue
        known = {xform_name(each, "-"): each for each in service(name).operation_names}
        assert operation in known, words
        shape = service(name).operation_model(known[operation]).input_shape
        members = shape.members if shape else {}
        required = {xform_name(each, "-") for each in (shape.required_members if shape else [])}
        assert given <= {xform_name(each, "-") for each in members}, words
        assert required <= given, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_parameter_output_function_and_alarm_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    parameters = template.template()["Parameters"]
    for words in calls(page):
        if words[1] == "deploy":
            said = words[words.index("--parameter-overrides") + 1 :]
            named = {each.partition("=")[0] for each in said}
            assert named <= set(parameters), words
    assert set(re.findall(r"`([A-Z][A-Za-z]+)=[^`]*`", text)) <= set(parameters)
    functions = {each["FunctionName"]["Fn::Sub"] for each in template.functions().values()}
    for name in re.findall(r"--function-name tallystick-([a-z]+)", text):
        assert f"${{AWS::StackName}}-{name}" in functions


def given(page: Path) -> list[dict[str, str]]:
    """Return the parameters of each deployment on a page, and each that a sentence gives a value."""
    found = [
        words[words.index("--parameter-overrides") + 1 :]
        for words in calls(page)
        if words[1] == "deploy"
    ]
    found += [
        shlex.split(text) for text in re.findall(r"`([A-Z][A-Za-z]+=[^`]*)`", page.read_text())
    ]
    return [dict(each.split("=", 1) for each in pairs) for pairs in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_value_that_a_page_gives_a_parameter_is_one_that_it_takes(page: Path) -> None:
    parameters = template.template()["Parameters"]
    for values in given(page):
        for name, value in values.items():
            pattern, allowed = (
                parameters[name].get(f"Allowed{what}") for what in ("Pattern", "Values")
            )
            # What only the reader knows is left open.
            if "…" not in value:
                assert pattern is None or re.fullmatch(pattern, value), (name, value)
                assert allowed is None or value in allowed, (name, value)


def test_the_first_deployment_is_refused_by_no_rule() -> None:
    (page,) = [page for page in PAGES if page.stem == "first-deploy"]
    first = max(given(page), key=len)
    assert {"DatabaseIam", "SourceIam", "KindsFile"} < first.keys()
    assert template.refusals(**first) == []
    by_secret = {name.replace("Iam", "Secret"): value for name, value in first.items()}
    assert template.refusals(**by_secret) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_invocation_by_hand_is_made_once_and_waited_for(page: Path) -> None:
    for block in lines(page.read_text()):
        if "aws lambda invoke" in block:
            assert block.startswith("AWS_MAX_ATTEMPTS=1 "), block
            given = options(shlex.split(block))
            function = given["function-name"].removeprefix("tallystick-").removesuffix(":live")
            timeout = template.functions()[function.capitalize()]["Timeout"]
            assert int(given["cli-read-timeout"]) > timeout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_event_for_an_operator_is_one_that_the_handler_takes(page: Path) -> None:
    for words in calls(page):
        if payload := options(words).get("payload"):
            event = asked(json.loads(payload))
            assert event.action == TICK or event.reason


def parse(line: str) -> None:
    """Let the real command line read a line, up to where the command would begin; raises what it refuses."""
    command: Any = typer.main.get_command(app)
    words = shlex.split(line, comments=True)[1:]
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    # A group without one of its commands reads as one that was asked for help.
    assert not hasattr(command, "commands") or words[:1] == ["--version"], line
    if words != ["--version"]:
        command.make_context("tallystick", words)


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: page.stem)
def test_every_command_line_of_ours_in_a_block_is_read_by_the_real_one(page: Path) -> None:
    blocks = "\n".join(lines(page.read_text()))
    for line in re.findall(r"(?:^|[|(] ?)(tallystick [a-z-][^|><&)\n]*)", blocks, re.MULTILINE):
        parse(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_line_of_ours_in_a_sentence_is_read_by_the_real_one(page: Path) -> None:
    for line in re.findall(r"`(tallystick [a-z][^`]*)`", page.read_text()):
        # The bare words of a command are its name.
        if tuple(line.split()[1:]) not in commands():
            parse(line)


def test_a_command_line_with_an_option_that_there_is_not_is_no_command_line() -> None:
    parse('tallystick jobs retry JOB --remote --reason "x"  # a comment')
    for wrong in ("jobs retry JOB --remote", "tick --remotely", "jobs", "invoke archive -x", "doc"):
        with pytest.raises((TyperException, AssertionError)):
            parse(f"tallystick {wrong}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_asks_the_platform_itself_only_where_it_says_why_ours_will_not_do(
    page: Path,
) -> None:
    text = page.read_text()
    raw = [words for words in calls(page) if words[:2] == ["lambda", "invoke"]]
    assert not raw or (page.stem == "stuck-job" and "only the AWS CLI" in text), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_can_be_found_and_leads_to_pages_that_are_there(page: Path) -> None:
    assert f"(runbooks/{page.name})" in (ROOT / "docs" / "README.md").read_text()
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / link).is_file(), link


def test_every_answer_to_what_is_known_to_go_wrong_is_there() -> None:
    page = ROOT / "docs" / "explanation" / "known-on-aws.md"
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", page.read_text())
    for row in re.findall(r"^\| (?!Report|---).*\|$", page.read_text(), re.MULTILINE):
        answer = row.split("|")[3]
        assert re.search(r"`test_\w+`|\]\(|^ the same", answer), row
    assert [name for name in named if f"def {name}(" not in tests] == []
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / link).is_file(), link
