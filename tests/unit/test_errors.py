"""Errors are a code and parameters; their place in the tree says what becomes of the job."""

from __future__ import annotations

import pytest

from shared import errors
from shared.errors import (
    Busy,
    Code,
    Missing,
    Passing,
    Refused,
    Stale,
    TallystickError,
    TooMuch,
    Trouble,
    Uncertain,
    Verdict,
)


@pytest.mark.parametrize("kind", [Passing, TooMuch, Verdict, Missing])
def test_what_ends_a_unit_is_a_trouble(kind: type[Trouble]) -> None:
    assert issubclass(kind, Trouble)


@pytest.mark.parametrize("kind", [Refused, Busy, Stale, Uncertain])
def test_what_ends_an_invocation_sets_no_job_back(kind: type[TallystickError]) -> None:
    assert issubclass(kind, TallystickError)
    assert not issubclass(kind, Trouble)


def test_a_code_is_its_own_stable_name() -> None:
    for code in Code:
        assert code.value == code.name
        assert code.value.isupper()


def test_an_error_keeps_code_and_parameters_and_no_sentence() -> None:
    error = Verdict(Code.STORAGE_LIMIT, used=5, limit=4)
    assert (error.code, error.params) == (Code.STORAGE_LIMIT, {"used": 5, "limit": 4})
    assert str(error) == "STORAGE_LIMIT {'used': 5, 'limit': 4}"
    assert str(Stale(Code.CLAIM_LOST)) == "CLAIM_LOST"


def test_the_tree_in_the_docstring_names_every_class() -> None:
    drawn = errors.__doc__ or ""
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    names = [each.__name__ for each in classes if issubclass(each, TallystickError)]
    assert len(names) == 11
    assert [name for name in names if name not in drawn] == []
