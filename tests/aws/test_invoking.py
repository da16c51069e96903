"""Functions invoked from a shell: once, with a clear answer, and ``--remote`` as if it were here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handlers import archive, operate
from shared.aws import function
from shared.aws.client import client
from shared.errors import Code, Passing, Refused, Uncertain
from tests.aws.functions import Functions, Reply, handled, refusal
from tests.golden.scenario import Shell
from tests.remedies.storage import held

PREFIX = "arn:aws:lambda:eu-central-1:123456789012:function:"
LIVE = f"{PREFIX}shop-operate:live"
SIGNED = ("--actor", "tester", "--reason", "a test needs it")
RESOURCES = [
    ("Archive", "AWS::Lambda::Function", "shop-archive"),
    ("ArchiveAlias", "AWS::Lambda::Alias", f"{PREFIX}shop-archive:live"),
    ("FailureQueue", "AWS::SQS::Queue", "http://queue/shop-failure"),
    ("Operate", "AWS::Lambda::Function", "shop-operate"),
    ("OperateAlias", "AWS::Lambda::Alias", LIVE),
    ("Plain", "AWS::Lambda::Function", "shop-plain"),
]


class Context:
    """An invocation with a minute left, of a function that nobody can ask again."""

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


@pytest.fixture(autouse=True)
def _stack(functions: Functions) -> None:
    functions.stacks["shop"] = RESOURCES


@pytest.fixture
def remote(shell: Shell, functions: Functions, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A deployment whose stack has the function of operators, in this process."""
    monkeypatch.setenv("TALLYSTICK_STACK", "shop")
    functions.replies[LIVE] = lambda event: handled(operate.handler, event, Context())
    return shell


def test_an_invocation_shows_what_it_answers_and_the_end_of_its_log(
    shell: Shell, functions: Functions
) -> None:
    functions.replies["shop"] = lambda event: Reply({"got": event}, log="START\nthe last line")
    told = shell("invoke", "shop", "--event", '{"a": [1]}', "--json")
    assert told.code == 0
    assert json.loads(told.out) == {
        "function": "shop",
        "version": "1",
        "is_error": False,
        "payload": {"got": {"a": [1]}},
        "log": ["START", "the last line"],
    }
    read = shell("invoke", "shop").out
    assert '"got": {}' in read
    assert "the last line" in read
    assert shell("invoke", "shop", "--event", "{").code == 2


def test_a_function_that_ends_in_an_error_ends_the_command_with_1(
    shell: Shell, functions: Functions
) -> None:
    said = {"errorType": "Sandbox.Timedout", "errorMessage": "Task timed out after 3.00 seconds"}
    functions.replies["shop"] = lambda _event: Reply(said, error="Unhandled")
    told = shell("invoke", "shop", "--json")
    assert (told.code, json.loads(told.out)["is_error"]) == (1, True)


@pytest.mark.parametrize(
    ("reply", "error", "code", "cause"),
    [
        (refusal(404, "ResourceNotFoundException"), Refused, "FUNCTION_UNKNOWN", None),
        (refusal(429, "TooManyRequestsException"), Refused, "FUNCTION_THROTTLED", None),
        (
            refusal(429, "TooManyRequestsException", Reason=function.RESERVED),
            Refused,
            "FUNCTION_THROTTLED",
            "reserved",
        ),
        (refusal(400, "EFSMountFailureException"), Refused, "FUNCTION_NOT_MOUNTED", "failure"),
        (
            refusal(408, "EFSMountConnectivityException"),
            Refused,
            "FUNCTION_NOT_MOUNTED",
            "connectivity",
        ),
        (refusal(408, "EFSMountTimeoutException"), Refused, "FUNCTION_NOT_MOUNTED", "timeout"),
        (refusal(410, "EFSIOException"), Refused, "FUNCTION_NOT_MOUNTED", "io"),
        (refusal(403, "AccessDeniedException"), Refused, "AWS_REFUSED", "denied"),
        (refusal(500, "ServiceException"), Passing, "AWS_UNAVAILABLE", None),
        (Reply(lost=True), Uncertain, "INVOCATION_LOST", None),
    ],
)
def test_what_was_not_started_or_not_heard_of_is_told_and_asked_for_once(
    functions: Functions,
    reply: Reply,
    error: type[Exception],
    code: str,
    cause: str | None,
) -> None:
    functions.replies["shop"] = lambda _event: reply
    with pytest.raises(error) as caught:
        function.invoke("shop", {})
    told = caught.value
    assert isinstance(told, Refused | Passing | Uncertain)
    assert (told.code, told.params.get("cause")) == (code, cause)
    assert len(functions.calls) == 1


def test_an_answer_is_waited_for_longer_than_any_function_may_run(functions: Functions) -> None:
    functions.replies["shop"] = lambda _event: Reply()
    function.invoke("shop", {})
    config = client("lambda", attempts=1, read_seconds=function.ANSWER_SECONDS).meta.config
    assert config.read_timeout > 900
    assert config.retries["total_max_attempts"] == 1
    assert client.cache_info().hits == 1


def test_a_function_is_named_as_in_its_stack_and_invoked_by_its_alias(
    shell: Shell, functions: Functions
) -> None:
    names = (f"{PREFIX}shop-archive:live", "shop-plain", f"{PREFIX}elsewhere")
    for name in names:
        functions.replies[name] = lambda _event: Reply()
    for name in ("archive", "plain", f"{PREFIX}elsewhere"):
        assert shell("invoke", name, "--stack", "shop").code == 0
    assert tuple(call.function for call in functions.calls) == names
    told = shell("invoke", "archives", "--stack", "shop", "--json")
    error = json.loads(told.err)["error"]
    assert (told.code, error["code"]) == (2, "FUNCTION_UNKNOWN")
    assert error["params"]["known"] == ["archive", "operate", "plain"]


def test_a_stack_that_is_not_there_or_not_named_is_told(
    shell: Shell, functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def code_of(*arguments: str) -> str:
        told = shell(*arguments, "--json")
        assert told.code == 2
        return str(json.loads(told.err)["error"]["code"])

    assert code_of("invoke", "archive", "--stack", "shopp") == "STACK_UNKNOWN"
    assert code_of("tick", "--remote") == "STACK_MISSING"
    monkeypatch.setenv("TALLYSTICK_STACK", "shopp")
    assert code_of("tick", "--remote") == "STACK_UNKNOWN"
    assert functions.calls == []


def test_a_tick_elsewhere_is_shown_as_one_here_with_its_exit_code(
    remote: Shell, functions: Functions, volume_root: Path
) -> None:
    first = json.loads(remote("tick", "archive", "--remote", "--json").out)
    assert (first["outcome"], first["roots"], first["seq"]) == ("progressed", 20, 1)
    assert functions.calls[0].event == {"action": "tick", "operation": "archive"}
    assert "progressed" in remote("tick", "--remote").out
    volume_root.chmod(0o755)
    told = remote("tick", "--remote", "--json")
    assert (told.code, json.loads(told.out)["code"]) == (1, "STORAGE_UNAVAILABLE")
    volume_root.chmod(0o700)
    with held(volume_root):
        assert remote("tick", "--remote").code == 0
    assert remote("tick", "--remote", "--until-idle").code == 2


def test_a_tick_elsewhere_tells_that_all_that_is_open_is_stuck_as_one_here_does(
    remote: Shell,
) -> None:
    job = json.loads(remote("tick", "--remote", "--json").out)["job"]["id"]
    assert remote("jobs", "pause", job, *SIGNED).code == 0
    here, there = remote("tick", "--json"), remote("tick", "--remote", "--json")
    assert here.code == there.code == 3
    assert json.loads(there.out).keys() == json.loads(here.out).keys()


def test_a_tick_of_a_stack_that_is_older_than_the_shell_is_shown_too(
    remote: Shell, functions: Functions
) -> None:
    def older(event: object, context: Context) -> object:
        report = operate.handler(event, context)
        del report["only_stuck"]
        return report

    functions.replies[LIVE] = lambda event: handled(older, event, Context())
    told = remote("tick", "--remote", "--json")
    assert (told.code, json.loads(told.out)["outcome"]) == (0, "progressed")


def test_a_job_is_steered_elsewhere_as_it_is_here(remote: Shell, functions: Functions) -> None:
    job = json.loads(remote("tick", "--json").out)["job"]["id"]
    paused = json.loads(remote("jobs", "pause", job, *SIGNED, "--remote", "--json").out)
    assert functions.calls[-1].event == {
        "action": "pause",
        "actor": "tester",
        "job": job,
        "reason": "a test needs it",
    }
    assert paused["state"] == "PAUSED"
    shown = json.loads(remote("jobs", "show", job, "--json").out)
    assert paused == {name: shown[name] for name in paused}
    assert "is PENDING" in remote("jobs", "resume", job[:8], *SIGNED, "--remote").out
    stale = remote("jobs", "abandon", job, *SIGNED, "--remote", "--revision", "999", "--json")
    assert functions.calls[-1].event["revision"] == 999
    assert json.loads(stale.err.splitlines()[-1])["error"]["code"] == "REVISION_STALE"


def test_what_is_refused_elsewhere_is_refused_with_the_same_code_and_exit_code(
    remote: Shell, functions: Functions
) -> None:
    job = json.loads(remote("tick", "--json").out)["job"]["id"]
    retry = ("jobs", "retry", job, *SIGNED, "--max-bytes", "1GiB", "--json")
    here, there = remote(*retry), remote(*retry, "--remote")
    assert functions.calls[-1].event["max_bytes"] == 1024**3
    assert here.code == there.code == 2
    one, other = (json.loads(each.err.splitlines()[-1])["error"] for each in (here, there))
    assert one["code"] == other["code"] == Code.ACTION_NOT_ALLOWED
    assert other["message"].startswith(one["message"])
    assert remote("jobs", "pause", job, "--reason", " ", "--remote").code == 2
    assert len(functions.calls) == 1


def test_a_function_that_dies_is_told_with_its_error(remote: Shell, functions: Functions) -> None:
    said = {"errorType": "Runtime.ExitError", "errorMessage": "Runtime exited"}
    functions.replies[LIVE] = lambda _event: Reply(said, error="Unhandled", log="Killed")
    told = remote("tick", "--remote", "--json")
    error = json.loads(told.err.splitlines()[-1])["error"]
    assert (told.code, error["code"]) == (1, "FUNCTION_FAILED")
    assert (error["params"]["type"], error["params"]["log"]) == ("Runtime.ExitError", ["Killed"])


def test_a_scheduled_function_can_be_invoked_by_hand(remote: Shell, functions: Functions) -> None:
    name = f"{PREFIX}shop-archive:live"
    functions.replies[name] = lambda event: handled(archive.handler, event, Context())
    told = json.loads(remote("invoke", "archive", "--json").out)
    assert told["payload"]["outcome"] == "progressed"
