"""A machine of its own for a test: user-mode Linux, whose root is the host's, read-only."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PACKAGES = CHECKOUT / "build" / "nfs" / "root"
MEMORY = "768M"
POLL_SECONDS = 0.05


class Guest:
    """A guest that runs; it ends by itself, or by ``cut``."""

    def __init__(self, role: str, out: Path, disk: Path | None = None) -> None:
        """Boot it: ``out`` is the directory of the host it may write to, ``disk`` an image with ext4."""
        self.out = out
        with (out / "console").open("ab") as console:
            self._process = subprocess.Popen(
                [
                    PACKAGES / "usr/bin/linux.uml",
                    *(f"mem={MEMORY}", "root=none", "rootfstype=hostfs", "rootflags=/", "ro"),
                    f"init={Path(__file__).parent / 'init.sh'}",
                    *("con=null", "con0=null,fd:1", "quiet", f"uml_dir={out}", "umid=guest"),
                    *(f"CHECKOUT={CHECKOUT}", f"PACKAGES={PACKAGES}", f"OUT={out}", f"ROLE={role}"),
                    *([f"ubda={disk}"] if disk else []),
                ],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )

    def cut(self) -> None:
        """Take the power away, if it is on: its helpers too, which would keep the image."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self, seconds: float) -> None:
        """Wait until it has ended by itself."""
        self._process.wait(seconds)

    def until(self, met: Callable[[], bool], seconds: float) -> None:
        """Wait for something that the guest does; it must not end before."""
        ends = time.monotonic() + seconds
        while not met():
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < ends, self.said()
            time.sleep(POLL_SECONDS)

    def said(self) -> str:
        """Return the end of what is on its console."""
        return (self.out / "console").read_text(errors="replace")[-4000:]
