"""Trouble with restoring: targets that are away, do not fit, or have the rows already."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from shared.errors import Code
from tests.remedies.scene import Scene, Variables, remedy
from tests.remedies.source import NOWHERE
from tests.worlds import one, rows

ORDERS = "SELECT count(*) FROM app.orders"
LINES = "SELECT count(*) FROM {}.line"


def lost(scene: Scene) -> str:
    """Archive everything, and lose it in the source; return the job."""
    job = scene.archived()
    scene.sql("DELETE FROM app.line")
    scene.sql("DELETE FROM app.orders")
    return job


@remedy(Code.RESTORE_FAILED, 1)
def the_target_is_away(scene: Scene) -> Iterator[Variables]:
    job = lost(scene)
    told = scene.ask("archive", "restore", job, "--to", NOWHERE, code=1)
    assert told["params"]["cause"] == "unreachable"
    yield {"ARCHIVE": job, "TARGET": scene.database}
    assert one(scene.database, ORDERS) == 45


@remedy(Code.RESTORE_FAILED, 2)
def the_user_may_not_make_the_records(scene: Scene) -> Iterator[Variables]:
    job = lost(scene)
    with scene.role() as role:
        scene.sql(f"GRANT USAGE ON SCHEMA app TO {role}")
        scene.sql(f"GRANT INSERT, SELECT ON ALL TABLES IN SCHEMA app TO {role}")
        target = scene.url(role=role)
        told = scene.ask("archive", "restore", job, "--to", target, code=1)
        assert told["params"]["cause"] == "not-granted"
        name = urlsplit(scene.database).path[1:]
        place = {"NAME": f'"{name}"', "SCHEMA": "app", "ROLE": role}
        yield {"ARCHIVE": job, "TARGET": target, "OWNER": scene.database, **place}
    assert one(scene.database, ORDERS) == 45


@remedy(Code.RESTORE_CONFLICT, 1)
def some_rows_are_there_already(scene: Scene) -> Iterator[Variables]:
    job = scene.archived()
    scene.sql("DELETE FROM app.line WHERE order_id > 5")
    told = scene.ask("archive", "restore", job, "--to", scene.database, code=1)
    assert told["params"]["cause"] == "unique"
    yield {"ARCHIVE": job, "TARGET": scene.database}
    assert one(scene.database, LINES.format("app")) == 90


@remedy(Code.RESTORE_CONFLICT, 2)
def a_rule_came_after_the_rows(scene: Scene) -> Iterator[Variables]:
    job = lost(scene)
    scene.sql("ALTER TABLE app.line ADD CONSTRAINT fair CHECK (price < 10)")
    told = scene.ask("archive", "restore", job, "--to", scene.database, code=1)
    assert told["params"]["cause"] == "check"
    yield {"ARCHIVE": job, "TARGET": scene.database, "SCHEMA": "old"}
    assert one(scene.database, LINES.format("old")) == 90
    assert one(scene.database, LINES.format("app")) == 0


STERN = (
    (
        "CREATE FUNCTION app.stern() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RAISE ''no orders from the past''; END'"
    ),
    "CREATE TRIGGER stern BEFORE INSERT ON app.orders FOR EACH ROW EXECUTE FUNCTION app.stern()",
)


@remedy(Code.RESTORE_CONFLICT, 3)
def a_trigger_wants_no_old_rows(scene: Scene) -> Iterator[Variables]:
    job = lost(scene)
    for statement in STERN:
        scene.sql(statement)
    told = scene.ask("archive", "restore", job, "--to", scene.database, code=1)
    assert told["params"]["cause"] == "trigger"
    place = {"TABLE": "app.orders", "TRIGGER": "stern"}
    yield {"ARCHIVE": job, "TARGET": scene.database, **place}
    assert one(scene.database, ORDERS) == 45
    state = "SELECT tgenabled FROM pg_trigger WHERE tgname = 'stern'"
    assert rows(scene.database, state)[0]["tgenabled"] in {"O", b"O"}


@remedy(Code.RESTORE_REFUSED, 1)
def the_target_has_no_tables(scene: Scene) -> Iterator[Variables]:
    job = scene.archived()
    with scene.another_database() as target:
        told = scene.ask("archive", "restore", job, "--to", target, code=2)
        assert {each["problem"] for each in told["params"]["problems"]} == {"table_missing"}
        yield {"ARCHIVE": job, "TARGET": target}
        assert one(target, ORDERS) == 45


@remedy(Code.RESTORE_REFUSED, 2)
def a_column_came_that_must_be_filled(scene: Scene) -> Iterator[Variables]:
    job = lost(scene)
    scene.sql("ALTER TABLE app.orders ADD COLUMN paid boolean NOT NULL")
    told = scene.ask("archive", "restore", job, "--to", scene.database, code=2)
    assert [each["problem"] for each in told["params"]["problems"]] == ["column_extra"]
    statement = "ALTER TABLE app.orders ALTER COLUMN paid SET DEFAULT false"
    yield {"ARCHIVE": job, "TARGET": scene.database, "STATEMENT": statement}
    assert one(scene.database, f"{ORDERS} WHERE NOT paid") == 45


@remedy(Code.RESTORE_REFUSED, 3)
def a_column_has_another_type(scene: Scene) -> Iterator[Variables]:
    job = scene.archived()
    scene.sql("ALTER TABLE app.line ALTER COLUMN price TYPE text")
    told = scene.ask("archive", "restore", job, "--to", scene.database, code=2)
    assert [each["problem"] for each in told["params"]["problems"]] == ["type"]
    yield {"ARCHIVE": job, "TARGET": scene.database, "SCHEMA": "old"}
    assert one(scene.database, LINES.format("old")) == 90


@remedy(Code.RESTORE_UNSAFE, 1)
def the_rows_were_restored_and_removed_again(scene: Scene) -> Iterator[Variables]:
    job = lost(scene)
    scene.ask("archive", "restore", job, "--to", scene.database, code=0)
    scene.sql("TRUNCATE app.orders CASCADE")
    told = scene.ask("archive", "restore", job, "--to", scene.database, code=2)
    found = told["params"]["problems"]
    assert {each["problem"] for each in found} == {"records_stale"}
    yield {"ARCHIVE": job, "TARGET": scene.database, "JOB": found[0]["job"]}
    assert one(scene.database, ORDERS) == 45


@remedy(Code.RESTORE_UNSAFE, 2)
def the_database_skips_foreign_keys(scene: Scene) -> Iterator[Variables]:
    job = lost(scene)
    name = urlsplit(scene.database).path[1:]
    scene.sql(f'ALTER DATABASE "{name}" SET session_replication_role = replica')
    told = scene.ask("archive", "restore", job, "--to", scene.database, code=2)
    assert [each["problem"] for each in told["params"]["problems"]] == ["session_replica"]
    statement = f'ALTER DATABASE "{name}" RESET session_replication_role'
    url = {"TARGET": scene.database, "ADMINISTRATOR": scene.database}
    yield {"ARCHIVE": job, **url, "STATEMENT": statement}
    assert one(scene.database, ORDERS) == 45


@remedy(Code.RESTORE_UNSAFE, 3)
def somebody_made_the_records_first(scene: Scene) -> Iterator[Variables]:
    job = lost(scene)
    with scene.role() as role:
        scene.sql(f'CREATE SCHEMA tallystick_restore AUTHORIZATION "{role}"')
        told = scene.ask("archive", "restore", job, "--to", scene.database, code=2)
        assert [each["problem"] for each in told["params"]["problems"]] == ["records_owner"]
        yield {"ARCHIVE": job, "TARGET": scene.database, "ADMINISTRATOR": scene.database}
        assert one(scene.database, ORDERS) == 45


READING = (
    (
        "CREATE TABLE app.reading (sensor text, number integer, at timestamptz NOT NULL,"
        " PRIMARY KEY (sensor, number))"
    ),
    (
        "INSERT INTO app.reading VALUES ('a', 1, '2020-01-01Z'), ('a', 2, '2020-01-01Z'),"
        " ('b', 1, '2020-01-02Z')"
    ),
)


@remedy(Code.CHOICE_INVALID, 1)
def the_key_has_two_columns(scene: Scene) -> Iterator[Variables]:
    archive = scene.exported("app.reading", "CREATE SCHEMA app", *READING)
    told = scene.ask("archive", "find", archive, "a", code=2)
    assert told["params"]["cause"] == "key-length"
    with scene.another_database() as target:
        yield {"ARCHIVE": archive, "TARGET": target, "FIRST": "a", "SECOND": "2"}
        assert one(target, "SELECT sensor || number FROM app.reading") == "a2"


@remedy(Code.CHOICE_INVALID, 2)
def the_condition_names_no_column(scene: Scene) -> Iterator[Variables]:
    archive = scene.exported("app.reading", "CREATE SCHEMA app", *READING)
    with scene.another_database() as target:
        arguments = ("archive", "restore", archive, "--to", target, "--create-tables")
        told = scene.ask(*arguments, "--where", "sensors=b", code=2)
        assert told["params"]["cause"] == "column-unknown"
        yield {"ARCHIVE": archive, "TARGET": target, "COLUMN": "sensor", "VALUE": "b"}
        assert one(target, "SELECT sensor || number FROM app.reading") == "b1"


DAYS = (
    "CREATE SCHEMA app",
    "CREATE TABLE app.day (at timestamp PRIMARY KEY)",
    "CREATE TABLE app.note (day date REFERENCES app.day, text text)",
    "INSERT INTO app.day VALUES ('2020-01-01'), ('2020-01-02')",
    "INSERT INTO app.note VALUES ('2020-01-01', 'first'), ('2020-01-02', 'second')",
)


@remedy(Code.CHOICE_INVALID, 3)
def two_types_are_joined(scene: Scene) -> Iterator[Variables]:
    archive = scene.exported("app.day", *DAYS)
    told = scene.ask("archive", "find", archive, "2020-01-02 00:00:00", code=2)
    assert told["params"]["cause"] == "join-types"
    chosen = {"SCHEMA": "old", "TABLE": "note", "CONDITION": "day = '2020-01-02'"}
    with scene.another_database() as target:
        yield {"ARCHIVE": archive, "TARGET": target, **chosen}
        assert one(target, "SELECT count(*) FROM old.note") == 2
