"""How much of a sweep is tried: all, or with TALLYSTICK_TEST_EVERY one point in so many of each kind.

The first of each kind is always among them, so a smaller sweep tries every kind of fault all the same.
A number that has no divisor in common with the ways of failing at one point (2 and 5) and the bits of a byte,
7 for one, gives all of them their turn.
"""

from __future__ import annotations

import os

# Read before any test runs: a test sees none of the developer's own settings.
EVERY = int(os.environ.get("TALLYSTICK_TEST_EVERY", "1"))


def share(at: int, shares: int) -> slice:
    """Return what is tried of one of so many equal shares of a sweep."""
    return slice(at, None, shares * EVERY)
