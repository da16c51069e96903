"""What happens to the stack, from its first tick to the end of its backlog."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from tests.crash.judge import Before, witness
from tests.emulators import killing
from tests.emulators.killing import Killed
from tests.emulators.shop import DRAINED, JUDGED, KILLED, READER, TIGHT, Shop
from tests.emulators.stack import STACK, Account, change, say

REASON = ("--reason", "one year online")
# The schedule comes once a minute; a job whose process died waits for its lease of two.
TICK_SECONDS = 90
DRAIN_SECONDS = 300
POLL_SECONDS = 1.0
ENOUGH_BYTES = 64 * 1024**2

Json = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """What only a witness knows of a run.

    The source as it was, the process that was killed, the job that failed and what its retry answered, and
    the ticks of the schedule alone.
    """

    before: Before
    killed: Killed
    failed: Json
    retried: Json
    scheduled: list[Json]


def told(account: Account, database: Shop, volume: Path) -> Run:
    """Let it all happen."""
    before = witness(database.owner, JUDGED)
    say(f"Schema and volume: {account.answer('invoke', 'migrate')['payload']}")
    account.answer("apply", account.settings["TALLYSTICK_KINDS_FILE"], *REASON)
    change(account, Schedules="ENABLED")
    say("The schedule is on; waiting for one of its ticks to be in the middle of a batch")
    killed = killing.in_mid_batch(f"{STACK}-archive", volume, TICK_SECONDS)
    say(f"Killed process {killed.process} after {killed.written_bytes} bytes of a batch")
    account.answer("plan", "set", TIGHT, "--max-bytes", "1MiB", "--enable", *REASON)
    say(f"Planned {TIGHT}, with a budget that its batch does not fit into")
    failed = _waited(account, TIGHT, "FAILED")
    credential(account, database, READER)
    say(f"Changed the password of {READER} under the warm function")
    retried = account.answer("invoke", "operate", "--event", _retry(failed))["payload"]
    say(f"Retried it by hand: {retried['state']}")
    _waited(account, TIGHT, "SUCCEEDED")
    _waited(account, KILLED, "SUCCEEDED")
    change(account, Schedules="DISABLED")
    scheduled = account.ticks("archive")
    account.answer("plan", "set", DRAINED, "--enable", *REASON)
    say(f"The schedule is off; one tick of {DRAINED} by hand, which asks for the others")
    change(account, FollowUpTicks="10")
    account.answer("invoke", "archive")
    _waited(account, DRAINED, "SUCCEEDED")
    say("Leaving an event that no function understands")
    account.owner("lambda").invoke(
        FunctionName=f"{STACK}-operate",
        Qualifier="live",
        InvocationType="Event",
        Payload=b'{"action": "dance"}',
    )
    return Run(before, killed, failed, retried, scheduled)


def _retry(job: Json) -> str:
    event = {
        "action": "retry",
        "job": job["id"],
        "max_bytes": ENOUGH_BYTES,
        "reason": "the budget was too small",
        "actor": "an operator",
    }
    return json.dumps(event)


def credential(account: Account, database: Shop, user: str) -> str:
    """Give a user of the database a password that only its secret knows, and return the secret's ARN."""
    password = token_hex(16)
    database.password(user, password)
    return account.secret(f"{STACK}/{user}", user, password)


def _waited(account: Account, kind: str, state: str) -> Json:
    """Wait until the job of a kind is in a state, and return it."""
    until = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < until:
        jobs: list[Json] = account.answer("jobs", "list")["items"]
        for job in jobs:
            if (job["kind"], job["state"]) == (kind, state):
                came_to = job["error_code"] or f"{job['roots']} roots"
                say(f"{kind} is {state}: {came_to}")
                return job
        time.sleep(POLL_SECONDS)
    lines = "\n".join(account.log("archive"))
    pytest.fail(f"{kind} was not {state} within {DRAIN_SECONDS} s:\n{lines}")
