"""The zips that ``make package`` makes, and the runtime's own client: made once for all workers of a run."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from infra import packaging

# What `make test` fetched beforehand for this interpreter; without it pip asks its index.
WHEELS = packaging.ROOT / "build" / "wheels"
CLIENT_LOCK = packaging.ROOT / "requirements" / "runtime.txt"


class Workshop:
    """A directory that all workers of a run share; what one of them makes there the others find."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        """Find the directory: the workers' own lie side by side in it."""
        base = factory.getbasetemp()
        self.place = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def package(self, name: str, times: int = 1) -> Path:
        """Return the zip of a target; with ``times`` another one, packed again from the start."""
        target = packaging.targets(packaging.found(None) or "")[name]
        return self._once(f"package-{times}/tallystick-{name}.zip", self._pack(target))

    def unpacked(self, name: str) -> Path:
        """Return the zip of a target as a directory."""
        zipped = self.package(name)

        def unpack(place: Path) -> None:
            with zipfile.ZipFile(zipped) as file:
                file.extractall(place)

        return self._once(f"unpacked/{name}", unpack)

    def client(self, interpreter: str) -> Path:
        """Return a directory with the runtime's client for an interpreter."""

        def install(place: Path) -> None:
            pip = (sys.executable, "-m", "pip", "--python", interpreter, "install", "--quiet")
            how = ("--no-deps", "--only-binary=:all:", "--require-hashes", "--target", place)
            subprocess.run(
                [*pip, *how, "-r", CLIENT_LOCK], check=True, env=os.environ | variables(interpreter)
            )

        return self._once(f"client{interpreter.replace('/', '-')}", install)

    def _pack(self, target: packaging.Target) -> Callable[[Path], None]:
        def pack(path: Path) -> None:
            asked = (sys.executable, "-m", "infra.packaging", target.name, "--to", path.parent)
            subprocess.run(
                asked,
                cwd=packaging.ROOT,
                env=os.environ | variables(target.interpreter),
                check=True,
            )

        return pack

    def _once(self, name: str, make: Callable[[Path], None]) -> Path:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(f"{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = path.with_name(f"{path.name}.done")
            if not done.exists():
                make(path)
                done.touch()
        return path


def variables(interpreter: str) -> dict[str, str]:
    """Return what makes pip use the wheels that were fetched, where they are and are of that release."""
    if interpreter != sys.executable or not (WHEELS / "ready").is_file():
        return {}
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(WHEELS)}
