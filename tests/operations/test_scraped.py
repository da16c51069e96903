"""The metrics of the local loop, scraped from a real process in the text format of Prometheus."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shared.metrics import MEASURES
from shared.tick import PHASES
from tests.golden.scenario import Shell
from tests.worlds import one, rows

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
    return found


@contextmanager
def running(*options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the local loop in a process of its own; SIGTERM ends it, as it should."""
    command = [sys.executable, "-m", "handlers.cli", "run", "--json", "--every", "1s", *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)


def scraped(port: int) -> Samples:
    """Return what is served, once something is."""
    give_up = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
            break
        except urllib.error.URLError:
            assert time.monotonic() < give_up, "nothing is served"
            time.sleep(0.1)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def until(port: int, name: str, at_least: float, labels: tuple[tuple[str, str], ...]) -> Samples:
    give_up = time.monotonic() + 30
    while (found := scraped(port)).get((name, labels), 0) < at_least:
        assert time.monotonic() < give_up, found
        time.sleep(0.1)
    return found


def test_the_loop_serves_what_its_ticks_came_to_until_it_is_told_to_stop(
    shell: Shell, port: int
) -> None:
    with running("--metrics-port", str(port)) as process:
        idle = (("outcome", "idle"),)
        found = until(port, "tallystick_ticks_total", 1, idle)
        more = until(
            port, "tallystick_ticks_total", found["tallystick_ticks_total", idle] + 1, idle
        )
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    work = (("kind", "orders"), ("operation", "archive"))
    assert found["tallystick_settled_units_total", work] == 3
    assert found["tallystick_settled_roots_total", work] == 45
    assert found["tallystick_settled_rows_total", work] == 135
    assert found["tallystick_settled_bytes_total", work] > 0
    assert found["tallystick_takeovers_total", ()] == 0
    assert found["tallystick_volume_max_bytes", ()] == 10 * 1024**3
    assert found["tallystick_oldest_due_seconds", ()] == 0
    for phase in PHASES:
        assert ("tallystick_phase_seconds_total", (("phase", phase),)) in found
    assert more["tallystick_settled_roots_total", work] == 45
    known = {measure.text_name for measure in MEASURES}
    assert {name.removesuffix("_total") for name, _ in found} <= known
    ticks = sum(value for (name, _), value in more.items() if name == "tallystick_ticks_total")
    assert json.loads(out)["ticks"] >= ticks
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)


def test_failures_are_counted_by_their_code(shell: Shell, database: str, port: int) -> None:
    rows(database, "ALTER TABLE app.line RENAME TO gone")
    labels = (("code", "EXPORT_FAILED"), ("outcome", "failed"))
    with running("--metrics-port", str(port)):
        assert until(port, "tallystick_failed_ticks_total", 1, labels)


def test_metrics_are_served_to_this_machine_alone_unless_told_otherwise(
    shell: Shell, port: int
) -> None:
    with running("--metrics-port", str(port)):
        scraped(port)
        listening = Path("/proc/net/tcp").read_text().splitlines()[1:]
    ours = [line.split()[1] for line in listening if f":{port:04X} 00000000:0000 0A" in line]
    # In hexadecimal and turned round: 127.0.0.1.
    assert ours == [f"0100007F:{port:04X}"]


def test_a_port_that_is_taken_is_told_before_the_first_tick(
    shell: Shell, database: str, port: int
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        answered = shell("run", "--metrics-port", str(port), "--json")
    assert answered.code == 2
    told = json.loads(answered.err.splitlines()[-1])["error"]
    assert told["code"] == "METRICS_NOT_SERVED"
    assert told["params"]["cause"] == "EADDRINUSE"
    assert f"127.0.0.1:{port}" in told["message"]
    assert one(database, "SELECT count(*) FROM tallystick.last_tick") == 0


def test_an_address_that_is_not_of_this_machine_is_told_too(shell: Shell, port: int) -> None:
    for address in ("192.0.2.1", "no.such.host.invalid"):
        answered = shell(
            *("run", "--metrics-port", str(port), "--metrics-address", address, "--json")
        )
        assert answered.code == 2
        assert "METRICS_NOT_SERVED" in answered.err


def test_without_the_library_the_loop_says_what_is_missing(
    shell: Shell, database: str, port: int
) -> None:
    program = "import sys\nsys.modules['prometheus_client'] = None\nfrom handlers.cli import run\n"
    program += f"sys.exit(run(['run', '--metrics-port', '{port}', '--json']))\n"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ,
    )
    assert done.returncode == 2
    assert json.loads(done.stderr.splitlines()[-1])["error"]["code"] == "METRICS_EXTRA_MISSING"
    assert one(database, "SELECT count(*) FROM tallystick.last_tick") == 0
