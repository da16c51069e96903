"""The emulator without Docker: one process, with a directory mounted where functions expect the volume."""

from __future__ import annotations

import os
import shlex
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from localstack import certificate, server
from localstack.server import ADDRESS

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / ".venv-ministack" / "bin" / "ministack"
REGION = "eu-central-1"

# In a namespace of mounts of its own, which goes with the process: the machine itself mounts nothing.
MOUNT = """\
mount -t tmpfs none "$(dirname "$2")"
mkdir "$2"
mount --bind "$1" "$2"
shift 2
exec "$@"
"""
# A namespace of processes too: with its first one all others die, functions that hang included.
NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
# Who is not root is root in a namespace of users, and of no more than before.
AS_ROOT = ("--user", "--map-root-user")


@dataclass(frozen=True)
class Emulator:
    """A running emulator: where it is, what proves that, what it logs, and whether it mounted the volume."""

    url: str
    certificate: Path
    log: Path
    mounts: bool

    def variables(self) -> dict[str, str]:
        """Return what makes a client, and any process, take it for AWS."""
        return {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_CA_BUNDLE": str(self.certificate),
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL": self.url,
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }


@contextmanager
def running(place: Path, volume: Path, mount_path: str) -> Iterator[Emulator]:
    """Run the emulator with its files in ``place`` and ``volume`` at ``mount_path``, if it can be mounted.

    Roles are enforced, and only TLS is spoken. Raises ``RuntimeError`` with the end of its log where it does
    not come up. Nothing of it is left but files in ``place``.
    """
    namespaces = _namespaces()
    mount = ("sh", "-euc", MOUNT, "sh", str(volume), mount_path)
    mounted = (*namespaces, *mount) if namespaces else ()
    url = f"https://{ADDRESS}:{server.free_port()}"
    made = Emulator(url, place / "certificate.pem", place / "log", bool(namespaces))
    key = place / "key.pem"
    certificate.make(made.certificate, key, ADDRESS)
    trusted = ssl.create_default_context(cafile=made.certificate)
    address = urlsplit(url).netloc
    # Functions are of its session; where it has a namespace of processes, none can leave that either.
    with server.running(
        (*mounted, PROGRAM),
        _environment(made, key, place),
        made.log,
        lambda: HTTPSConnection(address, timeout=5, context=trusted),
    ):
        yield made


def bootstrap(interpreter: str, client: Path) -> str:
    """Return the program of a package that starts a handler under the runtime's client, in ``client``."""
    return f"""\
#!/bin/sh
# As the platform has it: the package and the client, and nothing that is installed beside the interpreter.
export PYTHONPATH="$LAMBDA_TASK_ROOT:"{shlex.quote(str(client))}
exec {shlex.quote(interpreter)} -S -m awslambdaric "$_HANDLER"
"""


def _namespaces() -> tuple[str, ...]:
    """Return what to put before a command for mounts of its own; nothing where that is not allowed."""
    command = (*NAMESPACES, *(() if os.geteuid() == 0 else AS_ROOT))
    with suppress(OSError):
        probe = (*command, "mount", "-t", "tmpfs", "none", "/mnt")
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return command
    return ()


def _environment(emulator: Emulator, key: Path, place: Path) -> dict[str, str]:
    """Return the variables of the emulator; functions get them too, so there are no others."""
    return emulator.variables() | {
        "AUTH": "true",
        "BIND_HOST": ADDRESS,
        "GATEWAY_PORT": emulator.url.rpartition(":")[2],
        "IOT_MTLS_ENABLED": "0",
        "LANG": "C.UTF-8",
        "MINISTACK_HOST": ADDRESS,
        "MINISTACK_REGION": REGION,
        "MINISTACK_SSL_CERT": str(emulator.certificate),
        "MINISTACK_SSL_KEY": str(key),
        "PATH": os.environ.get("PATH", os.defpath),
        "S3_DATA_DIR": str(place / "s3"),
        "STATE_DIR": str(place / "state"),
        "TMPDIR": str(place),
        "TZ": "UTC",
        "USE_SSL": "1",
    }
