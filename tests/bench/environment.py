"""Environments for peers, each with exactly the releases that a file of pins names."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build"


def made(pins: Path) -> Path:
    """Make the environment once, and return its Python."""
    digest = hashlib.sha256(pins.read_bytes()).hexdigest()
    place = BUILD / f"{pins.stem}-{digest[:16]}"
    python, ready = place / "bin" / "python", place / "ready"
    if ready.exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", pins], check=True)
    ready.touch()
    return python
