"""The tables of rules name tests and broken variants of the model that are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.model.test_model import BROKEN, STARVED

TESTS = Path(__file__).parents[1]
RULES = TESTS.parent / "docs" / "explanation" / "rules.md"
NAME = re.compile(r"`([^`\s]+)::([^`\s]+)`")
CELLS = 4


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((TESTS / path).read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def is_there(place: str, name: str) -> bool:
    if place == "model":
        return name in BROKEN or name in STARVED
    return (TESTS / place).is_file() and name in functions(place)


def rows() -> list[list[str]]:
    lines = [line for line in RULES.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "Rule"]


def test_every_test_and_variant_that_the_rules_name_is_there() -> None:
    named = NAME.findall(RULES.read_text("utf-8"))
    assert named
    assert [f"{place}::{name}" for place, name in named if not is_there(place, name)] == []


def test_every_rule_is_shown_without_and_with_it() -> None:
    assert [row for row in rows() if len(row) != CELLS] == []
    assert [row[0] for row in rows() if not (NAME.search(row[2]) and NAME.search(row[3]))] == []


def test_every_broken_variant_of_the_model_stands_for_a_rule() -> None:
    named = {name for place, name in NAME.findall(RULES.read_text("utf-8")) if place == "model"}
    assert {*BROKEN, *STARVED} - named == set()
