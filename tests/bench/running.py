"""Runs commands under ``weigh.py``, with the Postgres tools of the very release that the server is."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.db import embedded
from tests.bench import weigh
from tests.bench.cost import Cost

TALLYSTICK = str(Path(sys.executable).with_name("tallystick"))


@dataclass(frozen=True)
class Ran:
    """What a command cost, and what it printed."""

    cost: Cost
    output: str


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> Ran:
    """Run a command to its end; raises ``CalledProcessError`` where it fails."""
    with tempfile.NamedTemporaryFile() as file:
        done = subprocess.run(
            [sys.executable, "-IS", weigh.__file__, file.name, *map(str, command)],
            env=_environment() | dict(env or {}),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        seconds, cpu_seconds, peak_bytes = Path(file.name).read_text("ascii").split()
    return Ran(Cost(float(seconds), float(cpu_seconds), int(peak_bytes)), done.stdout)


def shell(script: str) -> Ran:
    """Run a shell script to its end; a command of it that fails, also within a pipe, fails it."""
    return run("bash", "-euo", "pipefail", "-c", script)


def tallystick(*arguments: str | Path, **settings: str | Path) -> Ran:
    """Run our command with these settings, given by their names in small letters."""
    env = {f"TALLYSTICK_{name.upper()}": str(value) for name, value in settings.items()}
    return run(TALLYSTICK, *arguments, env=env)


def quoted(*words: str | Path) -> str:
    """Return words as a shell reads them."""
    return shlex.join(map(str, words))


def _environment() -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TALLYSTICK_")}
    return ours | {"PATH": f"{embedded._wheel_binaries()}{os.pathsep}{os.environ['PATH']}"}
