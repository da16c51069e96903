"""The pure decisions: what a failure does to a job, what an operator may do, how long to wait."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from shared.errors import Code, Missing, Passing, Refused, TooMuch, Trouble, Waits
from shared.jobs.model import Event, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.jobs.model import Job

MEBIBYTE = 1024 * 1024
BUDGET_MIN = MEBIBYTE
BUDGET_MAX = 1024 * 1024 * MEBIBYTE
INTERVAL_MIN_SECONDS = 3600
INTERVAL_MAX_SECONDS = 30 * 24 * 3600
BATCH_MAX = 100_000
AFTER_MAX_DAYS = 36_500

# Twelve failures of one unit wait 10 s, 20 s, ... up to an hour: 1.7 to 3.4 hours with the jitter.
FAILURES_MAX = 12
BACKOFF_FIRST_SECONDS = 10.0
BACKOFF_MAX_SECONDS = 3600.0
# How long until it is asked again whether what a unit waits for is over: a minute, and longer from the second
# time on, so that many jobs that wait for one thing leave a loop of ticks time to rest.
WAIT_SECONDS = 60.0
WAIT_AGAIN_SECONDS = 300.0

# A unit that ended its process ten times in a row would do so an eleventh time.
TAKEOVERS_MAX = 10
# Nothing we store waits longer than the longest of: an hour of backoff, ten leases, a provider's limit.
# What is due later than this was written by a clock that had jumped.
FARTHEST_JOB_SECONDS = 24 * 3600
FARTHEST_PLAN_SECONDS = INTERVAL_MAX_SECONDS + 24 * 3600

# A job overdue this long on a volume that cannot be reached is shown as PAUSED, with the reason.
OVERDUE_SECONDS = 15 * 60
DUE_PLANS_MAX = 16
ERRORS_KEPT = 20


@dataclass(frozen=True)
class Setback:
    """What a unit that could not be done makes of its job.

    ``delay_seconds`` counts from the settle; ``page_size`` is the size of the next page. ``said``: the last
    event of the job says the same, so this one is not recorded.
    """

    state: State
    code: Code
    params: dict[str, object]
    failures: int
    delay_seconds: float
    page_size: int
    event: Event
    said: bool = False


def backoff(failures: int, jitter: Callable[[], float] = random.random) -> float:
    """Return the seconds to wait after the nth failure in a row: doubling, jitter over the upper half."""
    full = min(BACKOFF_MAX_SECONDS, BACKOFF_FIRST_SECONDS * 2.0 ** (failures - 1))
    return full / 2 + full / 2 * jitter()


def setback(job: Job, trouble: Trouble, jitter: Callable[[], float] = random.random) -> Setback:
    """Decide what ``trouble`` makes of ``job``: tried again, paused, or failed."""
    code, params = trouble.code, dict(trouble.params)
    if isinstance(trouble, TooMuch):
        if job.page_size > 1:
            half = job.page_size // 2
            event = Event("page-halved", "info", done=True, reason_code=code, reason_params=params)
            return Setback(State.PENDING, code, params, job.failures, 0.0, half, event)
        code = Code.BATCH_TOO_LARGE
    if isinstance(trouble, Waits):
        waits = Event("unit-waits", "info", done=False, reason_code=code, reason_params=params)
        # It may wait for days: asked again and again, and said once.
        said = bool(job.errors) and _same_cause(job.errors[-1], code, params)
        return Setback(
            State.PENDING,
            code,
            params,
            job.failures,
            WAIT_AGAIN_SECONDS if said else WAIT_SECONDS,
            job.page_size,
            waits,
            said,
        )
    if isinstance(trouble, Missing):
        event = Event("job-paused", "warning", done=False, reason_code=code, reason_params=params)
        return Setback(State.PAUSED, code, params, job.failures, 0.0, job.page_size, event)
    failures = job.failures + 1
    if isinstance(trouble, Passing) and failures < FAILURES_MAX:
        page = max(1, job.page_size // 2) if params.get("cause") in SHRINKING else job.page_size
        event = Event("unit-failed", "warning", done=False, reason_code=code, reason_params=params)
        return Setback(
            State.PENDING, code, params, failures, backoff(failures, jitter), page, event
        )
    event = Event("job-failed", "error", done=False, reason_code=code, reason_params=params)
    return Setback(State.FAILED, code, params, failures, 0.0, job.page_size, event)


def _same_cause(entry: dict[str, Any], code: Code, params: dict[str, object]) -> bool:
    return bool(entry["code"] == code and entry["params"].get("cause") == params.get("cause"))


# A shorter page may get through where these stopped a longer one.
SHRINKING = frozenset({"timeout", "recovery-conflict"})


def barred(
    job: Job, policy: tuple[int | None, bool | None], *, namespace_enabled: bool
) -> Code | None:
    """Return why ``job`` may export nothing more, given its policy's revision and switch now."""
    if not namespace_enabled:
        return Code.PERMISSION_DENIED
    if job.policy_revision is not None and policy != (job.policy_revision, True):
        return Code.POLICY_CHANGED
    return None


def grown(job: Job) -> int:
    """Return the size of the page after one that succeeded."""
    return min(job.batch_size, job.page_size * 2)


class Action(StrEnum):
    """What an operator may do to a job."""

    RETRY = "retry"
    ABANDON = "abandon"
    PAUSE = "pause"
    RESUME = "resume"


ALLOWED: dict[Action, frozenset[State]] = {
    Action.RETRY: frozenset({State.FAILED}),
    Action.ABANDON: frozenset({State.PENDING, State.RUNNING, State.PAUSED, State.FAILED}),
    Action.PAUSE: frozenset({State.PENDING, State.RUNNING}),
    Action.RESUME: frozenset({State.PAUSED}),
}
RESULT: dict[Action, State] = {
    Action.RETRY: State.PENDING,
    Action.ABANDON: State.ABANDONED,
    Action.PAUSE: State.PAUSED,
    Action.RESUME: State.PENDING,
}


def act(job: Job, action: Action, *, revision: int | None, max_bytes: int | None) -> State:
    """Return the state that ``action`` leads to.

    Raises ``Refused`` when the state does not allow it, the operator saw another revision, or the
    budget would shrink or change with anything but a retry.
    """
    if revision is not None and revision != job.revision:
        raise Refused(Code.REVISION_STALE, seen=revision, current=job.revision)
    if job.state not in ALLOWED[action]:
        raise Refused(
            Code.ACTION_NOT_ALLOWED,
            action=str(action),
            state=str(job.state),
            allowed=sorted(str(state) for state in ALLOWED[action]),
        )
    if max_bytes is not None:
        if action is not Action.RETRY or max_bytes < job.max_bytes:
            raise Refused(Code.BUDGET_SMALLER, current=job.max_bytes, asked=max_bytes)
        within(max_bytes, BUDGET_MIN, BUDGET_MAX, "max_bytes")
    return RESULT[action]


def within(value: int, lowest: int, highest: int, name: str) -> int:
    """Return ``value``; raises ``Refused`` when it lies outside ``lowest`` to ``highest``."""
    if not lowest <= value <= highest:
        raise Refused(
            Code.VALUE_OUT_OF_RANGE, name=name, value=value, lowest=lowest, highest=highest
        )
    return value
