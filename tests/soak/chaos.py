"""What happens in a soak and when, drawn from a seed: the same seed gives the same steps."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

Thing = TypeVar("Thing")


class What(StrEnum):
    """What can happen to an installation while its processes tick."""

    KILL = "kill"
    STOP = "stop"
    TIME = "time"
    OPERATOR = "operator"
    FULL_DISK = "full disk"
    SERVER = "server"


# How often each happens, out of all of them.
WEIGHTS = {
    What.KILL: 45,
    What.STOP: 15,
    What.TIME: 20,
    What.OPERATOR: 13,
    What.FULL_DISK: 4,
    What.SERVER: 3,
}
MEAN_PAUSE_SECONDS = 0.18
# One process in so many is lied to about its lock, as by a server that has lost it.
LIED_TO = 4
# In one round of so many operators abandon jobs too; a directory may then end past what was recorded.
ABANDONING = 4


@dataclass(frozen=True)
class Step:
    """One thing that happens ``pause_seconds`` after the one before.

    ``which``, from 0 to 1, chooses among whatever is there then; ``lasting_seconds`` is how long a process
    stands still or a disk is full.
    """

    pause_seconds: float
    what: What
    which: float
    lasting_seconds: float


@dataclass(frozen=True)
class Round:
    """One round of a soak; each begins with a world of its own."""

    seed: int
    number: int

    @property
    def abandons(self) -> bool:
        """Tell whether operators abandon jobs in this round."""
        return self.number % ABANDONING == 0

    def steps(self) -> Iterator[Step]:
        """Yield what happens, without end."""
        dice = self._dice("steps")
        while True:
            yield Step(
                pause_seconds=dice.expovariate(1 / MEAN_PAUSE_SECONDS),
                what=dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0],
                which=dice.random(),
                lasting_seconds=dice.uniform(0.1, 2.0),
            )

    def lies(self) -> Iterator[bool]:
        """Yield for one process after another whether it is lied to about its lock."""
        dice = self._dice("lies")
        while True:
            yield dice.randrange(LIED_TO) == 0

    def _dice(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed} {self.number} {purpose}")


def chosen(among: Sequence[Thing], which: float) -> Thing | None:
    """Return the one that ``which`` (from 0 to 1) points at; None where there is none."""
    return among[int(which * len(among))] if among else None
