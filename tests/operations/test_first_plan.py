"""A plan can be made before it is enabled, on a volume that nothing has used yet."""

from __future__ import annotations

import json

from tests.golden.scenario import Shell

SIGNED = ("--actor", "tester", "--reason", "a test needs it")


def test_a_first_plan_can_be_made_that_is_not_enabled(deployment: Shell) -> None:
    assert deployment("policy", "set", "orders", "--after", "365d", *SIGNED).code == 0
    for option in ("--disable", None, "--enable"):
        more = [option] if option else []
        made = deployment("plan", "set", "orders", *more, "--json", *SIGNED)
        assert made.code == 0, made.err
        assert json.loads(made.out)["enabled"] is (option == "--enable")
