"""No false alarm: what is in order is said to be, and nothing is changed by asking."""

from __future__ import annotations

from tests.doctor.ward import Ward


def test_a_healthy_installation_has_nothing_to_find(ward: Ward) -> None:
    found = ward.doctor()
    assert found["findings"] == []
    assert found["worst"] == "ok"
    assert {each["severity"] for each in found["subjects"]} == {"ok"}
    assert {each["skipped_for"] for each in found["subjects"]} == {None}
