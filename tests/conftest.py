"""Real parts for every test: one Postgres per worker, one fresh database per test, one volume."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import hypothesis
import psycopg
import pytest

from shared.db import embedded
from shared.db.migrate import migrate
from tests.golden.scenario import Shell, deployed

# Read before any test runs: a test sees none of the developer's own settings.
TEST_DSN = os.environ.get("TALLYSTICK_TEST_DSN")
TEST_PG_BIN = os.environ.get("TALLYSTICK_TEST_PG_BIN")
TEST_DATA = os.environ.get("TALLYSTICK_TEST_DATA")

SIGNED = ("--actor", "tester", "--reason", "a test needs it")

numbers = itertools.count(1)

# Two busy cores make single examples slow; that says nothing about the code.
hypothesis.settings.register_profile("tallystick", deadline=None)
hypothesis.settings.load_profile("tallystick")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what talks to a Postgres, so that it can run again on another release."""
    for item in items:
        if "server_dsn" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.server)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TALLYSTICK_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def server_dsn() -> Iterator[str]:
    """URL of a server where this user may create databases: the one named, else one of our own."""
    if TEST_DSN:
        yield TEST_DSN
        return
    with tempfile.TemporaryDirectory(prefix="tallystick-") as name:
        binaries = Path(TEST_PG_BIN) if TEST_PG_BIN else None
        yield embedded.start(Path(name), durable=False, binaries=binaries)
        embedded.stop(Path(name))


@pytest.fixture(scope="session")
def template(server_dsn: str) -> Iterator[str]:
    """Name of a database that was migrated once and is copied for each test."""
    with _database(server_dsn, "template") as dsn:
        migrate(dsn)
        yield urlsplit(dsn).path.removeprefix("/")


@pytest.fixture
def database(server_dsn: str, template: str) -> Iterator[str]:
    """URL of a fresh, migrated database."""
    with _database(server_dsn, "test", template=template) as dsn:
        yield dsn


@pytest.fixture
def empty_database(server_dsn: str) -> Iterator[str]:
    """URL of a fresh database with nothing in it."""
    with _database(server_dsn, "empty") as dsn:
        yield dsn


@pytest.fixture
def volume_root(tmp_path: Path) -> Path:
    """Directory as a volume wants it: empty, ours, mode 0700."""
    root = tmp_path / "volume"
    root.mkdir(mode=0o700)
    return root


@pytest.fixture
def deployment(
    database: str,
    volume_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    """A shell in whose settings a database, a volume and one kind are deployed; nothing is planned."""
    made = Shell(capsys)
    deployed(made, database, volume_root, monkeypatch.setenv)
    return made


@pytest.fixture
def shell(deployment: Shell) -> Shell:
    """A deployment with one kind planned, 45 old orders in batches of 20, due now."""
    for command in (
        ("policy", "set", "orders", "--after", "365d"),
        ("plan", "set", "orders", "--batch-size", "20", "--enable"),
    ):
        assert deployment(*command, *SIGNED).code == 0
    return deployment


@pytest.fixture(scope="session")
def test_data() -> Path:
    """Directory of the larger sample files."""
    if not TEST_DATA:
        pytest.skip("TALLYSTICK_TEST_DATA is not set: the larger sample files are not at hand")
    return Path(TEST_DATA)


@contextmanager
def _database(server_dsn: str, purpose: str, template: str = "template0") -> Iterator[str]:
    # The pid keeps workers apart that share one server.
    name = f"tallystick_{purpose}_{os.getpid()}_{next(numbers)}"
    _execute(server_dsn, f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
    try:
        yield urlunsplit(urlsplit(server_dsn)._replace(path=f"/{name}"))
    finally:
        _execute(server_dsn, f'DROP DATABASE "{name}" WITH (FORCE)')


def _execute(server_dsn: str, statement: str) -> None:
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(statement.encode())
