"""Trouble with the question: what was asked for is not there, or not to be had that way."""

from __future__ import annotations

from collections.abc import Iterator

from shared.errors import Code
from tests.remedies.scene import Scene, Variables, remedy


@remedy(Code.CODE_UNKNOWN, 1)
def a_code_was_misspelt(scene: Scene) -> Iterator[Variables]:
    assert scene.ask("help", "STORAGE_FULL", code=2)["params"]["asked"] == "STORAGE_FULL"
    yield {"PART": "storage_l", "CODE": "STORAGE_LIMIT"}
    scene.ask("help", "STORAGE_LIMIT", code=0)
