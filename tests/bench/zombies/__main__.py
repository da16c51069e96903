"""The same zombies and restarts for several job systems: ``python -m tests.bench.zombies [--rounds N]``.

Prints what was seen, one line a trial; asserts nothing. Logs of the workers stay in ``--home``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from shared.db import embedded
from tests.bench import environment
from tests.bench.zombies.scenarios import ALONE, SCENARIOS
from tests.bench.zombies.systems import SYSTEMS, Tried
from tests.bench.zombies.trial import Seen, trial

PINS = Path(__file__).with_name("peers.txt")
NAMES = [tried.name for tried in SYSTEMS]


def main() -> None:
    """Run every scenario against every system, the systems beside each other."""
    asked = _asked()
    tried = [each for each in SYSTEMS if each.name in asked.systems]
    python = environment.made(PINS)
    print("| Round | Scenario | System | Effects | State | History | Remark |\n|" + "---|" * 7)
    with ExitStack() as stack:
        home = stack.enter_context(_home(asked.home))
        # Made here, once: the trials share it.
        embedded.start(home / "server")
        stack.callback(embedded.stop, home / "server")
        pool = stack.enter_context(ThreadPoolExecutor())
        for number in range(1, asked.rounds + 1):
            for scenario in asked.scenarios:
                run = partial(_run, python, home, scenario, number)
                for each, seen in zip(tried, pool.map(run, tried), strict=True):
                    print(_row(number, scenario, each, seen), flush=True)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.zombies")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--systems", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--scenarios", nargs="*", choices=list(SCENARIOS), default=list(SCENARIOS))
    parser.add_argument("--home", type=Path)
    return parser.parse_args()


def _run(python: Path, home: Path, scenario: str, number: int, tried: Tried) -> Seen:
    here = home / f"{scenario}-{number}" / tried.name
    runs = Path(sys.executable) if tried.ours else python
    with ExitStack() as stack:
        server = home / "server"
        if scenario in ALONE:
            server = here / "server"
            stack.callback(embedded.stop, server)
        return SCENARIOS[scenario](stack.enter_context(trial(tried, runs, server, here)))


def _row(number: int, scenario: str, tried: Tried, seen: Seen) -> str:
    effects = ", ".join(seen.effects) or "none"
    cells = (str(number), scenario, tried.name, effects, seen.state, seen.history, seen.remark)
    return f"| {' | '.join(cells)} |"


@contextmanager
def _home(asked: Path | None) -> Iterator[Path]:
    if asked is not None:
        yield asked
        return
    with tempfile.TemporaryDirectory(prefix="tallystick-zombies-") as made:
        yield Path(made)


if __name__ == "__main__":
    main()
