"""What happens to the job of a trial."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace

from shared.db import embedded
from tests.bench.zombies.job import PAUSE_SECONDS
from tests.bench.zombies.systems import OPEN
from tests.bench.zombies.trial import QUIET_SECONDS, Process, Seen, Trial, send, until

FIRST, SECOND = "first", "second"
NOBODY = "Nobody took the job."
# States of a job that a worker has.
TAKEN = {"picked", "doing", "RUNNING"}


def zombie_after(here: Trial) -> Seen:
    """The first freezes, a second finishes the job in its stead, and the first goes on."""
    first = _frozen(here)
    here.start(SECOND, place=FIRST)
    if not here.begun(SECOND):
        return _left_to(here, first, NOBODY)
    here.closed()
    before = here.stands()
    send(first, signal.SIGCONT)
    remark = _end(first)
    seen = here.seen(remark)
    if here.stands() == before:
        return seen
    return replace(seen, remark=f"{remark} The job was {before['state']}, {before['history']}.")


def zombie_during(here: Trial) -> Seen:
    """The first freezes, a second begins the job in its stead, and the first goes on beside it."""
    first = _frozen(here)
    here.start(SECOND, place=FIRST)
    return _beside(here, first)


def stopped(here: Trial) -> Seen:
    """The first freezes, an operator stops the job, and the first goes on when its pause is over."""
    first = _frozen(here)
    here.command("stop", here.job)
    told = here.stands()["state"]
    time.sleep(PAUSE_SECONDS)
    return _left_to(here, first, f"{told} when stopped.")


def retried(here: Trial) -> Seen:
    """The first freezes, an operator gives the job to a second, and the first goes on beside it."""
    first = _frozen(here)
    here.command("again", here.job)
    if (told := here.stands()["state"]) in TAKEN:
        return _left_to(here, first, f"Still {told} when retried.")
    here.start(SECOND)
    return _beside(here, first)


def killed(here: Trial) -> Seen:
    """The first is killed while a second stands by."""
    first = here.start(FIRST)
    here.begun(FIRST)
    here.start(SECOND)
    send(first, signal.SIGKILL)
    return _recovered(here, time.monotonic())


def replaced(here: Trial) -> Seen:
    """The first is killed, and a second started in its place."""
    first = here.start(FIRST)
    here.begun(FIRST)
    send(first, signal.SIGKILL)
    since = time.monotonic()
    here.start(SECOND, place=FIRST)
    return _recovered(here, since)


def server_restarted(here: Trial) -> Seen:
    """Postgres restarts in the middle of the job, and then there is another job."""
    here.start(FIRST)
    here.begun(FIRST)
    embedded.stop(here.server)
    embedded.start(here.server)
    remark = "" if _supervised(here) else "The job is stuck. "
    seen = here.seen()
    here.job = here.command("submit")
    remark += "The next job was done." if _supervised(here) else "The next job was not done."
    return replace(seen, remark=f"{remark} Workers that had ended: {len(here.workers) - 1}.")


SCENARIOS: dict[str, Callable[[Trial], Seen]] = {
    "zombie-after": zombie_after,
    "zombie-during": zombie_during,
    "stopped": stopped,
    "retried": retried,
    "killed": killed,
    "replaced": replaced,
    "server-restarted": server_restarted,
}
# What restarts its server can't share it.
ALONE = {"server-restarted"}


def _frozen(here: Trial) -> Process:
    first = here.start(FIRST)
    if not here.begun(FIRST):
        raise TimeoutError(here.tried.name)
    send(first, signal.SIGSTOP)
    return first


def _beside(here: Trial, first: Process) -> Seen:
    """Let the first go on once a second has begun, and say what the job's end rested on."""
    if not here.begun(SECOND):
        return _left_to(here, first, NOBODY)
    send(first, signal.SIGCONT)
    if not here.closed():
        return here.seen("The job is stuck.")
    at_its_end = ", ".join(here.names("effect")) or "nobody"
    return here.seen(f"Closed after the effect of: {at_its_end}. {_end(first)}")


def _left_to(here: Trial, first: Process, remark: str) -> Seen:
    """Let the first go on, with nobody else there."""
    send(first, signal.SIGCONT)
    return here.seen(f"{remark} {_end(first)}")


def _recovered(here: Trial, since: float) -> Seen:
    if not here.begun(SECOND):
        return here.seen(NOBODY)
    seconds = time.monotonic() - since
    here.closed()
    return here.seen(f"Taken after {seconds:.1f} s.")


def _end(worker: Process) -> str:
    try:
        code = worker.wait(QUIET_SECONDS)
    except subprocess.TimeoutExpired:
        return "The first lives."
    return f"The first ended with {code}."


def _supervised(here: Trial) -> bool:
    """Wait until nobody has the job, starting the worker again when it ended, as a service manager does."""

    def met() -> bool:
        if here.workers[-1].poll() is not None:
            here.start(f"{FIRST}-{len(here.workers) + 1}", place=FIRST)
        return here.stands()["state"] not in OPEN

    return until(met)
