"""Our wheel, the wheels it needs, and an environment without any extra."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.installed import shelf
from tests.installed.environment import Installed, installed


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our wheel, built from the tree."""
    return shelf.built(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of all that our wheel needs, whatever the extra."""
    return shelf.stocked(tmp_path_factory.mktemp("shelf"))


@pytest.fixture(scope="session")
def plain(wheel: Path, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with our wheel and no extra, for all who install nothing into it."""
    return installed(wheel, wheels, tmp_path_factory.mktemp("plain"))


@pytest.fixture
def fresh(wheel: Path, wheels: Path, tmp_path: Path) -> Installed:
    """An environment with our wheel and no extra, for one who installs into it."""
    return installed(wheel, wheels, tmp_path)
