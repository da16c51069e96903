"""Trouble with what is optional: metrics, and the package for a platform."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from shared.errors import Code
from tests.remedies.bare import installing, without
from tests.remedies.scene import Scene, Variables, remedy

WAIT_SECONDS = 30


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        port: int = found.getsockname()[1]
    return port


def metrics_of(tallystick: Path, port: int) -> str:
    """Start a loop, read its metrics once, and end it in good order."""
    loop = subprocess.Popen([tallystick, "run", "--metrics-port", str(port)])
    try:
        ends = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                    return str(answer.read().decode())
            except URLError:
                assert time.monotonic() < ends
                assert loop.poll() is None
                time.sleep(0.1)
    finally:
        loop.send_signal(signal.SIGTERM)
        assert loop.wait(WAIT_SECONDS) == 0


@remedy(Code.METRICS_EXTRA_MISSING, 1)
def prometheus_client_is_not_installed(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    programs, port = without(scene, "prometheus_client"), free_port()
    command = (f"{programs}/tallystick", "run", "--metrics-port", str(port), "--json")
    scene.elsewhere(*command, code=2)
    yield installing(scene, "prometheus-client", programs)
    assert "tallystick_" in metrics_of(programs / "tallystick", port)


@remedy(Code.METRICS_NOT_SERVED, 1)
def somebody_else_listens_there(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        taken = str(other.getsockname()[1])
        told = scene.ask("run", "--metrics-port", taken, code=2)
        assert told["params"]["cause"] == "EADDRINUSE"
        yield {"PORT": str(free_port())}
    assert scene.newest()["batches"] > 0


INVOKED = """
import json, sys
sys.path.insert(0, sys.argv[1])
from handlers import archive
from shared.errors import TallystickError

class Context:
    def get_remaining_time_in_millis(self):
        return 60000

try:
    told = archive.handler({}, Context())
except TallystickError as error:
    told = {"code": error.code}
print(json.dumps(told), file=sys.stderr)
"""


def invoked(programs: Path, package: Path) -> object:
    """Invoke the handler in a process of its own, with one more directory to import from."""
    done = subprocess.run(
        [programs / "python", "-c", INVOKED, package], capture_output=True, text=True, check=True
    )
    return json.loads(done.stderr.splitlines()[-1])


@remedy(Code.AWS_EXTRA_MISSING, 1)
def powertools_are_not_in_the_package(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    programs, package = without(scene, "aws_lambda_powertools"), scene.directory / "package"
    scene.see(invoked(programs, package))
    assert scene.ask("jobs", "list")["items"] == []
    yield {"PACKAGE": str(package), **installing(scene, "aws-lambda-powertools", programs)}
    invoked(programs, package)
    assert scene.newest()["batches"] == 1
