"""The template's stack in an emulator without Docker, in front of a database that is there already."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localstack import ministack, template
from shared.db import embedded
from tests.emulators import shop, stack
from tests.runtime.package import Workshop
from tests.worlds import rows


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """Directory of the whole scene, with a short name: sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="tallystick-") as name:
        yield Path(name)


@pytest.fixture(scope="session")
def volume(place: Path) -> Path:
    """Directory that functions find where their file system is mounted."""
    root = place / "volume"
    root.mkdir(mode=0o700)
    return root


@pytest.fixture(scope="session")
def database(place: Path) -> Iterator[str]:
    """URL of the database, with the shop in it."""
    home = place / "postgres"
    url = embedded.start(home, durable=False)
    rows(url, shop.SOURCE)
    yield url
    embedded.stop(home)


@pytest.fixture(scope="session")
def account(
    place: Path, volume: Path, database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[stack.Account]:
    """The account, with the stack deployed and its schedules off."""
    workshop = Workshop(tmp_path_factory)
    kinds = place / "kinds.toml"
    kinds.write_text(shop.KINDS)
    bootstrap = ministack.bootstrap(sys.executable, workshop.client(sys.executable))
    zipped = stack.package(workshop.package("local"), bootstrap, place)
    settings = {
        "TALLYSTICK_DATABASE_URL": database,
        "TALLYSTICK_KINDS_FILE": str(kinds),
        "TALLYSTICK_STACK": stack.STACK,
    }
    emulated = place / "emulator"
    emulated.mkdir()
    (mount_path,) = template.mount_paths(stack.transformed())
    with ministack.running(emulated, volume, mount_path) as emulator:
        made = stack.Account(emulator, settings)
        parameters = {
            "DatabaseUrl": database,
            "KindsFile": str(kinds),
            "Schedules": "DISABLED",
        }
        stack.deploy(made, zipped, None if emulator.mounts else str(volume), parameters)
        at_the_volume = {
            "TALLYSTICK_ARCHIVE_ROOT": str(volume),
            "TALLYSTICK_ARCHIVE_STORAGE_ID": made.outputs()["VolumeStorageId"],
        }
        yield replace(made, settings=settings | at_the_volume)
