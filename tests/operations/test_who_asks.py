"""A message knows who asks, and what becomes of what went wrong."""

from __future__ import annotations

import json

import pytest

from tests.golden.scenario import Shell
from tests.worlds import rows

BROUGHT = (
    "UPDATE tallystick.job SET state = %s, error_code = %s, error_params = %s::jsonb, owner = NULL,"
    " lease_until = NULL"
)
AWAY = '{"cause": "unreachable", "detail": "connection refused"}'


def next_of(shell: Shell) -> str:
    job = json.loads(shell("jobs", "list", "--json").out)["items"][0]["id"]
    error = json.loads(shell("jobs", "show", job, "--json").out)["error"]
    return str(error["next"])


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        ("PENDING", "EXPORT_FAILED", "tried again by itself"),
        ("FAILED", "EXPORT_FAILED", "Then `tallystick jobs retry "),
        ("PAUSED", "CREDENTIAL_MISSING", "goes on by itself at the first tick"),
    ],
)
def test_a_job_says_what_becomes_of_it(
    shell: Shell, database: str, state: str, code: str, said: str
) -> None:
    assert shell("tick").code == 0
    rows(database, BROUGHT, state, code, AWAY)
    told = next_of(shell)
    assert said in told
    assert ("by itself" in told) == (state != "FAILED")


def test_a_command_that_nothing_runs_again_says_to_run_it_again(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", "postgresql://nobody@/x?host=/nowhere/at/all")
    for command in (
        ("kinds", "check", "orders"),
        ("archive", "export", "app.orders", "--directory", "/nowhere/at/all/x"),
        ("archive", "restore", "orders", "--to", "postgresql://u@h/x?schema=public"),
    ):
        answered = shell(*command, "--json")
        assert answered.code in {1, 2}, answered
        for text in ("by itself", "by themselves", "jobs retry"):
            assert text not in answered.out + answered.err
