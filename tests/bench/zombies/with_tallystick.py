"""Tallystick's ticks, claims and settles, with an operation of the bench's own that needs no volume.

So nothing but the lease, the watchdog and the fence stands between a zombie and the job; with
``BENCH_UNWATCHED`` the watchdog doesn't either.
"""

from __future__ import annotations

import os
from contextlib import closing
from uuid import UUID

from shared import loop
from shared.db.migrate import migrate
from shared.jobs import steer
from shared.jobs.model import Claim, Progress
from shared.jobs.rules import Action
from shared.operations.registry import OPERATIONS
from shared.operations.work import Operation, Work
from shared.tick import Report, Wanted
from tests import worlds
from tests.bench.zombies.job import System, effect, obey, pause

NAME = "effect"
# The proportions of the defaults: 45, 50 and 120 seconds.
DEADLINE_SECONDS, TIMEOUT_SECONDS, LEASE_SECONDS = 5.0, 6.0, 10.0
NEVER_SECONDS = 3600.0


def install(url: str) -> None:
    """Make the tables."""
    migrate(url)


def submit(url: str) -> str:
    """Make the job."""
    with closing(worlds.control(url)) as control:
        return str(worlds.a_job(control, operation=NAME))


def work(url: str, worker: str, _place: str) -> None:
    """Tick until told to stop."""
    OPERATIONS[NAME] = lambda: operation(url, worker)
    node = worlds.node(
        url, None, None, deadline_seconds=DEADLINE_SECONDS, lease_seconds=LEASE_SECONDS
    )
    timeout_seconds = NEVER_SECONDS if "BENCH_UNWATCHED" in os.environ else TIMEOUT_SECONDS
    loop.every(node, Wanted(), timeout_seconds, 1.0, _told)


def stop(url: str, job: str) -> None:
    """Abandon the job."""
    _act(url, job, Action.ABANDON)


def again(url: str, job: str) -> None:
    """Take the job from whoever holds it, and let it go on at once."""
    _act(url, job, Action.PAUSE, Action.RESUME)


def operation(url: str, worker: str) -> Operation[str, str, str]:
    """Return the job as a kind of work, without the look for an earlier result that ours have."""

    def unit(_work: Work, claim: Claim) -> str:
        return str(claim.job.id)

    def do(_work: Work, job: str) -> str:
        pause(url, job, worker)
        effect(url, job, worker)
        return job

    def verify(_work: Work, _unit: str, done: str) -> str:
        return done

    def record(_unit: str, _proof: str) -> Progress:
        return Progress(
            seq=1, sha256=None, bytes=0, roots=1, evidence={}, checkpoint={}, tail=None, final=True
        )

    return Operation(NAME, False, unit, do, verify, record)


def _told(report: Report) -> None:
    print(report.outcome, flush=True)


def _act(url: str, job: str, *actions: Action) -> None:
    with closing(worlds.control(url)) as control:
        for action in actions:
            steer.act(control, UUID(job), action, worlds.SIGNED)


if __name__ == "__main__":
    obey(System(install, submit, work, stop, again))
