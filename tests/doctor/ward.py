"""A healthy installation to make ill: a user with no more privileges than it needs, plans that ran."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests.golden.scenario import Answered, Shell, deployed
from tests.worlds import rows

SIGNED = ("--actor", "tester", "--reason", "a test needs it")
numbers = itertools.count(1)

OWN_PRIVILEGES = """
GRANT USAGE ON SCHEMA tallystick, app TO {role};
GRANT SELECT ON tallystick.migration TO {role};
GRANT SELECT ON ALL TABLES IN SCHEMA app TO {role};
GRANT pg_read_all_stats TO {role};
DO $$ DECLARE found text; BEGIN
  FOR found IN SELECT tablename FROM pg_tables WHERE schemaname = 'tallystick' AND tablename <> 'migration'
  LOOP EXECUTE format('GRANT SELECT, INSERT, UPDATE ON tallystick.%I TO {role}', found); END LOOP;
END $$;
"""
OLD_ROWS = """
INSERT INTO app.orders (customer, placed_at)
SELECT 'customer ' || n, timestamptz '2021-01-01 00:00:00+00' + n * interval '1 hour'
FROM generate_series(1, 45) AS n
"""


@dataclass
class Ward:
    """An installation, the commands run in it, and its owner's way around the rules."""

    shell: Shell
    owner_dsn: str
    role: str
    root: Path
    patch: pytest.MonkeyPatch

    def setenv(self, **settings: object) -> None:
        for name, value in settings.items():
            self.patch.setenv(f"TALLYSTICK_{name}", str(value))

    def sql(self, *statements: str) -> None:
        """Run statements as a superuser, all on one connection."""
        with psycopg.connect(self.owner_dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def do(self, *command: str, code: int = 0) -> Answered:
        answered = self.shell(*command, *(SIGNED if "set" in command else ()))
        assert answered.code == code, (command, answered)
        return answered

    def set_up(self) -> None:
        """Plan an archive and a scan, and tick until both are done."""
        self.do("policy", "set", "orders", "--after", "365d")
        self.do("plan", "set", "orders", "--batch-size", "20", "--enable")
        self.do("plan", "set", "--operation", "scan", "--enable")
        self.do("tick", "--until-idle")

    def doctor(self, *options: str) -> dict[str, Any]:
        """Return what the doctor says; its exit code must fit."""
        answered = self.shell("doctor", "--json", *options)
        found: dict[str, Any] = json.loads(answered.out)
        assert answered.err == ""
        assert answered.code == (1 if found["worst"] == "error" else 0)
        return found

    def findings(self) -> list[dict[str, Any]]:
        """Return findings but for what only says that errors were recorded."""
        return [each for each in self.doctor()["findings"] if each["code"] != "EVENTS_RECENT"]

    def run(self, command: str) -> None:
        """Run a command exactly as printed; what it exports is in force afterwards."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{command}\nenv -0"],
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        for pair in done.stdout.split("\0"):
            name, is_pair, value = pair.rpartition("\n")[2].partition("=")
            if is_pair and name.startswith("TALLYSTICK_"):
                self.patch.setenv(name, value)

    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return os.environ | {"PATH": path}

    def job_begun(self) -> str:
        """Have the plan of orders make a job that is not over yet, and return its id."""
        self.sql(OLD_ROWS, "UPDATE tallystick.plan SET next_run_at = now() WHERE kind = 'orders'")
        self.do("tick", "archive")
        items: Any = self.shell("jobs", "list", "--json").json()["items"]
        assert items[0]["state"] == "PENDING"
        return str(items[0]["id"])


@contextmanager
def a_ward(database: str, shell: Shell, patch: pytest.MonkeyPatch) -> Iterator[Ward]:
    """Deploy, plan and tick until nothing is due, as a user of its own."""
    role = f"ward_{os.getpid()}_{next(numbers)}"
    parts = urlsplit(database)
    own = parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}")
    # Not in memory, which is something the doctor finds fault with.
    home = Path(tempfile.mkdtemp(prefix="tallystick ", dir="/var/tmp"))
    root = home / "volume"
    rows(database, f"CREATE ROLE {role} LOGIN")
    try:
        deployed(shell, database, root, patch.setenv)
        kinds = home / "kinds.toml"
        kinds.write_text(kinds.read_text().partition("[kinds.nothing]")[0])
        ward = Ward(shell, database, role, root, patch)
        ward.sql(OWN_PRIVILEGES.replace("{role}", role))
        ward.setenv(DATABASE_URL=urlunsplit(own), ARCHIVE_MAX_BYTES=1024**3)
        ward.set_up()
        yield ward
    finally:
        shutil.rmtree(home)
        rows(database, f"DROP OWNED BY {role}")
        rows(database, f"DROP ROLE {role}")
