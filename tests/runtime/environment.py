"""Execution environments as the platform keeps them: started, fed one event at a time, frozen, killed."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.runtime.api import Event, RuntimeApi, Said, failure

# The platform allows its own machines ten seconds; a busy one of ours must manage.
INIT_SECONDS = 60.0


@dataclass(frozen=True)
class Function:
    """What is invoked: a handler of an unpacked package, what runs it, its settings and its timeout.

    ``client`` is the directory of the runtime's own client, apart from the package as on the platform.
    """

    handler: str
    task_root: Path
    client: Path
    interpreter: str
    settings: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 60.0

    def variables(self, address: str) -> dict[str, str]:
        """Return the environment of its processes: what the platform sets, then the settings, no more."""
        return {
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024",
            "AWS_LAMBDA_FUNCTION_NAME": "tallystick",
            "AWS_LAMBDA_FUNCTION_VERSION": "1",
            "AWS_LAMBDA_RUNTIME_API": address,
            "AWS_REGION": "eu-central-1",
            "LAMBDA_TASK_ROOT": str(self.task_root),
            "LANG": "en_US.UTF-8",
            "PATH": os.defpath,
            "PYTHONPATH": f"{self.task_root}{os.pathsep}{self.client}",
            "TZ": ":UTC",
            **self.settings,
        }


@dataclass(frozen=True)
class Answer:
    """What came of an invocation: its payload, the type of its error if it is one, and what it logged."""

    payload: Any
    error: str | None
    lines: tuple[str, ...]

    @property
    def ticks(self) -> list[dict[str, Any]]:
        """Return the log lines of ticks."""
        return [json.loads(line) for line in self.lines if '"message":"tick"' in line]

    @property
    def metrics(self) -> list[str]:
        """Return the lines of metrics."""
        return [line for line in self.lines if line.startswith('{"_aws"')]


class Environment:
    """One process, good for one event at a time, frozen whenever it has none, and for none once dead."""

    def __init__(self, function: Function, log: Path) -> None:
        """Start the process; all it writes goes into one file, as it goes into one log on the platform."""
        self._function, self._log, self._read = function, log, 0
        self._api = RuntimeApi()
        self._frozen = False
        self.alive = True
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                # -S: what is installed beside this interpreter is no part of the package.
                [function.interpreter, "-S", "-m", "awslambdaric", function.handler],
                cwd=function.task_root,
                env=function.variables(self._api.address),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        threading.Thread(target=self._watch, daemon=True).start()

    def invoke(self, payload: bytes) -> Answer:
        """Deliver an event, return what came of it, and freeze the process until the next."""
        if not self._frozen:
            begun = self._hear(INIT_SECONDS)
            if begun.what != "next":
                return self._over(begun)
        self._frozen = False
        self.send(signal.SIGCONT)
        event = Event(str(uuid4()), payload, time.time() + self._function.timeout_seconds)
        self._api.events.put(event)
        said = self._hear(self._function.timeout_seconds)
        # Until it asks for more the invocation is not over, and its time may still run out.
        if said.what == "end" or self._hear(event.ends_at - time.time()).what != "next":
            return self._over(said)
        self.send(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        self._frozen = True
        return self._answer(said)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to every process of the environment."""
        os.killpg(self.process.pid, number)

    def end(self) -> None:
        """Kill what is left, without a word, as the platform does."""
        self.alive = False
        if self.process.poll() is None:
            self.send(signal.SIGKILL)
        self.process.wait()
        self._api.close()

    def _over(self, said: Said) -> Answer:
        self.end()
        return self._answer(said)

    def _answer(self, said: Said) -> Answer:
        with self._log.open("rb") as file:
            file.seek(self._read)
            written = file.read()
        self._read += len(written)
        return Answer(json.loads(said.body), said.error, tuple(written.decode().splitlines()))

    def _hear(self, seconds: float) -> Said:
        """Return what the client says in that time; its silence and its end are errors of the platform's."""
        try:
            return self._api.said.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            text = f"Task timed out after {self._function.timeout_seconds:.2f} seconds"
            return failure("end", "Sandbox.Timedout", text)

    def _watch(self) -> None:
        code = self.process.wait()
        how = f"signal: {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        text = f"Runtime exited with error: {how}"
        self._api.said.put(failure("end", "Runtime.ExitError", text))


class Platform:
    """The environments of one function: as many as there are events at once, used again while they live."""

    def __init__(self, function: Function, logs: Path) -> None:
        """Begin without an environment; each keeps a log of its own in the directory ``logs``."""
        self._function, self._logs = function, logs
        self._lock = threading.Lock()
        self._idle: list[Environment] = []
        self.environments: list[Environment] = []

    def invoke(self, event: object) -> Answer:
        """Have an event handled by an idle environment, or by one more."""
        with self._lock:
            self._idle = [each for each in self._idle if each.process.poll() is None]
            taken = self._idle.pop() if self._idle else self._one_more()
        answer = taken.invoke(json.dumps(event).encode())
        if taken.alive:
            with self._lock:
                self._idle.append(taken)
        return answer

    def end(self) -> None:
        """Kill every environment."""
        for each in self.environments:
            each.end()

    def _one_more(self) -> Environment:
        made = Environment(self._function, self._logs / f"{len(self.environments)}.log")
        self.environments.append(made)
        return made


# Starts a platform for a handler, with settings, and whatever else of the function differs.
Start = Callable[..., Platform]


@contextmanager
def platform(function: Function, logs: Path) -> Iterator[Platform]:
    """Lend a platform for one function; nothing of it is left behind."""
    logs.mkdir(parents=True, exist_ok=True)
    made = Platform(function, logs)
    try:
        yield made
    finally:
        made.end()
