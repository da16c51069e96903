"""Run a tick in a process of its own, and let something happen to it at a chosen system call."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shared.tick import Node
from tests.crash.follow import Act, Change


@dataclass(frozen=True)
class Run:
    """How a tick went: its calls that touch volume or database, the ones acted at, its changes, and its end.

    ``report`` is None for a process that was killed, by ``signal``; ``held`` says that it stands still.
    """

    held: bool
    calls: tuple[tuple[str, str], ...]
    hits: tuple[tuple[str, str], ...]
    report: dict[str, Any] | None
    signal: int | None
    changes: tuple[Change, ...] = ()

    @property
    def code(self) -> str | None:
        """Return the code of the report, if it has one."""
        return self.report["code"] if self.report else None

    @property
    def holds_lock(self) -> bool:
        """Tell whether a process that stands still here has asked for the volume's lock, and not left it."""
        asked = ("fcntl", ".lock") in self.calls[:-1]
        return asked and ("close", ".lock") not in self.calls[:-1]


def stands(run: Run, act: Act) -> bool:
    """Tell whether a process stands still where it was to be held.

    How many messages a tick takes depends on what arrives together: it may end with fewer calls of a kind
    than another made. Anything else is a fault of the test.
    """
    made = sum(kind == act.kind for kind, _ in run.calls)
    assert run.held or (made < act.nth and run.report is not None), run
    return run.held


class Launcher:
    """The process that forks ticks; one at a time."""

    def __init__(self) -> None:
        """Start it; its imports take a moment, once."""
        self._held = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.launcher"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def run(
        self,
        node: Node,
        *acts: Act,
        operation: str | None = None,
        timeout: float | None = None,
    ) -> Run:
        """Tick once; with ``timeout`` (seconds) under the watchdog."""
        if self._held:
            # A trial that broke off has left it so.
            self.go_on()
        plain = {
            **{name: getattr(node, name) for name in node.__dataclass_fields__},
            "kinds": [vars(kind) for kind in node.kinds],
            "root": str(node.root),
            "sources": dict(node.sources),
        }
        return self._asked(
            {
                "node": plain,
                "acts": [asdict(act) for act in acts],
                "operation": operation,
                "timeout": timeout,
            }
        )

    def go_on(self) -> Run:
        """Let a process that is held run on."""
        return self._asked({})

    def close(self) -> None:
        """End the launcher, and with it whatever is held."""
        self._process.kill()
        self._process.communicate()

    def _asked(self, question: dict[str, Any]) -> Run:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the launcher ended with {self._process.wait()}"
        said = json.loads(line)
        self._held = said["held"]
        calls, hits = (tuple((kind, what) for kind, what in said[key]) for key in ("calls", "hits"))
        changes = tuple(
            Change(**{**change, "data": bytes.fromhex(change["data"])})
            for change in said["changes"]
        )
        return Run(said["held"], calls, hits, said["report"], said["signal"], changes)


@contextmanager
def launcher() -> Iterator[Launcher]:
    """Start a launcher and end it."""
    made = Launcher()
    try:
        yield made
    finally:
        made.close()
