"""A fresh virtual environment, and a shell in which its programs come first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Installed:
    """An environment, the wheels that may be installed into it, and where its user works."""

    place: Path
    shelf: Path
    work: Path

    def shell(
        self, script: str, given: Mapping[str, str] | None = None, *, code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Run a script as its user would type it, and check how it ends."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.work,
            env=self.variables() | dict(given or {}),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def variables(self) -> dict[str, str]:
        """Return the variables of its user: pip finds the shelf and nothing else."""
        ours = ("TALLYSTICK_", "PIP_", "PYTHON", "AWS_")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
        return kept | {
            "PATH": f"{self.place / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.shelf),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "TALLYSTICK_HOME": str(self.work / "home"),
        }


def installed(wheel: Path, shelf: Path, place: Path) -> Installed:
    """Make an environment with our wheel and what it needs, and no extra."""
    subprocess.run([sys.executable, "-m", "venv", place / "environment"], check=True)
    (place / "work").mkdir()
    made = Installed(place / "environment", shelf, place / "work")
    made.shell('python -m pip install --quiet "$WHEEL"', {"WHEEL": str(wheel)})
    return made
