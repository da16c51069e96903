"""The package unpacked, the platform that runs it, and a deployment it works for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.golden.scenario import Shell
from tests.runtime.environment import Function, Platform, Start, platform
from tests.runtime.package import Workshop


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Where packages are made, once in a run."""
    return Workshop(tmp_path_factory)


@pytest.fixture
def functions(workshop: Workshop, tmp_path: Path) -> Iterator[Start]:
    """Start a platform for one handler of the package, with settings given."""
    with ExitStack() as stack:

        def start(handler: str, settings: Mapping[str, str], **changes: object) -> Platform:
            values: dict[str, object] = {
                "task_root": workshop.unpacked("local"),
                "client": workshop.client(sys.executable),
                "interpreter": sys.executable,
            }
            function = Function(handler, settings=settings, **(values | changes))  # type: ignore[arg-type]
            return stack.enter_context(platform(function, tmp_path / "logs" / handler))

        yield start


@pytest.fixture
def settings(shell: Shell) -> dict[str, str]:
    """The settings of a deployment with 45 old orders due in batches of 20; no tick asks for another."""
    found = {name: value for name, value in os.environ.items() if name.startswith("TALLYSTICK_")}
    return found | {"TALLYSTICK_FOLLOW_UP_TICKS": "0"}


@pytest.fixture
def archive(functions: Start, settings: dict[str, str]) -> Platform:
    """The function of the schedule, in front of that deployment."""
    return functions("handlers.archive.handler", settings)


@pytest.fixture
def operate(functions: Start, settings: dict[str, str]) -> Platform:
    """The function of operators, in front of that deployment."""
    return functions("handlers.operate.handler", settings)
