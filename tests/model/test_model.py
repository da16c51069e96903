"""The rules of claim, publish and settle as a model: every order of steps tried, every fault in each."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("tallystick.pml")
# Far deeper than any run of the model with its rules intact; a broken one may go round for long.
DEPTH_MAX = 1_000_000
# Lossless: states are stored whole, and nothing is left out of the search.
SAFETY = ("-DSAFETY",)
# The last is how many processes weak fairness has to reckon with, in words of 32 bits.
LIVENESS = ("-DNFAIR=3",)
BYTES_MAX = ("-DMEMLIM=2900",)

pytestmark = [pytest.mark.system, pytest.mark.timeout(1200)]

Run = Callable[..., "Result"]

# What may go wrong, and how often, in each of the models that must hold.
FAULTS = {
    "nothing": "",
    "three-rows": "ROWS=3 ZOMBIES=1 LOCKS_LOST=1",
    "errors": "CRASHES=1 ZOMBIES=1 LOCKS_LOST=1 ERRORS=1",
    "zombies": "ZOMBIES=2 LOCKS_LOST=1",
    "silence": "ZOMBIES=1 LOCKS_LOST=1 SILENCES=1",
    "failover": "ZOMBIES=1 LOCKS_LOST=1 FAILOVERS=1",
    "power-cut": "CRASHES=1 ZOMBIES=1 LOCKS_LOST=1 POWER_CUTS=1",
    "operators": "ZOMBIES=1 LOCKS_LOST=1 PAUSES=1 ABANDONS=1",
    "operators-and-failover": "LOCKS_LOST=1 PAUSES=1 FAILOVERS=1",
    "spoiled-volume": "CRASHES=1 ZOMBIES=1 LOCKS_LOST=1 FOREIGN_FILES=1 RESTORES=1 RETRIES=1",
}

# A rule that is broken, the faults under which it matters, and the promise that falls.
BROKEN = {
    "no-fence": ("NO_FENCE ZOMBIES=1 LOCKS_LOST=1", "settled_by_stale"),
    "no-fence-data": ("NO_FENCE DATA_ONLY ZOMBIES=1 LOCKS_LOST=1", "position_skipped"),
    "fence-of-generation-only": (
        "FENCE_GENERATION_ONLY DATA_ONLY ZOMBIES=1 LOCKS_LOST=1 FAILOVERS=1",
        "position_skipped",
    ),
    "fence-without-owner": (
        "FENCE_WITHOUT_OWNER ZOMBIES=1 LOCKS_LOST=1 FAILOVERS=1",
        "settled_by_stale",
    ),
    "fence-without-lease": (
        "FENCE_WITHOUT_LEASE ZOMBIES=1 LOCKS_LOST=1 FAILOVERS=1",
        "recorded_without_file",
    ),
    "rename": ("RENAME ZOMBIES=1 LOCKS_LOST=1", "recorded_without_file"),
    "lease-shorter-than-deadline": ("SHORT_LEASE LOCKS_LOST=1", "two_workers"),
    "action-ends-lease": ("ACTION_ENDS_LEASE LOCKS_LOST=1 PAUSES=1", "two_workers"),
    # What was found is taken unseen: here a job that had ended in between.
    "claim-in-two-statements": ("CLAIM_IN_TWO LOCKS_LOST=1", "batch_after_end"),
    "settle-from-page": ("SETTLE_FROM_PAGE ZOMBIES=1 LOCKS_LOST=1", "rows_lost_or_doubled"),
    "adoption-without-after": ("ADOPT_WITHOUT_AFTER FOREIGN_FILES=1", "rows_lost_or_doubled"),
    "seal-of-its-own": ("SEAL ZOMBIES=1 LOCKS_LOST=1", "batch_after_end"),
    "no-last-look-at-the-claim": ("NO_RECHECK ZOMBIES=1 LOCKS_LOST=2", "recorded_without_file"),
    "no-look-at-the-batch-before": ("NO_TAIL_CHECK RESTORES=1", "built_on_a_gap"),
    "no-fsync": ("NO_FSYNC POWER_CUTS=1", "recorded_without_file"),
    "adoption-without-fsync": (
        "ADOPT_WITHOUT_FSYNC CRASHES=1 POWER_CUTS=1",
        "recorded_without_file",
    ),
    "no-takeover": ("NO_TAKEOVER CRASHES=1", "stuck"),
    "no-adoption": ("NO_ADOPTION CRASHES=1 RETRIES=1", "stuck"),
}


def faults_of(variant: str) -> str:
    return " ".join(sorted(each for each in variant.split() if "=" in each))


FINITE = "LIVENESS CRASHES=1 ZOMBIES=1 SILENCES=1 PAUSES=1"
STARVED = {
    "no-takeover": "LIVENESS NO_TAKEOVER CRASHES=1",
    "no-adoption": "LIVENESS NO_ADOPTION CRASHES=1 RETRIES=1",
    "lease-shorter-than-deadline": "LIVENESS SHORT_LEASE",
    "looking-back-for-ever": "LIVENESS LOOK_FOR_EVER ZOMBIES=1",
}


@dataclass(frozen=True)
class Result:
    """What the checker said: errors found, states stored, depth reached, the promise that fell."""

    text: str

    def number(self, pattern: str) -> int:
        found = re.search(pattern, self.text)
        assert found, self.text
        return int(found[1])

    @property
    def errors(self) -> int:
        return self.number(r"errors: (\d+)")

    @property
    def fallen(self) -> str | None:
        found = re.search(r"assertion violated\s+!\(?(\w+)\)?", self.text)
        return found[1] if found else None

    def check_whole(self) -> None:
        """A search that was cut short has shown nothing."""
        for cut in ("max search depth too small", "out of memory", "Search not completed"):
            assert cut not in self.text, self.text
        assert "Bit statespace" not in self.text
        assert "hash-compact" not in self.text.lower()


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Run:
    """Make a checker of a variant of the model, run it, and print what it cost."""

    def call(*command: str) -> str:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def run(variant: str, compiled: tuple[str, ...] = SAFETY, *options: str) -> Result:
        defined = [f"-D{each}" for each in variant.split()]
        call("spin", *defined, "-a", str(MODEL))
        call("gcc", "-O2", "-w", *compiled, *BYTES_MAX, "-o", "pan", "pan.c")
        result = Result(call("nice", "./pan", f"-m{DEPTH_MAX}", *options))
        states = result.number(r"(\d+) states, stored")
        depth = result.number(r"depth reached (\d+)")
        seconds = re.search(r"elapsed time ([\d.]+)", result.text)
        took = seconds[1] if seconds else "?"
        print(
            f"{request.node.name}: {states} states, depth {depth}, {took} s, fell: {result.fallen}"
        )
        return result

    return run


@pytest.mark.parametrize("variant", FAULTS.values(), ids=FAULTS)
def test_every_promise_holds_in_every_order_of_steps(run: Run, variant: str) -> None:
    result = run(variant)
    result.check_whole()
    assert result.errors == 0, result.fallen


@pytest.mark.parametrize(("variant", "promise"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_breaks_a_promise(run: Run, variant: str, promise: str) -> None:
    result = run(variant)
    assert result.errors == 1
    assert result.fallen == promise


@pytest.mark.parametrize(
    "faults", sorted({faults_of(variant) for variant, _ in BROKEN.values()}), ids=str
)
def test_under_the_same_faults_the_unbroken_rules_hold(run: Run, faults: str) -> None:
    """What refutes a broken rule must be the rule: the faults of each alone break nothing."""
    result = run(faults)
    result.check_whole()
    assert result.errors == 0, result.fallen


def test_with_finitely_many_faults_every_job_succeeds(run: Run) -> None:
    result = run(FINITE, LIVENESS, "-a", "-f")
    result.check_whole()
    assert "never claim         \t+" in result.text
    assert "fairness enabled" in result.text
    assert result.errors == 0


@pytest.mark.parametrize("variant", STARVED.values(), ids=STARVED)
def test_a_broken_rule_leaves_a_job_open_for_ever(run: Run, variant: str) -> None:
    result = run(variant, LIVENESS, "-a", "-f")
    assert result.errors == 1
    assert "acceptance cycle" in result.text


def test_with_random_owners_position_and_tail_in_the_fence_are_a_second_guard(run: Run) -> None:
    """Nothing refutes a fence of owner, generation and lease alone; that they cost nothing keeps them."""
    result = run("FENCE_WITHOUT_POSITION ZOMBIES=1 LOCKS_LOST=1 FAILOVERS=1")
    result.check_whole()
    assert result.errors == 0, result.fallen
