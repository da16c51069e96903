"""The pages that say how to deploy: what they name is there, what they do in a shell works."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

from handlers.cli import app
from tests.deploy.image import ROOT

PAGES = sorted((ROOT / "docs" / "how-to").glob("run-*.md"))


def commands() -> set[tuple[str, ...]]:
    """Return every command of the program, by its words."""
    found: set[tuple[str, ...]] = set()

    def collect(command: object, words: tuple[str, ...]) -> None:
        below = getattr(command, "commands", None)
        if below is None:
            found.add(words)
        else:
            for name, each in below.items():
                collect(each, (*words, name))

    collect(typer.main.get_command(app), ())
    return found


def called(text: str) -> list[Sequence[str]]:
    """Return the words after the program, under each name the pages give it."""
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    lines = re.findall(
        r"^(?:in-loop|as_tallystick|.* -- tallystick) ([a-z].*)$", blocks, re.MULTILINE
    )
    return [line.split() for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    named = set(re.findall(r"\b(?:infra|requirements|tests)/[\w./*-]*[\w*]", text))
    named -= {"infra/compose/.env"}
    assert named
    assert [name for name in named if not list(ROOT.glob(name))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_that_a_page_calls_is_one(page: Path) -> None:
    known = commands()
    words = called(page.read_text())
    assert words
    unknown = [each for each in words if not {tuple(each[:1]), tuple(each[:2])} & known]
    assert unknown == []


def test_the_page_for_containers_makes_the_two_secrets_that_compose_asks_for(
    tmp_path: Path,
) -> None:
    text = (ROOT / "docs" / "how-to" / "run-in-a-container.md").read_text()
    first = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "infra" / "compose").mkdir(parents=True)
    subprocess.run(["sh", "-c", first], cwd=tmp_path, check=True)
    file = tmp_path / "infra" / "compose" / ".env"
    assert file.stat().st_mode & 0o777 == 0o600
    values = dict(line.split("=") for line in file.read_text().splitlines())
    wanted = (ROOT / "infra" / "compose" / "compose.yaml").read_text()
    assert set(values) == set(re.findall(r"\$\{([A-Z_]+):\?", wanted))
    assert all(re.fullmatch("[0-9a-f]{32}", value) for value in values.values())
