"""Trouble with the source: rows that cannot be read, tables that change, rows that come late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from shared.chain.manifest import parse_manifest
from shared.errors import Code
from tests.remedies.scene import Scene, Variables, remedy

NOWHERE = "postgresql://nobody@/db?host=/nowhere/at/all"
KIND = '[kinds.orders]\nroot = "app.orders"\ntime = "placed_at"\nrelated = ["app.line"]\nwhere = "{}"\n'


@remedy(Code.EXPORT_FAILED, 1)
def the_source_is_away(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.setenv(SOURCE_URL=NOWHERE)
    assert scene.ask("tick", code=1)["params"]["cause"] == "unreachable"
    yield {"SOURCE": scene.database, "KIND": "orders"}
    assert scene.job(job)["state"] == "PENDING"
    scene.time_passes()
    scene.finishes(job)


@remedy(Code.EXPORT_FAILED, 2)
def the_user_may_not_read_a_table(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    with scene.role() as role:
        scene.sql(f"GRANT USAGE ON SCHEMA app TO {role}")
        scene.sql(f"GRANT SELECT ON app.orders TO {role}")
        scene.setenv(SOURCE_URL=scene.url(role=role))
        assert scene.ask("tick", code=3)["params"]["cause"] == "not-granted"
        yield {"OWNER": scene.database, "TABLE": "app.line", "ROLE": role, "JOB": job}
        scene.finishes(job)


@remedy(Code.EXPORT_FAILED, 3)
def the_condition_of_the_kind_fails_on_a_row(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.kinds.write_text(KIND.format("1 / (id - 5) < 9"))
    assert scene.ask("tick", code=3)["params"]["cause"] == "refused-by-server"
    job = scene.newest()["id"]
    yield {"KIND": "orders", "JOB": job, "EDITOR": scene.editor(KIND.format("id > 0"))}
    assert scene.job(job)["state"] == "ABANDONED"
    assert scene.finishes()["roots"] == 45


@remedy(Code.SCHEMA_CHANGED, 1)
def a_table_was_altered_for_good(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.sql("ALTER TABLE app.orders ADD COLUMN paid boolean")
    assert scene.ask("tick", code=3)["params"]["column"] == "paid"
    yield {"KIND": "orders", "JOB": job}
    assert scene.job(job)["state"] == "ABANDONED"
    assert scene.finishes()["roots"] == 45


@remedy(Code.SCHEMA_CHANGED, 2)
def a_table_was_altered_by_mistake(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.sql("ALTER TABLE app.orders ADD COLUMN paid boolean")
    scene.ask("tick", code=3)
    undo = "ALTER TABLE app.orders DROP COLUMN paid"
    yield {"SOURCE": scene.database, "UNDO": undo, "JOB": job}
    scene.finishes(job)


def too_slow(scene: Scene) -> str:
    """Let one root take longer to read than a tick has time, and return the job that met it."""
    scene.deploy("--batch-size", "1")
    scene.sql("DELETE FROM app.line")
    scene.sql("DELETE FROM app.orders WHERE id > 3")
    # Declared as what it is not, or the condition would be refused.
    scene.sql(
        "CREATE FUNCTION app.slow(bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS"
        " 'BEGIN PERFORM pg_catalog.pg_sleep(1.2); RETURN true; END'"
    )
    scene.kinds.write_text(KIND.format("id <> 1 OR app.slow(id)"))
    scene.setenv(DEADLINE_SECONDS=1, TIMEOUT_SECONDS=5, LEASE_SECONDS=6)
    told = scene.ask("tick", code=3)
    assert (told["params"]["cause"], told["params"]["key"]) == ("timeout", ["1"])
    return str(scene.newest()["id"])


@remedy(Code.BATCH_TOO_LARGE, 1)
def one_root_takes_too_long(scene: Scene) -> Iterator[Variables]:
    job = too_slow(scene)
    yield {"KIND": "orders", "JOB": job}
    assert scene.finishes(job)["roots"] == 3


@remedy(Code.BATCH_TOO_LARGE, 2)
def one_root_is_left_out(scene: Scene) -> Iterator[Variables]:
    job = too_slow(scene)
    yield {"KIND": "orders", "JOB": job, "EDITOR": scene.editor(KIND.format("id <> 1"))}
    assert scene.job(job)["state"] == "ABANDONED"
    assert scene.finishes()["roots"] == 2


@remedy(Code.CREDENTIAL_MISSING, 1)
def the_url_names_a_user_who_is_not_there(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.setenv(SOURCE_URL=scene.url(role="nobody_of_that_name"))
    assert scene.ask("tick", code=3)["outcome"] == "paused"
    yield {"SOURCE": scene.database}
    scene.finishes(job)


@remedy(Code.CREDENTIAL_MISSING, 2)
def the_user_may_not_log_in(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    with scene.role("NOLOGIN") as role:
        scene.sql(f"GRANT USAGE ON SCHEMA app TO {role}")
        scene.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA app TO {role}")
        scene.setenv(SOURCE_URL=scene.url(role=role))
        assert scene.ask("tick", code=3)["outcome"] == "paused"
        yield {"ADMIN": scene.database, "ROLE": role}
        scene.finishes(job)


@contextmanager
def hidden(scene: Scene) -> Iterator[tuple[str, Variables]]:
    """Have somebody's transaction run that the source's user cannot see, and be told in an export."""
    scene.deploy()
    now = datetime.now(UTC).isoformat()
    with scene.role() as role, scene.session() as session:
        session.execute("SELECT now()")
        scene.sql(f"GRANT USAGE ON SCHEMA app TO {role}")
        scene.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA app TO {role}")
        scene.setenv(SOURCE_URL=scene.url(role=role))
        first = str(scene.directory / "first")
        told = scene.ask(
            "archive", "export", "orders", "--until", now, "--directory", first, code=0
        )
        assert told["held_back"]["params"]["cause"] == "hidden"
        variables = {"KIND": "orders", "UNTIL": now, "DIRECTORY": str(scene.directory / "second")}
        yield role, variables


@remedy(Code.WINDOW_HELD_BACK, 1, 2)
def the_user_cannot_see_what_runs(scene: Scene) -> Iterator[Variables]:
    with hidden(scene) as (role, variables):
        yield {
            **variables,
            "ROLE": role,
            "OWNER": scene.database,
            "ADMINISTRATOR": scene.database,
            "SOURCE": scene.database,
        }
        third = str(scene.directory / "third")
        asked = ("--until", variables["UNTIL"], "--directory", third)
        told = scene.ask("archive", "export", "orders", *asked, code=0)
        assert told["margin_seconds"] is None


@remedy(Code.WINDOW_HELD_BACK, 3)
def the_distance_is_longer_than_any_transaction(scene: Scene) -> Iterator[Variables]:
    with hidden(scene) as (_, variables):
        yield variables
        text = (Path(variables["DIRECTORY"]) / "manifest.json").read_bytes()
        assert parse_manifest(text).window.margin_seconds == 3600


def late(scene: Scene) -> str:
    """Archive everything old, insert one old row more, and let the next job notice; return its id."""
    scene.deploy()
    scene.finishes()
    scene.sql("INSERT INTO app.orders (customer, placed_at) VALUES ('late', '2019-06-01')")
    scene.time_passes()
    assert scene.finishes()["late_rows"] == 1
    return str(scene.newest()["id"])


@remedy(Code.LATE_ROWS, 1)
def a_row_came_late(scene: Scene) -> Iterator[Variables]:
    noticed = late(scene)
    yield {"KIND": "orders"}
    swept = scene.newest()
    assert (swept["state"], swept["roots"]) == ("SUCCEEDED", 46)
    assert swept["id"] != noticed
    scene.time_passes()
    assert scene.finishes()["late_rows"] == 0


@remedy(Code.LATE_ROWS, 2)
def rows_come_late_as_a_rule(scene: Scene) -> Iterator[Variables]:
    late(scene)
    yield {"KIND": "orders"}
    scene.time_passes()
    assert scene.finishes()["roots"] == 46


@remedy(Code.WINDOW_COUNT, 1)
def a_row_moved_behind_the_job(scene: Scene) -> Iterator[Variables]:
    noticed = scene.in_mid_job()
    scene.sql("UPDATE app.orders SET placed_at = '2019-06-01' WHERE id = 45")
    assert scene.finishes(noticed)["roots"] == 44
    scene.ask("doctor")
    yield {"KIND": "orders"}
    swept = scene.newest()
    assert (swept["state"], swept["roots"]) == ("SUCCEEDED", 45)
    assert scene.job(swept["id"])["window"][0]["there"] == 45
