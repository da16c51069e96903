"""Where the demo happens: a directory of its own, a database of its own, the real command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from shared.db import embedded
from shared.db.connect import Row, connect

# Short enough to watch a lease run out, long enough for one batch of the demo.
DEADLINE_SECONDS, TIMEOUT_SECONDS, LEASE_SECONDS = "2", "3", "4"


@dataclass(frozen=True)
class Stage:
    """The demo's directory, its two databases, and the environment its commands run in."""

    home: Path
    control: str
    shop: str
    environment: dict[str, str]

    @property
    def volume(self) -> Path:
        """Return the directory that is the demo's volume."""
        return self.home / "volume"

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of one ``tallystick`` command."""
        return [sys.executable, "-m", "handlers.cli", *arguments]

    @property
    def temporary(self) -> list[Path]:
        """Return the files that are being written at this moment, or were left half written."""
        return list((self.volume / ".tmp").iterdir())

    def run(self, *arguments: str, expected: int = 0) -> str:
        """Run one ``tallystick`` command to its end and return what it printed.

        What it says on standard error is part of that where it is expected to find something not good.
        Raises ``subprocess.CalledProcessError`` for another exit code than ``expected``.
        """
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if expected else None,
            text=True,
            check=False,
        )
        if done.returncode != expected:
            raise subprocess.CalledProcessError(done.returncode, arguments, done.stdout)
        return done.stdout

    def counts(self) -> dict[str, int]:
        """Count the shop's old orders and tickets, and all its rows."""
        with connect(self.shop) as connection:
            found = connection.execute(text_of("counts.sql").encode()).fetchone()
        return dict(found or {})

    def make_database(self, name: str) -> str:
        """Make an empty database beside the shop, and return its URL."""
        _make_empty(self.control, name)
        return _beside(self.control, name)

    def digests(self, database: str, until: dict[str, str]) -> list[Row]:
        """Return a digest for each table over what is older than ``until``, times by kind."""
        with connect(database) as connection:
            return connection.execute(text_of("compare.sql").encode(), until).fetchall()


def build(home: Path, width: int) -> Stage:
    """Start Postgres below ``home``, and make the shop with its rows and an empty control database.

    ``width`` is how many columns the commands have to print in.
    """
    shutil.rmtree(home / "volume", ignore_errors=True)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    server = embedded.start(home)
    for name in ("demo_shop", "demo_jobs"):
        _make_empty(server, name)
    control, shop = (_beside(server, name) for name in ("demo_jobs", "demo_shop"))
    with connect(shop) as connection:
        connection.execute(text_of("shop.sql").encode())
    kinds = home / "shop.toml"
    kinds.write_text(text_of("shop.toml"), "utf-8")
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TALLYSTICK_") and name != "FORCE_COLOR"
    } | {
        "COLUMNS": str(width),
        "TALLYSTICK_HOME": str(home),
        "TALLYSTICK_DATABASE_URL": control,
        "TALLYSTICK_SOURCE_URL": shop,
        "TALLYSTICK_KINDS_FILE": str(kinds),
        "TALLYSTICK_DEADLINE_SECONDS": DEADLINE_SECONDS,
        "TALLYSTICK_TIMEOUT_SECONDS": TIMEOUT_SECONDS,
        "TALLYSTICK_LEASE_SECONDS": LEASE_SECONDS,
    }
    return Stage(home, control, shop, environment)


def _make_empty(server: str, name: str) -> None:
    with connect(server) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")


def _beside(server: str, name: str) -> str:
    """Return the URL of another database of the same server."""
    scheme, rest = server.split("://", 1)
    place, _, options = rest.partition("?")
    host = place.rsplit("/", 1)[0]
    return f"{scheme}://{host}/{name}?{options}"


def text_of(name: str) -> str:
    """Return the text of a file that belongs to the demo."""
    return (files("handlers.demo") / name).read_text("utf-8")
