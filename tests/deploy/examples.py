"""The examples in infra as values: what they run, with which variables, and for how long."""

from __future__ import annotations

import configparser
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from shared.settings import Settings
from tests.deploy.image import ROOT

INFRA = ROOT / "infra"
TICK_SERVICE = INFRA / "systemd" / "tallystick-tick.service"
RUN_SERVICE = INFRA / "systemd" / "tallystick-run.service"
ENVIRONMENT_FILE = INFRA / "systemd" / "tallystick.env.example"
CRON = INFRA / "cron" / "tallystick"
# Manifests of what runs in pods.
AT_WORK = ("setup.yaml", "cronjob.yaml", "loop.yaml")
TIMEOUT_SECONDS = float(Settings.model_fields["timeout_seconds"].default)


def compose() -> dict[str, Any]:
    """Return the compose file; its variables stay as written."""
    loaded: dict[str, Any] = yaml.safe_load((INFRA / "compose" / "compose.yaml").read_text())
    return loaded


def interpolated(value: str, variables: dict[str, str]) -> str:
    """Return a value of the compose file with ``${NAME:-}`` and ``${NAME:?…}`` filled in.

    A needed variable that is not given is a KeyError here, as it is an error to compose.
    """

    def filled(match: re.Match[str]) -> str:
        return variables[match[1]] if match[2] == "?" else variables.get(match[1], "")

    return re.sub(r"\$\{([A-Z_]+):([?-])[^}]*\}", filled, value)


def unit(path: Path) -> configparser.ConfigParser:
    """Return a unit file of systemd."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    return parser


def environment_file() -> dict[str, str]:
    """Return what a shell makes of the example of an environment file."""
    program = f"set -a; . {ENVIRONMENT_FILE}; env -0"
    said = subprocess.run(
        ["env", "-i", "sh", "-c", program], capture_output=True, text=True, check=True
    ).stdout
    found = dict(line.split("=", 1) for line in said.split("\0") if line)
    return {name: found[name] for name in found if name.startswith(("TALLYSTICK_", "PG"))}


def manifests(name: str) -> list[dict[str, Any]]:
    """Return the documents of a file of Kubernetes examples."""
    text = (INFRA / "kubernetes" / name).read_text()
    return [each for each in yaml.safe_load_all(text) if each]


def job_spec(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the specification of a Job or Deployment, or of the Jobs of a CronJob."""
    spec: dict[str, Any] = manifest["spec"]
    found: dict[str, Any] = spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec
    return found


def containers(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the containers of a pod in the order in which they run."""
    pod = job_spec(manifest)["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]
