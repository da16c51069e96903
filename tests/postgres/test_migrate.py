"""Migrations: whole versions, once, whoever else is at it, and never over a schema that is not ours."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from shared.db import migrate
from shared.db.migrate import Migration
from shared.errors import Code, Passing, Refused
from tests.worlds import one, rows

VERSIONS = tuple(migration.version for migration in migrate.migrations())
OBJECTS = "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('tallystick')"


def test_versions_are_numbered_without_a_gap() -> None:
    assert tuple(range(1, len(VERSIONS) + 1)) == VERSIONS


def test_a_migration_brings_everything_and_a_second_one_nothing(empty_database: str) -> None:
    assert migrate.migrate(empty_database) == VERSIONS
    assert migrate.check(empty_database) == migrate.Schema(applied=VERSIONS, pending=())
    assert migrate.migrate(empty_database) == ()
    assert one(empty_database, "SELECT name FROM tallystick.namespace") == "default"


def test_checking_changes_nothing(empty_database: str) -> None:
    assert migrate.check(empty_database) == migrate.Schema(applied=(), pending=VERSIONS)
    assert one(empty_database, "SELECT to_regnamespace('tallystick')") is None


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_several_at_once_do_the_work_once(empty_database: str, isolation: str) -> None:
    name = urlsplit(empty_database).path.removeprefix("/")
    setting = f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'"
    rows(empty_database, setting)
    together = threading.Barrier(4)

    def run(_: int) -> tuple[int, ...]:
        together.wait()
        return migrate.migrate(empty_database)

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(run, range(4)))
    assert sorted(version for each in done for version in each) == list(VERSIONS)
    assert migrate.check(empty_database).pending == ()


def test_a_database_that_is_read_only_by_default_is_migrated(empty_database: str) -> None:
    name = urlsplit(empty_database).path.removeprefix("/")
    rows(empty_database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert migrate.migrate(empty_database) == VERSIONS


def test_a_schema_newer_than_the_program_is_refused(database: str) -> None:
    add = "INSERT INTO tallystick.migration (version, name, digest) VALUES (9999, 'x', 'y')"
    rows(database, add)
    before = one(database, OBJECTS)
    for act in (migrate.check, migrate.migrate):
        with pytest.raises(Refused) as refused:
            act(database)
        assert refused.value.code is Code.SCHEMA_NEWER
        assert refused.value.params == {"database": 9999, "program": VERSIONS[-1]}
    assert one(database, OBJECTS) == before


def test_a_migration_whose_text_was_altered_is_refused(database: str) -> None:
    rows(database, "UPDATE tallystick.migration SET digest = 'x' WHERE version = 1")
    for act in (migrate.check, migrate.migrate):
        with pytest.raises(Refused) as refused:
            act(database)
        assert refused.value.code is Code.MIGRATION_ALTERED
        assert refused.value.params["version"] == 1


def test_code_of_a_stranger_does_not_run_with_the_rights_of_whoever_migrates(
    empty_database: str,
) -> None:
    role = "migration_stranger"
    name = urlsplit(empty_database).path.removeprefix("/")
    theirs = empty_database.replace("//postgres@", f"//{role}@")
    rows(empty_database, f"DROP ROLE IF EXISTS {role}")
    rows(empty_database, f"CREATE ROLE {role} LOGIN")
    rows(empty_database, f'GRANT CREATE ON DATABASE "{name}" TO {role}')
    try:
        migrate.migrate(theirs)
        for statement in (
            "DELETE FROM tallystick.migration",
            (
                "CREATE FUNCTION tallystick.take() RETURNS trigger LANGUAGE plpgsql AS"
                f" $$BEGIN EXECUTE 'ALTER ROLE {role} SUPERUSER'; RETURN new; END$$"
            ),
            (
                "CREATE TRIGGER take BEFORE INSERT ON tallystick.migration"
                " FOR EACH ROW EXECUTE FUNCTION tallystick.take()"
            ),
        ):
            rows(theirs, statement)
        with pytest.raises(Refused) as refused:
            migrate.migrate(empty_database)
        assert refused.value.code is Code.SCHEMA_UNTRUSTED
        assert refused.value.params == {"fault": "owner", "names": [role]}
        assert (
            one(empty_database, f"SELECT rolsuper FROM pg_roles WHERE rolname = '{role}'") is False
        )
    finally:
        rows(empty_database, f"DROP OWNED BY {role} CASCADE")
        rows(empty_database, f"DROP ROLE {role}")


def test_a_migration_that_fails_leaves_nothing_of_itself(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Migration(VERSIONS[-1] + 1, "broken", "CREATE TABLE tallystick.half (); SELECT 1/0")
    ours = (*migrate.migrations(), broken)
    monkeypatch.setattr(migrate, "migrations", lambda: ours)
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate.migrate(database)
    assert one(database, "SELECT to_regclass('tallystick.half')") is None
    assert migrate.check(database).pending == (broken.version,)


def test_text_with_percent_signs_and_colons_is_run_as_it_is(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "CREATE TABLE tallystick.odd AS SELECT 5 % 3 AS rest, '%s :x' AS text"
    ours = (*migrate.migrations(), Migration(VERSIONS[-1] + 1, "odd", text))
    monkeypatch.setattr(migrate, "migrations", lambda: ours)
    assert migrate.migrate(database) == (VERSIONS[-1] + 1,)
    assert rows(database, "SELECT * FROM tallystick.odd") == [{"rest": 2, "text": "%s :x"}]


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(Passing) as passing:
        migrate.check("postgresql://127.0.0.1:1/nowhere")
    assert passing.value.code is Code.DATABASE_UNAVAILABLE


def test_the_recorded_digest_is_of_the_text(database: str) -> None:
    recorded = {
        row["version"]: row["digest"]
        for row in rows(database, "SELECT version, digest FROM tallystick.migration")
    }
    assert recorded == {each.version: each.digest for each in migrate.migrations()}


def test_every_statement_file_holds_one_statement() -> None:
    found = 0
    for path in Path("shared").rglob("sql/*.sql"):
        text = re.sub(r"--.*|'(?:[^']|'')*'", "", path.read_text("utf-8"))
        assert ";" not in text, path
        found += 1
    assert found > 20
