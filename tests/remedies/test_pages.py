"""Pages of error codes: there for every code, in one form, with commands that exist.

With UPDATE_GOLDEN=1 the index in docs/how-to is written anew.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from handlers.cli import app
from shared.errors import Code, Refused
from shared.messages import pages
from shared.messages.pages import Page
from shared.plans.outlook import Standing
from tests.remedies.scene import Scene

INDEX = Path(__file__).parents[2] / "docs" / "how-to" / "errors.md"
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))
PAGES = {page.code: page for page in pages.listed()}

# How a plan or job can stand that somebody has to do something about: `tallystick doctor` finds it.
STANDING_STILL = (
    Standing.JOB_FAILED,
    Standing.JOB_PAUSED,
    Standing.NAMESPACE_DISABLED,
    Standing.NO_TICK,
    Standing.PLAN_STALE,
)
SECTIONS = ["Why", "What to do", "What is kept safe"]
SUMMARY_MAX = 100
LINES_MIN, LINES_MAX = 15, 45
WIDTH_MAX = 110
HEAD = """# Errors

Every error has a code. `tallystick help CODE` prints the page of a code; these are all of them.

In the commands of the pages, `$JOB` is the id of a job (or its first 8 characters), `$KIND` the name of a
kind, `$ROOT` the directory of the volume, `$DATABASE` and `$SOURCE` are the URLs of the database that keeps
the jobs and of the one rows are read from. `export` shows which setting is meant: it belongs where the
deployment keeps the settings of every node.

| Code | Meaning |
|---|---|
"""


def test_every_code_has_a_page_and_every_page_is_of_a_code() -> None:
    assert PAGES.keys() == {str(code) for code in (*Code, *STANDING_STILL)}


@pytest.mark.parametrize("code", PAGES)
def test_a_page_has_the_form_of_pages(code: str) -> None:
    page = PAGES[code]
    lines = page.text.splitlines()
    assert lines[:2] == [f"# {code}", ""]
    assert re.fullmatch(r"[A-Z].*[^.]\.", page.summary)
    assert len(page.summary) <= SUMMARY_MAX
    assert lines[3] == ""
    assert lines[4]
    assert [line[3:] for line in lines if line.startswith("## ")] == SECTIONS
    assert LINES_MIN <= len(lines) <= LINES_MAX
    assert max(map(len, lines)) <= WIDTH_MAX
    assert page.text.endswith("\n")
    assert "\n\n\n" not in page.text


@pytest.mark.parametrize("code", PAGES)
def test_a_page_has_commands_under_what_to_do_and_nowhere_else(code: str) -> None:
    parts = re.split(r"^## (.*)\n", PAGES[code].text, flags=re.MULTILINE)
    fenced = {name: text.count("```") for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    assert fenced.pop("What to do") >= 2
    assert set(fenced.values()) == {0}
    assert parts[0].count("```") == 0
    assert PAGES[code].text.count("```sh\n") * 2 == PAGES[code].text.count("```")


def named(page: Page) -> Iterator[str]:
    """Yield every command of ours that a page names, in its blocks and in its sentences."""
    for block in re.findall(r"^```sh\n(.*?)^```$", page.text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield from re.findall(r"\btallystick ([a-z][^|;&)>]*)", line.partition(" # ")[0])
    prose = re.sub(r"^```sh\n.*?^```$", "", page.text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`tallystick ([^`]+)`", prose)


def command(words: list[str]) -> Any:  # noqa: ANN401 - Typer's own command class has moved
    found: Any = typer.main.get_command(app)
    for word in words:
        found = found.commands[word]
        if not hasattr(found, "commands"):
            break
    return found


@pytest.mark.parametrize("code", PAGES)
def test_every_command_a_page_names_is_there_with_its_options(code: str) -> None:
    for text in named(PAGES[code]):
        words = shlex.split(text)
        found = command(words)
        options = {option for each in found.params for option in (*each.opts, *each.secondary_opts)}
        asked = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert asked <= options | {"--json", "--help"}, text


def test_the_index_is_made_from_the_pages() -> None:
    link = "../../shared/messages/pages/en"
    rows = [
        f"| [{page.code}]({link}/{page.code}.md) | {page.summary} |\n" for page in PAGES.values()
    ]
    text = HEAD + "".join(rows)
    if UPDATE:
        INDEX.write_text(text, "utf-8")
    assert INDEX.read_text("utf-8") == text


def test_help_prints_the_page_of_a_code_in_any_case(scene: Scene) -> None:
    told = scene.ask("help", "storage_limit", code=0)
    assert told["page"] == PAGES["STORAGE_LIMIT"].text
    assert told["code"] == "STORAGE_LIMIT"
    assert "jobs retry" in told["next"]
    assert scene.shell("help", "Storage_Limit").out == PAGES["STORAGE_LIMIT"].text


def test_help_without_a_code_lists_all_of_them(scene: Scene) -> None:
    told = scene.ask("help", code=0)
    assert [item["code"] for item in told["items"]] == list(PAGES)
    lines = scene.shell("help").out.splitlines()
    assert [line.split()[0] for line in lines] == list(PAGES)


def test_a_code_that_is_none_is_refused_with_what_was_meant() -> None:
    with pytest.raises(Refused) as refused:
        pages.page("STORAGE_LIMITS")
    assert refused.value.params["near"][0] == "STORAGE_LIMIT"  # type: ignore[index]
    with pytest.raises(Refused) as refused:
        pages.page("newer")
    assert "SCHEMA_NEWER" in str(refused.value.params["near"])


def test_a_language_without_pages_is_an_error() -> None:
    with pytest.raises(LookupError):
        pages.listed("xx")
