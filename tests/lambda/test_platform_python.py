"""The zips for the platform on the Python that it runs, where one is at hand."""

from __future__ import annotations

import platform

import pytest

from infra import packaging
from tests.runtime.environment import Platform, Start
from tests.runtime.package import Workshop

# They pack for the platform, which needs an index.
pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


@pytest.fixture
def start(functions: Start, settings: dict[str, str], workshop: Workshop) -> Start:
    """Start the package of one machine on the platform's Python."""
    interpreter = packaging.found(None)
    if interpreter is None:
        pytest.skip("there is no Python 3.13 here, which is what the platform runs")
    targets = packaging.targets(interpreter)
    names = {each.machine: each.name for each in targets.values() if each.machine}

    def begin(machine: str) -> Platform:
        return functions(
            "handlers.archive.handler",
            settings,
            task_root=workshop.unpacked(names[machine]),
            client=workshop.client(interpreter),
            interpreter=interpreter,
        )

    return begin


def test_the_package_for_this_machine_archives_to_the_end(start: Start) -> None:
    archive = start(platform.machine())
    answers = [archive.invoke({}) for _ in range(4)]
    assert [answer.error for answer in answers] == [None] * 4
    outcomes = [answer.payload["outcome"] for answer in answers]
    assert outcomes == ["progressed", "progressed", "finished", "idle"]
    assert len(answers[0].ticks) == 1


def test_the_package_for_another_machine_ends_at_its_start_and_says_what_does_not_load(
    start: Start,
) -> None:
    (other,) = {"aarch64", "x86_64"} - {platform.machine()}
    for _ in range(2):
        answer = start(other).invoke({})
        assert answer.error == "Runtime.ImportModuleError"
        assert "handlers.archive" in answer.payload["errorMessage"]
