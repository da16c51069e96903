"""Follow-up ticks: asked for while there is work, a few in a row, and never at the cost of the tick."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handlers import archive, following, log, operate
from tests.aws.functions import Functions, Reply, refusal
from tests.golden.scenario import Shell
from tests.operations import afresh
from tests.remedies.storage import held

FUNCTION = "arn:aws:lambda:eu-central-1:123456789012:function:shop-archive:live"


class Context:
    """An invocation of a function that has a name, with some time left."""

    invoked_function_arn = FUNCTION

    def __init__(self, *seconds: float) -> None:
        self._seconds = list(seconds or (60.0,))

    def get_remaining_time_in_millis(self) -> int:
        # What is left when it begins, then when it has ended.
        seconds = self._seconds.pop(0) if len(self._seconds) > 1 else self._seconds[0]
        return int(seconds * 1000)


@pytest.fixture(autouse=True)
def _known(functions: Functions) -> None:
    functions.replies[FUNCTION] = lambda _event: Reply()


def warned(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str, str]]:
    """Return level, code and cause of the log lines that are not a tick's own."""
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    return [
        (line["level"], line["code"], line["params"]["cause"])
        for line in lines
        if line["message"] != log.MESSAGE
    ]


def test_a_tick_that_leaves_work_asks_for_the_next_and_the_last_does_not(
    shell: Shell, functions: Functions
) -> None:
    event: object = {"scheduled_time": "2026-11-30T12:00:00Z"}
    outcomes = []
    for _ in range(4):
        outcomes.append(archive.handler(event, Context())["outcome"])
        event = functions.calls[-1].event
    assert outcomes == ["progressed", "progressed", "finished", "idle"]
    assert [(each.function, each.kind) for each in functions.calls] == [(FUNCTION, "Event")] * 3
    assert [each.event for each in functions.calls] == [{"follow_up": n} for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("event", "limit", "follows"),
    [
        ({}, 10, 1),
        (None, 10, 1),
        ({"follow_up": 9}, 10, 10),
        ({"follow_up": 10}, 10, None),
        ({"follow_up": 11}, 10, None),
        ({}, 0, None),
        ({"follow_up": "9"}, 10, 1),
        ({"follow_up": -5}, 10, 1),
        ({"follow_up": True}, 10, 1),
    ],
)
def test_so_many_in_a_row_and_no_more(event: object, limit: int, follows: int | None) -> None:
    expected = None if follows is None else {"follow_up": follows}
    assert following.next_event(event, limit) == expected


def test_the_setting_ends_the_row_and_zero_lets_none_begin(
    shell: Shell, functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_FOLLOW_UP_TICKS", "1")
    archive.handler({}, Context())
    archive.handler({"follow_up": 1}, Context())
    monkeypatch.setenv("TALLYSTICK_FOLLOW_UP_TICKS", "0")
    with afresh.process():
        archive.handler({}, Context())
    assert [each.event for each in functions.calls] == [{"follow_up": 1}]


def test_a_tick_by_hand_is_one_tick(shell: Shell, functions: Functions) -> None:
    assert operate.handler({"action": "tick"}, Context())["outcome"] == "progressed"
    assert functions.calls == []


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (refusal(403, "AccessDeniedException"), "AWS_REFUSED"),
        (refusal(429, "TooManyRequestsException"), "AWS_UNAVAILABLE"),
        (refusal(500, "ServiceException"), "AWS_UNAVAILABLE"),
    ],
)
def test_a_question_that_is_refused_is_logged_with_its_code_and_fails_no_tick(
    shell: Shell,
    functions: Functions,
    capsys: pytest.CaptureFixture[str],
    reply: Reply,
    cause: str,
) -> None:
    functions.replies[FUNCTION] = lambda _event: reply
    assert archive.handler({}, Context())["outcome"] == "progressed"
    assert warned(capsys) == [("WARNING", "FOLLOW_UP_FAILED", cause)]


def test_an_api_that_cannot_be_reached_fails_no_tick(
    shell: Shell,
    functions: Functions,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:1")
    assert archive.handler({}, Context())["outcome"] == "progressed"
    assert warned(capsys) == [("WARNING", "FOLLOW_UP_FAILED", "AWS_UNAVAILABLE")]


def test_a_tick_that_used_up_its_time_does_not_spend_more_on_asking(
    shell: Shell, functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    assert archive.handler({}, Context(60.0, 8.0))["outcome"] == "progressed"
    assert functions.calls == []
    assert warned(capsys) == [("WARNING", "FOLLOW_UP_FAILED", "TOO_LITTLE_TIME")]


def test_a_tick_that_meets_another_asks_for_nothing_so_rows_of_them_do_not_add_up(
    shell: Shell, functions: Functions, volume_root: Path
) -> None:
    archive.handler({}, Context())
    with held(volume_root):
        assert archive.handler({}, Context())["code"] == "STORAGE_BUSY"
    assert len(functions.calls) == 1
