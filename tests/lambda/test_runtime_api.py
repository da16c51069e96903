"""The platform of these tests is as strict as the real one: shown with handlers that misbehave."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.runtime.environment import Platform, Start

PROBE = """
import os, sys, time

calls = 0

def echo(event, context):
    global calls
    calls += 1
    print("called", calls)
    left = context.get_remaining_time_in_millis()
    return {"event": event, "calls": calls, "pid": os.getpid(), "left": left, "name": context.function_name}

def sleep(event, context):
    print("before", flush=True)
    time.sleep(600)

def meet(event, context):
    # Ends when the other one has come as well.
    open(event["mine"], "w").close()
    while not os.path.exists(event["other"]):
        time.sleep(0.01)
    return os.getpid()

def large(event, context):
    return "x" * event

def leave(event, context):
    os._exit(3)

def fail(event, context):
    raise ValueError("as it says")

def unspeakable(event, context):
    return {1}
"""


@pytest.fixture
def probe(functions: Start, tmp_path: Path) -> Start:
    folder = tmp_path / "probe"
    folder.mkdir()
    (folder / "probe.py").write_text(PROBE)
    (folder / "broken.py").write_text("def handler(:\n")

    def start(handler: str, **changes: object) -> Platform:
        return functions(handler, {}, task_root=folder, **changes)

    return start


def test_a_process_is_used_again_while_it_lives(probe: Start) -> None:
    platform = probe("probe.echo")
    first, second = platform.invoke({"a": 1}), platform.invoke(None)
    assert first.error is None
    assert (first.payload["event"], second.payload["event"]) == ({"a": 1}, None)
    assert (first.payload["calls"], second.payload["calls"]) == (1, 2)
    assert 0 < first.payload["left"] <= 60_000
    assert second.lines == ("called 2",)


def test_a_process_is_stopped_between_invocations(probe: Start) -> None:
    platform = probe("probe.echo")
    pid = platform.invoke({}).payload["pid"]
    assert Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")


def test_a_function_is_killed_at_its_deadline_and_begins_anew(probe: Start) -> None:
    platform = probe("probe.sleep", timeout_seconds=1.0)
    for _ in range(2):
        answer = platform.invoke({})
        assert answer.error == "Sandbox.Timedout"
        assert answer.lines == ("before",)
    assert [each.process.returncode for each in platform.environments] == [-signal.SIGKILL] * 2


def test_events_at_once_have_a_process_each(probe: Start, tmp_path: Path) -> None:
    platform = probe("probe.meet")
    files = [str(tmp_path / name) for name in ("one", "other")]
    events = [dict(zip(("mine", "other"), pair, strict=True)) for pair in (files, files[::-1])]
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(platform.invoke, events)
    assert first.payload != second.payload


def test_a_response_over_the_limit_is_an_error(probe: Start) -> None:
    platform = probe("probe.large")
    assert platform.invoke(1024).error is None
    assert platform.invoke(7 * 1024 * 1024).error == "Function.ResponseSizeTooLarge"


@pytest.mark.parametrize(
    ("handler", "error", "message"),
    [
        ("probe.leave", "Runtime.ExitError", "exit status 3"),
        ("probe.fail", "ValueError", "as it says"),
        ("probe.unspeakable", "Runtime.MarshalError", "set is not JSON serializable"),
        ("probe.nothing", "Runtime.HandlerNotFound", "nothing"),
        ("missing.handler", "Runtime.ImportModuleError", "missing"),
        ("broken.handler", "Runtime.UserCodeSyntaxError", "broken"),
    ],
)
def test_what_goes_wrong_has_a_type_and_the_next_event_begins_anew(
    probe: Start, handler: str, error: str, message: str
) -> None:
    platform = probe(handler)
    for _ in range(2):
        answer = platform.invoke({})
        assert answer.error == error
        assert message in answer.payload["errorMessage"]


def test_a_process_that_died_while_it_was_frozen_is_replaced(probe: Start) -> None:
    platform = probe("probe.echo")
    platform.invoke({})
    platform.environments[0].send(signal.SIGKILL)
    platform.environments[0].process.wait()
    assert platform.invoke({}).payload["calls"] == 1
