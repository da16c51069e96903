"""A deployment carried out by hand: the commands of an example, as processes, on real parts."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.deploy import examples, image

STORAGE_ID = "0123456789abcdef" * 2
SIGNED = ("--actor", "tester", "--reason", "a test needs it")
COMPOSE_VARIABLES = {
    "POSTGRES_PASSWORD": "not used by this server",
    "TALLYSTICK_ARCHIVE_STORAGE_ID": STORAGE_ID,
}
# A user id without a name; with the second line, as the first process of a container.
AS_ANOTHER = ("unshare", "--user", "--map-user=65532", "--map-group=65532")
AS_THE_FIRST = (*AS_ANOTHER, "--pid", "--fork", "--kill-child")


@dataclass(frozen=True)
class Deployment:
    """Where the program is, and what stands in place of the database and paths of the example.

    ``within`` is what a loop is started by, if not directly: ``AS_ANOTHER`` or ``AS_THE_FIRST``.
    """

    programs: Path
    database: str
    root: Path
    kinds: Path
    within: tuple[str, ...] = ()

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of an example with the real parts put in; nothing else is inherited."""
        real = {
            "TALLYSTICK_DATABASE_URL": self.database,
            "TALLYSTICK_KINDS_FILE": str(self.kinds),
            "TALLYSTICK_ARCHIVE_ROOT": str(self.root),
            "TALLYSTICK_ARCHIVE_STORAGE_ID": STORAGE_ID,
        }
        parts = {name: real.get(name, value) for name, value in given.items()}
        return parts | {"PATH": f"{self.programs}:{os.defpath}"}

    def words(self, command: Sequence[str], given: Mapping[str, str]) -> list[str]:
        """Return a command with ``$(NAME)`` filled in and the place of the volume put in."""
        filled = []
        for word in command:
            text = word.replace("=/archive", f"={self.root}")
            for name, value in self.environment(given).items():
                text = text.replace(f"$({name})", value)
            filled.append(text)
        return filled

    def run(
        self, command: Sequence[str], given: Mapping[str, str], code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end and check its exit code."""
        ended = subprocess.run(
            self.words(command, given),
            env=self.environment(given),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == code, (command, ended.stdout, ended.stderr)
        return ended

    def plan(self, given: Mapping[str, str]) -> None:
        """Have something to do: the volume is to be scanned."""
        planned = ("plan", "set", "--operation", "scan", "--every", "1h", "--enable")
        self.run(("tallystick", *planned, *SIGNED), given)

    def ticks_until(self, what: str, command: Sequence[str], given: Mapping[str, str]) -> list[str]:
        """Start a loop, wait until a line begins with ``what``, end it by SIGTERM; return its lines.

        Checks that it ends by itself, and well.
        """
        with subprocess.Popen(
            [*self.within, *self.words(command, given)],
            env=self.environment(given),
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            lines = []
            try:
                for line in process.stdout:
                    lines.append(line)
                    if line.startswith(what):
                        break
                os.kill(self._of_the_loop(process.pid), signal.SIGTERM)
                lines += process.stdout
            finally:
                # Ends nothing that has ended.
                process.kill()
        assert process.returncode == 0, lines
        assert [line for line in lines if line.startswith(what)], lines
        return lines

    def _of_the_loop(self, pid: int) -> int:
        """Return the number of the loop, given that of the process that was started."""
        if "--fork" not in self.within:
            return pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def compose_service(name: str) -> tuple[list[str], dict[str, str]]:
    """Return command and variables of a service, with the entry point of the image before it."""
    service = examples.compose()["services"][name]
    given = {
        variable: examples.interpolated(value, COMPOSE_VARIABLES)
        for variable, value in service.get("environment", {}).items()
    }
    command = [examples.interpolated(word, COMPOSE_VARIABLES) for word in service["command"]]
    return image.final()["ENTRYPOINT"].words + command, given


def composed(here: Deployment) -> tuple[list[str], dict[str, str]]:
    """Do what compose does before the loop; return the loop."""
    for name in ("migrate", "volume"):
        here.run(*compose_service(name))
    return compose_service("loop")
