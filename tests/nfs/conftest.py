"""Tests below ``inside`` run in the guest only, where two clients have the same export mounted."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("TALLYSTICK_TEST_NFS") else ["inside"]
