"""A soak can be gone through again: what its seed decides, it decides the same way each time."""

from __future__ import annotations

from itertools import islice

from tests.soak.chaos import WEIGHTS, Round, chosen


def drawn(seed: int, number: int) -> tuple[list[object], list[bool]]:
    one_round = Round(seed, number)
    return list(islice(one_round.steps(), 500)), list(islice(one_round.lies(), 500))


def test_the_same_seed_and_round_give_the_same_steps_and_lies() -> None:
    assert drawn(7, 3) == drawn(7, 3)


def test_another_seed_and_another_round_give_others() -> None:
    assert len({repr(drawn(seed, number)) for seed in (7, 8) for number in (3, 4)}) == 4


def test_everything_that_can_happen_happens_in_a_round() -> None:
    assert {step.what for step in islice(Round(7, 1).steps(), 500)} == set(WEIGHTS)


def test_whatever_is_there_can_be_chosen_and_nothing_else() -> None:
    assert [chosen("abc", which) for which in (0.0, 0.34, 0.999)] == ["a", "b", "c"]
    assert chosen([], 0.5) is None
