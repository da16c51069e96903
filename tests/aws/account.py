"""An account of AWS on this machine: moto behind a port, and a guard that lets nothing go anywhere else."""

from __future__ import annotations

import itertools
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from moto.server import ThreadedMotoServer

from shared.aws import client, credential

REGION = "eu-central-1"
ACCOUNT = "123456789012"
HERE = ("127.0.0.1", "::1")
# An emulator that runs around the tests, where an access key of twelve digits is the number of an account.
AROUND = os.environ.get("TALLYSTICK_TEST_AWS_URL")
numbers = itertools.count(1)


@dataclass(frozen=True)
class Account:
    """Where the account is, and what a test asks of it as its owner."""

    url: str

    def owner(self, service: str) -> Any:  # noqa: ANN401 - botocore makes its classes at run time
        """Return a client that has nothing to do with the one that is tested."""
        return boto3.client(service, endpoint_url=self.url, region_name=REGION)

    def secret(self, name: str, text: str) -> None:
        """Make a secret, or give it another value."""
        manager = self.owner("secretsmanager")
        if name in {each["Name"] for each in manager.list_secrets()["SecretList"]}:
            manager.put_secret_value(SecretId=name, SecretString=text)
        else:
            manager.create_secret(Name=name, SecretString=text)


@contextmanager
def served() -> Iterator[str]:
    """Serve an account on a port of this machine and yield its URL; where there is one around, that."""
    if AROUND:
        yield AROUND
        return
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextmanager
def entered(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """Make an empty account the one that this process, and those it starts, know of."""
    key = _emptied(url)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "ACCESS_KEY_ID": key,
        "CONFIG_FILE": os.devnull,
        "DEFAULT_REGION": REGION,
        "EC2_METADATA_DISABLED": "true",
        "ENDPOINT_URL": url,
        "SECRET_ACCESS_KEY": "test",
        "SHARED_CREDENTIALS_FILE": os.devnull,
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    forget()
    try:
        yield Account(url)
    finally:
        forget()


def _emptied(url: str) -> str:
    """Return the access key of an account with nothing in it."""
    if url == AROUND:
        return f"{os.getpid() % 10**6:06}{next(numbers):06}"
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port)
    with closing(connection):
        connection.request("POST", "/moto-api/reset")
        assert connection.getresponse().status == HTTPStatus.OK
    return "test"


def forget() -> None:
    """Let this process be as one that has just been started."""
    boto3.DEFAULT_SESSION = None
    client.client.cache_clear()
    credential._kept.clear()


@contextmanager
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Refuse and note every connection that would leave this machine."""
    strayed: list[object] = []
    connect = socket.socket.connect

    def checked(self: socket.socket, address: Any) -> None:  # noqa: ANN401 - as sockets have it
        if self.family != socket.AF_UNIX and address[0] not in HERE:
            strayed.append(address)
            raise ConnectionRefusedError(address)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", checked)
    yield strayed
