"""What a page tells people to do puts the trouble right: brought about, obeyed, and looked at again."""

from __future__ import annotations

import importlib
import re
from contextlib import contextmanager
from pathlib import Path

import pytest

from shared.messages import pages
from tests.remedies.scene import SCENARIOS, Scenario, Scene

HERE = Path(__file__).parent
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

for path in sorted(HERE.glob("*.py")):
    if path.stem not in {"conftest", "scene"} and not path.stem.startswith("test_"):
        importlib.import_module(f"tests.remedies.{path.stem}")


def blocks(code: str) -> list[str]:
    """Return the commands of a page, block by block."""
    return BLOCK.findall(pages.page(code).text)


# A few hundred deployments, some seconds each: too many for whoever has just cloned this.
@pytest.mark.system
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_remedy_of_a_page_works(scenario: Scenario, scene: Scene) -> None:
    found = blocks(scenario.code)
    with contextmanager(scenario.play)(scene) as variables:
        assert scenario.code in scene.seen, "no command has shown the code"
        scene.carry_out("\n".join(found[number - 1] for number in scenario.blocks), variables)


@pytest.mark.parametrize("code", [page.code for page in pages.listed()])
def test_every_block_of_a_page_is_run_by_a_scenario(code: str) -> None:
    run = {number for each in SCENARIOS if each.code == code for number in each.blocks}
    assert run == set(range(1, len(blocks(code)) + 1))


def test_a_remedy_that_does_not_work_is_noticed(scene: Scene) -> None:
    with pytest.raises(AssertionError, match="no-such-command"):
        scene.carry_out("tallystick no-such-command | cat\necho went on", {})
    with pytest.raises(AssertionError, match="unbound variable"):
        scene.carry_out('echo "$NOBODY_SET_THIS"', {})
