"""A peer that vanished, cable pulled: it says nothing, not even that it is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

# In a network of its own, which is taken down under an open connection. The server is on a socket of the
# file system, a proxy in that network stands in front of it.
PULLED = """
import os, subprocess, sys, time
from shared.db import connect as connecting
from tests.postgres.proxy import between
import psycopg

def link(state):
    subprocess.run(["ip", "link", "set", "lo", state], check=True)

seconds, ours = int(sys.argv[2]), sys.argv[3] == "ours"
# As it is, but sooner.
connecting.SILENCE_SECONDS = seconds
link("up")
with between(sys.argv[1]) as proxy:
    connection = connecting.connect(proxy.dsn) if ours else psycopg.connect(proxy.dsn)
    connection.execute("SELECT 1")
    link("down")
    print("pulled", flush=True)
    started = time.monotonic()
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        print("noticed", flush=True)
    os._exit(0)
"""
SILENCE_SECONDS = 3
LONG_SECONDS = 9.0


def noticed(database: str, which: str) -> bool:
    """Pull the cable under a connection; tell whether it was noticed long after the time for that."""
    alone = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    with subprocess.Popen(
        [
            "unshare",
            *alone,
            "--net",
            sys.executable,
            "-c",
            PULLED,
            database,
            str(SILENCE_SECONDS),
            which,
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "pulled\n"
            out, _ = process.communicate(timeout=LONG_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        finally:
            process.kill()
    return out == "noticed\n"


def test_a_peer_that_vanished_is_noticed_in_bounded_time(database: str) -> None:
    assert noticed(database, "ours")


def test_without_a_bound_a_connection_waits_for_a_peer_that_vanished(database: str) -> None:
    assert not noticed(database, "plain")
