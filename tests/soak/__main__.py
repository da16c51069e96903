"""Everything at once, for minutes: ``python -m tests.soak [--seconds N] [--seed N] [--round N]``.

Processes tick for two volumes and are killed, stopped and lied to about their locks; leases run out early,
operators act, a disk fills up, Postgres is killed. After each round of it the judge looks at what is left.

The seed is printed first. Given again it draws the same steps, of one round with ``--round``; how processes
and server come to stand to each other at each of them is up to the machine, so a fault may take a few tries.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from shared.errors import Code
from shared.jobs.rules import ALLOWED, Action
from tests.crash.cluster import Cluster, running
from tests.crash.mould import copy_of
from tests.soak.chaos import Round, Step, What, chosen
from tests.soak.ticker import RAISED, Ticker, started
from tests.soak.world import Disk, World, small_disk, world
from tests.worlds import one

TICKERS = 6
# A round goes on for so long, unless everything was archived before.
ROUND_SECONDS = 20.0
LOOK_EVERY_STEPS = 20
TAKEOVERS = (
    "SELECT count(*) FROM tallystick.recovery_event WHERE type = 'job-reclaimed-after-restart'"
)
# What a tick may say of a full disk, a database that is gone, a claim that another has taken. Never that a
# batch, a chain or a source is not what it should be.
EXPECTED = {
    None,
    Code.CLAIM_LOST,
    Code.CRASH_LOOP,
    Code.DATABASE_UNAVAILABLE,
    Code.EXPORT_FAILED,
    Code.OUTCOME_UNKNOWN,
    Code.STORAGE_BUSY,
    Code.STORAGE_FAILED,
    Code.STORAGE_LIMIT,
}


@dataclass
class Turmoil:
    """One round while it lasts: its processes, and what is to end when."""

    round: Round
    world: World
    cluster: Cluster
    disk: Disk
    told: Path
    tickers: list[Ticker] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    _endings: list[tuple[float, Ticker | Disk]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Draw who is lied to."""
        self._lies = self.round.lies()

    def start(self) -> None:
        """Start a process; each volume has as many of them."""
        nodes = [here.node for here in self.world.stages]
        fewest = min(nodes, key=lambda node: sum(each.node is node for each in self.tickers))
        self.tickers.append(started(fewest, self.told, lied_to=next(self._lies)))

    def take(self, step: Step) -> None:
        """Let one thing happen."""
        time.sleep(step.pause_seconds)
        self._end_what_is_over()
        if self._happens(step):
            self.happened[step.what] += 1

    def over(self) -> None:
        """End all processes, and let there be room and a server again."""
        for each in self.tickers:
            each.kill()
        self.disk.free()
        self.cluster.start()

    def _happens(self, step: Step) -> bool:
        if step.what is What.KILL:
            return self._kill(step)
        if step.what is What.STOP:
            return self._stop(step)
        if step.what is What.TIME:
            self.world.time_passes()
        elif step.what is What.OPERATOR:
            return self._operate(step)
        elif step.what is What.FULL_DISK:
            self.disk.fill()
            self._endings.append((time.monotonic() + step.lasting_seconds, self.disk))
        else:
            self.cluster.kill()
            self.cluster.start()
        return True

    def _kill(self, step: Step) -> bool:
        ticker = chosen(self.tickers, step.which)
        assert ticker is not None
        ticker.kill()
        self.tickers.remove(ticker)
        self.start()
        return True

    def _stop(self, step: Step) -> bool:
        ticker = chosen([each for each in self.tickers if not each.stopped], step.which)
        if ticker is None:
            return False
        ticker.stop()
        self._endings.append((time.monotonic() + step.lasting_seconds, ticker))
        return True

    def _operate(self, step: Step) -> bool:
        actions = [
            (job, action)
            for job in self.world.jobs()
            for action in Action
            if job.state in ALLOWED[action]
            and (action is not Action.ABANDON or self.round.abandons)
        ]
        drawn = chosen(actions, step.which)
        return drawn is not None and self.world.operate(*drawn)

    def _end_what_is_over(self) -> None:
        now = time.monotonic()
        for ends, what in [each for each in self._endings if each[0] <= now]:
            self._endings.remove((ends, what))
            if isinstance(what, Disk):
                what.free()
            elif what in self.tickers:
                what.go_on()


def main() -> int:
    """Go through rounds until the time is over; returns 1 when one was judged unsound."""
    asked = _asked()
    seed = secrets.randbelow(10**9) if asked.seed is None else asked.seed
    _say(f"seed {seed}")
    happened: Counter[str] = Counter()
    ends = time.monotonic() + asked.seconds
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tallystick-soak-")))
        disk = stack.enter_context(small_disk(place))
        cluster = stack.enter_context(running(place))
        template = cluster.template()
        for number in count(1) if asked.round is None else [asked.round]:
            happens, faults = _round(Round(seed, number), cluster, template, disk, place)
            happened += happens
            _say(f"round {number}: {_listed(happens)}; {len(faults)} faults")
            if faults:
                _say(*(f"  {fault}" for fault in faults))
                _say(f"again: make soak ARGS='--seed {seed} --round {number}'")
                return 1
            if time.monotonic() >= ends:
                break
    _say(f"sound after {happened['rounds']} rounds: {_listed(happened)}")
    return 0


def _round(
    drawn: Round, cluster: Cluster, template: str, disk: Disk, place: Path
) -> tuple[Counter[str], list[str]]:
    """Go through one round and return what happened in it and what is wrong after it."""
    told = place / f"told-{drawn.number}"
    told.touch()
    roots = [place / "volume", disk.mount / "volume"]
    with copy_of(cluster.dsn, template) as dsn:
        made = world(dsn, roots)
        turmoil = Turmoil(drawn, made, cluster, disk, told)
        try:
            for _ in range(TICKERS):
                turmoil.start()
            _go_through(turmoil)
        finally:
            turmoil.over()
        made.recover()
        if drawn.abandons:
            made.scan_again()
        faults = made.faults(abandoned=drawn.abandons) + _unexpected(told)
        happened = turmoil.happened + Counter(
            rounds=1,
            ticks=len(told.read_text().splitlines()),
            units=sum(job.batches for job in made.jobs()),
            takeovers=one(dsn, TAKEOVERS),
        )
    for root in roots:
        shutil.rmtree(root)
    return happened, faults


def _go_through(turmoil: Turmoil) -> None:
    ends = time.monotonic() + ROUND_SECONDS
    for number, step in enumerate(turmoil.round.steps(), 1):
        turmoil.take(step)
        if time.monotonic() >= ends:
            return
        if number % LOOK_EVERY_STEPS == 0:
            jobs = turmoil.world.jobs()
            if jobs and all(job.state.closed for job in jobs):
                return


def _unexpected(told: Path) -> list[str]:
    """Return what ticks said that nothing which happened explains."""
    lines = [json.loads(line) for line in told.read_text().splitlines()]
    return sorted(
        {
            f"a tick {ending}: {code}"
            for ending, code in lines
            if ending == RAISED or code not in EXPECTED
        }
    )


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--round", type=int)
    return parser.parse_args()


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
