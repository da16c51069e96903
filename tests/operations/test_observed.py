"""What ticks leave behind for those who watch: log lines, CloudWatch metrics, Prometheus text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from handlers import observing
from shared.tick import PHASES
from tests.golden.scenario import Shell
from tests.operations import emf
from tests.worlds import rows

INVOKE = """
import json, sys
from handlers import archive

class Context:
    function_name = "worker"
    memory_limit_in_mb = 1024
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:worker"
    aws_request_id = "request"
    def get_remaining_time_in_millis(self):
        return 60000

for _ in range(int(sys.argv[1])):
    print("ANSWER", json.dumps(archive.handler(json.loads(sys.argv[2]), Context())))
"""
WITHOUT = "import sys\nsys.modules['{module}'] = None\n"
SECRET = "a-password"


def python(program: str, *arguments: str, **setenv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"TALLYSTICK_FOLLOW_UP_TICKS": "0"} | setenv,
    )


def invoked(
    times: int, event: object = None, **setenv: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Invoke the handler in a process of its own; return its log lines and its lines of metrics."""
    done = python(INVOKE, str(times), json.dumps(event), **setenv)
    assert done.returncode == 0, done.stderr
    blobs = [line for line in done.stdout.splitlines() if not line.startswith("ANSWER")]
    return [json.loads(line) for line in done.stderr.splitlines()], blobs


def test_an_invocation_writes_one_line_with_the_keys_of_powertools(shell: Shell) -> None:
    lines, _ = invoked(2)
    first, second = lines
    assert {
        name: first[name] for name in ("level", "message", "service", "cold_start", "function_name")
    } == {
        "level": "INFO",
        "message": "tick",
        "service": "tallystick",
        "cold_start": True,
        "function_name": "worker",
    }
    assert first["function_memory_size"] == 1024
    assert first["function_arn"].endswith(":worker")
    assert first["function_request_id"] == "request"
    assert first["location"]
    assert first["timestamp"].endswith("+00:00")
    assert second["cold_start"] is False
    assert (second["outcome"], second["operation"], second["unit"]) == ("progressed", "archive", 2)
    assert (second["roots"], second["rows"], second["generation"]) == (20, 60, 2)
    assert list(second["phases"]) == list(PHASES)
    assert sum(second["phases"].values()) == pytest.approx(second["seconds"], abs=0.1)


@pytest.mark.parametrize(
    "event", [{}, [], "x", {"scheduled_time": ["row"], "execution_id": "x" * 65}]
)
def test_a_line_repeats_nothing_of_an_event_but_what_a_schedule_says(
    shell: Shell, event: object
) -> None:
    ((line,), _) = invoked(1, event)
    assert [name for name in observing.SAID if name in line] == []
    assert "code" not in line


def test_what_an_invocation_measures_is_in_the_embedded_metric_format(shell: Shell) -> None:
    _, blobs = invoked(1)
    assert [emf.problems(blob) for blob in blobs] == [[]] * len(blobs)
    found = {
        (metric["Name"], root.get("phase"), root.get("kind")): root[metric["Name"]]
        for root in map(json.loads, blobs)
        for metric in root["_aws"]["CloudWatchMetrics"][0]["Metrics"]
    }
    assert found["SettledRoots", None, "orders"] == [20.0]
    assert found["SettledRows", None, "orders"] == [60.0]
    assert found["VolumeMaxBytes", None, None] == [10 * 1024.0**3]
    assert {phase for name, phase, _ in found if name == "PhaseSeconds"} == set(PHASES)
    namespaces = {json.loads(blob)["_aws"]["CloudWatchMetrics"][0]["Namespace"] for blob in blobs}
    assert namespaces == {"Tallystick"}


def test_namespace_and_service_are_those_that_powertools_was_told(shell: Shell) -> None:
    lines, blobs = invoked(
        1, POWERTOOLS_METRICS_NAMESPACE="Shop", POWERTOOLS_SERVICE_NAME="archive"
    )
    assert lines[0]["service"] == "archive"
    assert len(lines) == 1
    for root in map(json.loads, blobs):
        assert root["service"] == "archive"
        assert root["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "Shop"


def test_a_line_is_as_loud_as_what_it_tells_and_never_tells_a_secret(
    shell: Shell, database: str
) -> None:
    away = f"postgresql://me:{SECRET}@127.0.0.1:1/x"
    ((waiting,), blobs) = invoked(1, TALLYSTICK_SOURCE_URL=away)
    assert (waiting["level"], waiting["outcome"]) == ("WARNING", "waiting")
    assert waiting["code"] == "EXPORT_FAILED"
    assert waiting["wait_seconds"] > 0
    assert SECRET not in json.dumps([waiting, blobs])
    rows(database, "UPDATE tallystick.job SET due_at = clock_timestamp()")
    rows(database, "ALTER TABLE app.line RENAME TO gone")
    ((failed,), _) = invoked(1)
    assert (failed["level"], failed["outcome"]) == ("ERROR", "failed")


def test_without_powertools_an_invocation_is_refused_before_it_does_anything(
    shell: Shell, database: str
) -> None:
    done = python(WITHOUT.format(module="aws_lambda_powertools") + INVOKE, "1", "{}")
    assert "AWS_EXTRA_MISSING" in done.stderr
    assert rows(database, "SELECT FROM tallystick.job") == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('{"Ticks": 1}', "no object with a member"),
        ('{"_aws": {"Timestamp": "now", "CloudWatchMetrics": []}}', "milliseconds"),
        ('{"_aws": {"Timestamp": 1, "CloudWatchMetrics": []}}', "no directives"),
    ],
)
def test_the_rules_of_the_format_can_be_broken(line: str, wrong: str) -> None:
    assert any(wrong in problem for problem in emf.problems(line))


def test_the_rules_look_at_dimensions_and_values() -> None:
    metric = {"Name": "Ticks", "Unit": "Count"}
    directive = {"Namespace": "T", "Dimensions": [["kind"]], "Metrics": [metric]}
    root = {"_aws": {"Timestamp": 1, "CloudWatchMetrics": [directive]}, "kind": "a", "Ticks": 1}
    assert emf.problems(json.dumps(root)) == []
    assert emf.problems(json.dumps(root | {"kind": ""}))
    assert emf.problems(json.dumps(root | {"Ticks": "1"}))
    assert emf.problems(json.dumps(root | {"Ticks": [1] * 101}))
    metric["Unit"] = "Rows"
    assert emf.problems(json.dumps(root))


TICK = "import sys\nfrom handlers.cli import run\nsys.exit(run(['tick', '--json']))\n"


def test_a_tick_by_hand_is_silent_unless_ordinary_lines_are_asked_for(shell: Shell) -> None:
    assert python(TICK).stderr == ""
    text = python(TICK, TALLYSTICK_LOG_LEVEL="INFO").stderr
    assert text.startswith("INFO:tallystick:tick outcome=progressed ")
    assert " unit=2 " in text


def test_lines_are_objects_when_that_is_asked_for(shell: Shell) -> None:
    done = python(TICK, TALLYSTICK_LOG_LEVEL="INFO", TALLYSTICK_LOG_FORMAT="json")
    (line,) = done.stderr.splitlines()
    told = json.loads(line)
    assert (told["level"], told["message"], told["service"]) == ("INFO", "tick", "tallystick")
    assert told["job"] == json.loads(done.stdout)["job"]["id"]
    assert told["phases"] == json.loads(done.stdout)["phases"]


def test_the_command_line_loads_nothing_of_the_platform(shell: Shell) -> None:
    probe = "import sys\nfrom handlers.cli import run\nrun(['tick', '--json'])\n"
    probe += "print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    loaded = python(probe).stderr
    assert "aws_lambda_powertools" not in loaded
    assert "prometheus_client" not in loaded
    assert "psycopg" in loaded
