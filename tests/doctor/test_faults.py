"""Each fault is named, nothing else is, and what is printed beside it mends it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.faults import FAULTS
from tests.doctor.ward import Ward


def named(found: dict[str, Any]) -> str:
    cause = found["params"].get("cause")
    return f"{found['code']}/{cause}" if cause else str(found["code"])


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_what_is_printed_mends_it(ward: Ward, name: str) -> None:
    fault = FAULTS[name]
    fault.inject(ward)
    found = ward.findings()
    assert [named(each) for each in found] == list(fault.says)
    assert all(each["message"] and each["next"] for each in found)
    for mend, each in zip(fault.mend, found, strict=False):
        mend(ward, each)
    assert ward.findings() == []
