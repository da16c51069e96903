"""LocalStack's core without Docker: ``python -m localstack.core COMMAND…`` runs a command in front of it.

It knows secrets, queues, schedules, alarms and stacks, and runs no function. It reaches this machine only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

from localstack import server
from localstack.server import ADDRESS

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / ".venv-localstack" / "bin" / "python"
LAUNCHER = Path(__file__).with_name("core_launcher.py")
REGION = "eu-central-1"
# Where the tests look for an account that is not their own.
VARIABLE = "TALLYSTICK_TEST_AWS_URL"
STRAYED = 3
# A service is loaded when it is first asked for, which takes longer than a call of the program may.
SERVICES = {
    "cloudformation": "list_stacks",
    "cloudwatch": "describe_alarms",
    "iam": "list_roles",
    "scheduler": "list_schedules",
    "secretsmanager": "list_secrets",
    "sns": "list_topics",
    "sqs": "list_queues",
}


def main(command: Sequence[str]) -> int:
    """Run a command in front of the emulator; return its code, or 3 where the emulator tried to leave."""
    with tempfile.TemporaryDirectory(prefix="tallystick-") as name:
        strayed = Path(name) / "strayed"
        with running(Path(name), strayed) as url:
            print(f"LocalStack's core at {url}", flush=True)
            code = subprocess.run(command, env=os.environ | {VARIABLE: url}, check=False).returncode
        tried = strayed.read_text().splitlines()
    if tried:
        print("The emulator tried to leave this machine:", *sorted(set(tried)), sep="\n  ")
    return code or (STRAYED if tried else 0)


@contextmanager
def running(place: Path, strayed: Path) -> Iterator[str]:
    """Run the emulator with its files in ``place`` and yield its URL; where it tried to go is in ``strayed``.

    An access key of twelve digits is the number of an account, and each account is its own. Raises
    ``RuntimeError`` with the end of its log where it does not come up.
    """
    url = f"http://{ADDRESS}:{server.free_port()}"
    command = (PROGRAM, "-I", LAUNCHER, strayed)
    address = urlsplit(url).netloc
    with server.running(
        command,
        _environment(url, place),
        place / "log",
        lambda: HTTPConnection(address, timeout=5),
    ):
        _load(url)
        yield url


def _environment(url: str, place: Path) -> dict[str, str]:
    """Return every variable of the emulator: nothing of the one who runs it."""
    port = url.rpartition(":")[2]
    return {
        # Its own clients look for credentials, in the end at an address of the cloud.
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        # No telemetry, no server for names, no certificate from elsewhere.
        "DISABLE_EVENTS": "1",
        "DNS_ADDRESS": "0",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        # Its other server listens on every address, whatever it is told.
        "GATEWAY_LISTEN": f"{ADDRESS}:{port}",
        "GATEWAY_SERVER": "hypercorn",
        "LOCALSTACK_HOST": f"localhost:{port}",
        "OVERRIDE_IN_DOCKER": "0",
        "FILESYSTEM_ROOT": str(place / "files"),
        "HOME": str(place),
        "LANG": "C.UTF-8",
        "PATH": os.defpath,
        "TZ": "UTC",
    }


def _load(url: str) -> None:
    config = Config(read_timeout=server.START_SECONDS, retries={"total_max_attempts": 1})
    for service, call in SERVICES.items():
        client = boto3.client(
            service,
            endpoint_url=url,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106 - any will do
            config=config,
        )
        getattr(client, call)()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
