"""One export, seen by two NFSv4.1 clients with EFS's mount options; Postgres is in memory."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.crash.scene import Scene, scene
from tests.operations.stage import Stage

CLIENTS = (Path("/mnt/c1"), Path("/mnt/c2"))
numbers = itertools.count(1)


@dataclass(frozen=True)
class Shared:
    """A volume on the export: the scene as the first client has it, and the stage as the second has."""

    scene: Scene
    second: Stage

    @property
    def first(self) -> Stage:
        return self.scene.stage


@pytest.fixture
def roots() -> tuple[Path, Path]:
    """Return a fresh directory of the export, as each client names it; only the first has seen it."""
    name = f"volume-{next(numbers)}"
    (CLIENTS[0] / name).mkdir(mode=0o700)
    return CLIENTS[0] / name, CLIENTS[1] / name


@pytest.fixture
def shared(database: str, roots: tuple[Path, Path]) -> Shared:
    made = scene(database, roots[0])
    second = replace(made.stage.changed(root=roots[1]), root=roots[1])
    return Shared(made, second)
