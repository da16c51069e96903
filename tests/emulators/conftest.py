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
from tests.emulators import killing, shop, stack, story
from tests.emulators.stack import say
from tests.runtime.package import Workshop


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
def database(place: Path) -> Iterator[shop.Shop]:
    """The database that is there already."""
    home = place / "postgres"
    say("Starting a Postgres with old orders in it")
    yield shop.opened(home)
    embedded.stop(home)


@pytest.fixture(scope="session")
def package(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip for the Python that runs here, with what starts its handlers."""
    say("Packing the functions")
    workshop = Workshop(tmp_path_factory)
    bootstrap = ministack.bootstrap(sys.executable, workshop.client(sys.executable))
    return stack.package(workshop.package("local"), bootstrap, place)


@pytest.fixture(scope="session")
def account(
    place: Path, volume: Path, database: shop.Shop, package: Path
) -> Iterator[stack.Account]:
    """The account, with secrets of both users and the stack deployed, its schedules off."""
    kinds = place / "kinds.toml"
    kinds.write_text(shop.KINDS_FILE)
    emulated = place / "emulator"
    emulated.mkdir()
    (mount_path,) = template.mount_paths(stack.transformed())
    say("Starting the emulator")
    with ministack.running(emulated, volume, mount_path) as emulator:
        say(
            f"The volume is mounted at {mount_path}"
            if emulator.mounts
            else "Nothing can be mounted here"
        )
        made = stack.Account(emulator, {})
        parameters = {
            "DatabaseUrl": database.url,
            "DatabaseSecret": story.credential(made, database, shop.JOBS),
            "SourceUrl": database.url,
            "SourceSecret": story.credential(made, database, shop.READER),
            "KindsFile": str(kinds),
            "FollowUpTicks": "0",
            "Schedules": "DISABLED",
        }
        say("Deploying the stack")
        stack.deploy(made, package, None if emulator.mounts else str(volume), parameters)
        yield replace(
            made,
            settings={
                "TALLYSTICK_ARCHIVE_ROOT": str(volume),
                "TALLYSTICK_ARCHIVE_STORAGE_ID": made.outputs()["VolumeStorageId"],
                "TALLYSTICK_DATABASE_SECRET": parameters["DatabaseSecret"],
                "TALLYSTICK_DATABASE_URL": database.url,
                "TALLYSTICK_KINDS_FILE": str(kinds),
                "TALLYSTICK_SOURCE_SECRET": parameters["SourceSecret"],
                "TALLYSTICK_SOURCE_URL": database.url,
                "TALLYSTICK_STACK": stack.STACK,
            },
        )
    assert not killing.left(stack.STACK)


@pytest.fixture(scope="session")
def run(account: stack.Account, database: shop.Shop, volume: Path) -> story.Run:
    """What came of it: schedules on, a process killed, a job retried, a password changed, all drained."""
    return story.told(account, database, volume)
