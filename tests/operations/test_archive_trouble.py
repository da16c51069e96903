"""Ways an archive goes wrong: the right code, nothing half-written, and it goes on once that is mended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from shared.errors import Code
from shared.jobs.model import Ending, Job, State
from shared.jobs.rules import Action
from shared.plans import namespaces, policies
from tests.operations.stage import (
    Stage,
    act,
    adopt,
    assert_sound,
    batch_files,
    copied,
    due_now,
    event_types,
    execute,
    leftovers,
    only_job,
    plan,
    refuses_the_volume,
    rows_in,
    stage,
)
from tests.worlds import SIGNED, control, rows

KINDS = """
[kinds.notes]
root = "public.note"
time = "at"
related = ["public.line"]
"""
NOTE = "CREATE TABLE note (id integer PRIMARY KEY, at date NOT NULL, said text)"
LINE = "CREATE TABLE line (note_id integer REFERENCES note, said text)"
FILL = (
    "INSERT INTO note SELECT i, '2020-01-01'::date + i / 3, 'n' || i FROM generate_series(1, 6) AS i",
    "INSERT INTO line SELECT id, 'l' || n FROM note, generate_series(1, 2) AS n",
)
MIB = 1024 * 1024


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    """Six notes with two lines each, two notes a batch; the first of three batches is confirmed."""
    here = stage(database, volume_root, KINDS, NOTE, LINE, *FILL)
    plan(here, "notes", batch_size=2)
    assert here.tick().outcome.ending is Ending.PROGRESSED
    return here


def confirmed(here: Stage) -> list[str]:
    """Check that the volume holds what was confirmed and nothing else under a final name; return it."""
    job = only_job(here)
    names = [file.name for file in batch_files(here, job)]
    assert names == [f"{seq:06d}.sql.zst" for seq in range(1, job.batches + 1)]
    return names


def refused(here: Stage, ending: Ending, code: Code, cause: str | None = None) -> Job:
    """Tick once; it must end like this, and leave no file that was not confirmed. Return the job."""
    outcome = here.tick().outcome
    assert (outcome.ending, outcome.code, outcome.params.get("cause")) == (ending, code, cause)
    assert len(confirmed(here)) == 1
    job = only_job(here)
    assert (job.error_code, job.errors[-1]["code"]) == (code, code)
    return job


def finishes(here: Stage, job: Job | None = None) -> Job:
    """Retry if asked to, tick to the end, and check that every row of the source was archived once."""
    if job is not None:
        act(here, job, Action.RETRY)
    due_now(here)
    reports = here.until_idle()
    assert reports[-1].outcome.ending is Ending.IDLE, reports[-1]
    done = only_job(here)
    assert done.state is State.SUCCEEDED
    found = rows_in(assert_sound(here, done))
    for table in ("note", "line"):
        assert found[f'"public"."{table}"'] == copied(here.source, f"SELECT * FROM {table}")
    assert leftovers(here) == []
    return done


@dataclass(frozen=True)
class Mishap:
    """Something done to the source between two batches, what it must come to, and how it is mended."""

    spoil: str
    mend: str
    code: Code
    cause: str


SOURCE_MISHAPS = {
    "a table is gone": Mishap(
        "ALTER TABLE line RENAME TO line_away",
        "ALTER TABLE line_away RENAME TO line",
        Code.SCHEMA_CHANGED,
        "table-missing",
    ),
    "a column was added": Mishap(
        "ALTER TABLE note ADD COLUMN more text",
        "ALTER TABLE note DROP COLUMN more",
        Code.SCHEMA_CHANGED,
        "columns",
    ),
    "a column of a related table was added": Mishap(
        "ALTER TABLE line ADD COLUMN more text",
        "ALTER TABLE line DROP COLUMN more",
        Code.SCHEMA_CHANGED,
        "columns",
    ),
    "a column changed its type": Mishap(
        "ALTER TABLE note ALTER COLUMN said TYPE varchar(20)",
        "ALTER TABLE note ALTER COLUMN said TYPE text",
        Code.SCHEMA_CHANGED,
        "columns",
    ),
    "a column may be null now": Mishap(
        "ALTER TABLE note ALTER COLUMN at DROP NOT NULL",
        "ALTER TABLE note ALTER COLUMN at SET NOT NULL",
        Code.SCHEMA_CHANGED,
        "columns",
    ),
    "the time column is gone": Mishap(
        "ALTER TABLE note RENAME COLUMN at TO moment",
        "ALTER TABLE note RENAME COLUMN moment TO at",
        Code.SCHEMA_CHANGED,
        "COLUMN_MISSING",
    ),
    "the foreign key is gone": Mishap(
        "ALTER TABLE line DROP CONSTRAINT line_note_id_fkey",
        "ALTER TABLE line ADD CONSTRAINT line_note_id_fkey FOREIGN KEY (note_id) REFERENCES note",
        Code.SCHEMA_CHANGED,
        "FOREIGN_KEY_MISSING",
    ),
    "the key is not unique any more": Mishap(
        "ALTER TABLE line DROP CONSTRAINT line_note_id_fkey;"
        " ALTER TABLE note DROP CONSTRAINT note_pkey; CREATE INDEX ON note (id)",
        "ALTER TABLE note ADD PRIMARY KEY (id); ALTER TABLE line ADD FOREIGN KEY (note_id) REFERENCES note",
        Code.SCHEMA_CHANGED,
        "KEY_MISSING",
    ),
    "the table was replaced by a view": Mishap(
        "ALTER TABLE line RENAME TO line_away; CREATE VIEW line AS SELECT * FROM line_away",
        "DROP VIEW line; ALTER TABLE line_away RENAME TO line",
        Code.SCHEMA_CHANGED,
        "NOT_A_TABLE",
    ),
    "the table has got heirs": Mishap(
        "CREATE TABLE heir () INHERITS (line)",
        "DROP TABLE heir",
        Code.SCHEMA_CHANGED,
        "INHERITED",
    ),
}


@pytest.mark.parametrize("what", SOURCE_MISHAPS)
def test_a_source_that_changed_in_mid_job_is_a_verdict_until_it_is_mended(
    here: Stage, what: str
) -> None:
    mishap = SOURCE_MISHAPS[what]
    execute(here.source, mishap.spoil)
    job = refused(here, Ending.FAILED, mishap.code, mishap.cause)
    assert here.tick().outcome.ending is Ending.IDLE
    execute(here.source, mishap.mend)
    finishes(here, job)


def test_a_source_moved_to_another_schema_is_a_change(here: Stage) -> None:
    execute(
        here.source,
        "CREATE SCHEMA elsewhere; ALTER TABLE line SET SCHEMA elsewhere;"
        " ALTER TABLE note SET SCHEMA elsewhere",
    )
    job = refused(here, Ending.FAILED, Code.SCHEMA_CHANGED, "table-missing")
    execute(
        here.source,
        "ALTER TABLE elsewhere.note SET SCHEMA public; ALTER TABLE elsewhere.line SET SCHEMA public",
    )
    finishes(here, job)


def test_a_table_that_is_not_there_when_the_job_begins_is_named(
    database: str, volume_root: Path
) -> None:
    here = stage(database, volume_root, KINDS, NOTE)
    plan(here, "notes", batch_size=2)
    outcome = here.tick().outcome
    assert (outcome.ending, outcome.code) == (Ending.FAILED, Code.EXPORT_FAILED)
    assert outcome.params == {"cause": "TABLE_MISSING", "table": "public.line"}
    assert not (volume_root / only_job(here).directory).exists()
    execute(database, LINE, *FILL)
    finishes(here, only_job(here))


@pytest.fixture
def role(server_dsn: str) -> Iterator[str]:
    """Name of a role that may do nothing; it belongs to the whole server, hence the pid in its name."""
    name = f"tallystick_reader_{os.getpid()}"
    execute(server_dsn, f"CREATE ROLE {name}")
    yield name
    execute(server_dsn, f"DROP ROLE {name}")


@pytest.fixture
def reader(role: str, here: Stage) -> Iterator[Stage]:
    """Return a node that reads its source as a role that may read both tables and do nothing else."""
    execute(here.source, f"GRANT SELECT ON note, line TO {role}", f"GRANT {role} TO CURRENT_USER")
    as_role = f"{here.source}&options=-crole%3D{role}"
    yield here.changed(sources={"control": here.control, "application": as_role})
    execute(here.source, f"DROP OWNED BY {role}")


def test_reading_asks_for_nothing_but_select(reader: Stage) -> None:
    finishes(reader)


def test_a_table_that_may_not_be_read_is_a_verdict(reader: Stage, role: str) -> None:
    execute(reader.source, f"REVOKE SELECT ON line FROM {role}")
    job = refused(reader, Ending.FAILED, Code.EXPORT_FAILED, "not-granted")
    execute(reader.source, f"GRANT SELECT ON line TO {role}")
    finishes(reader, job)


def test_row_level_security_that_would_hide_rows_is_a_verdict(reader: Stage, role: str) -> None:
    execute(
        reader.source,
        f"CREATE POLICY half ON note FOR SELECT TO {role} USING (id % 2 = 0)",
        "ALTER TABLE note ENABLE ROW LEVEL SECURITY",
    )
    job = refused(reader, Ending.FAILED, Code.EXPORT_FAILED, "ROW_SECURITY")
    execute(reader.source, "ALTER TABLE note DISABLE ROW LEVEL SECURITY")
    finishes(reader, job)


def test_a_source_that_cannot_be_reached_is_tried_again_after_a_while(here: Stage) -> None:
    away = here.changed(
        sources={"control": here.control, "application": "postgresql://127.0.0.1:1/nowhere"}
    )
    job = refused(away, Ending.WAITING, Code.EXPORT_FAILED, "unreachable")
    assert (job.state, job.failures) == (State.PENDING, 1)
    assert job.due_at > job.updated_at
    assert here.tick().outcome.ending is Ending.IDLE
    finishes(here)


def test_a_source_that_stays_away_fails_the_job_after_twelve_tries(here: Stage) -> None:
    away = here.changed(
        sources={"control": here.control, "application": "postgresql://127.0.0.1:1/nowhere"}
    )
    for _ in range(11):
        assert away.tick().outcome.ending is Ending.WAITING
        due_now(here)
    job = refused(away, Ending.FAILED, Code.EXPORT_FAILED, "unreachable")
    assert job.failures == 12
    finishes(here, job)


def test_a_source_that_locks_a_table_is_tried_again(here: Stage) -> None:
    with psycopg.connect(here.source) as connection:
        connection.execute("LOCK TABLE line IN ACCESS EXCLUSIVE MODE")
        quick = here.changed(deadline_seconds=2.0)
        outcome = quick.tick().outcome
        connection.rollback()
    assert outcome.code is Code.EXPORT_FAILED
    assert only_job(here).state is State.PENDING
    assert len(confirmed(here)) == 1
    finishes(here)


def test_a_policy_that_changed_stops_the_next_export(here: Stage) -> None:
    with closing(control(here.control)) as db:
        policies.put(db, "default", policies.PolicyChange("notes", 400), SIGNED)
    job = refused(here, Ending.FAILED, Code.POLICY_CHANGED)
    # A retry cannot change what the job is bound to.
    act(here, job, Action.RETRY)
    refused(here, Ending.FAILED, Code.POLICY_CHANGED)


def test_a_disabled_namespace_exports_nothing_until_it_is_enabled(here: Stage) -> None:
    with closing(control(here.control)) as db:
        namespaces.switch(db, "default", SIGNED, enabled=False)
    job = refused(here, Ending.FAILED, Code.PERMISSION_DENIED)
    with closing(control(here.control)) as db:
        namespaces.switch(db, "default", SIGNED, enabled=True)
    finishes(here, job)


def test_a_job_budget_that_is_used_up_stops_before_reading(here: Stage) -> None:
    execute(here.control, "UPDATE tallystick.job SET max_bytes = bytes")
    unreadable = here.changed(sources={"control": here.control, "application": "postgresql://:1/x"})
    job = refused(unreadable, Ending.FAILED, Code.STORAGE_LIMIT, "job-budget")
    act(here, job, Action.RETRY, max_bytes=64 * MIB)
    finishes(here)


def test_a_job_budget_too_small_for_the_next_batch_publishes_nothing(here: Stage) -> None:
    execute(here.control, "UPDATE tallystick.job SET max_bytes = bytes + 1")
    job = refused(here, Ending.FAILED, Code.STORAGE_LIMIT, "job-budget")
    assert job.reserved == 0
    act(here, job, Action.RETRY, max_bytes=64 * MIB)
    finishes(here)


def test_a_volume_budget_that_is_used_up_stops_before_reading(here: Stage) -> None:
    full = here.changed(
        volume_max_bytes=1, sources={"control": here.control, "application": "postgresql://:1/x"}
    )
    job = refused(full, Ending.FAILED, Code.STORAGE_LIMIT, "volume-budget")
    finishes(here, job)


def test_a_volume_budget_counts_what_other_jobs_have_set_aside(here: Stage) -> None:
    used = rows(here.control, "SELECT used_bytes FROM tallystick.volume")[0]["used_bytes"]
    tight = here.changed(volume_max_bytes=used + 1000)
    execute(
        here.control,
        "INSERT INTO tallystick.job (operation, namespace_id, storage_id, batch_size, page_size,"
        " max_bytes, input, reserved, state, error_code) SELECT operation, namespace_id, storage_id,"
        " 1, 1, 1, input, 999, 'FAILED', 'STORAGE_FAILED' FROM tallystick.job",
    )
    outcome = tight.tick().outcome
    assert (outcome.code, outcome.params["cause"]) == (Code.STORAGE_LIMIT, "volume-budget")


def test_a_manifest_that_was_deleted_is_never_made_again_in_silence(here: Stage) -> None:
    manifest = here.root / only_job(here).directory / "manifest.json"
    content = manifest.read_bytes()
    manifest.unlink()
    job = refused(here, Ending.FAILED, Code.FILE_CHECK_FAILED, "missing")
    assert not manifest.exists()
    manifest.write_bytes(content)
    finishes(here, job)


def test_a_manifest_that_was_edited_is_damage(here: Stage) -> None:
    manifest = here.root / only_job(here).directory / "manifest.json"
    content = manifest.read_bytes()
    manifest.write_bytes(content.replace(b'"after_days":365', b'"after_days":366'))
    job = refused(here, Ending.FAILED, Code.FILE_CHECK_FAILED, "differs")
    manifest.write_bytes(content)
    finishes(here, job)


def spoilt(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ("harm", "cause", "refused_for"),
    [
        (spoilt, "digest", None),
        (lambda content: content[:-1], "digest", "last-size"),
        (lambda content: b"", "digest", "last-size"),
        (None, "missing", "last-missing"),
    ],
    ids=["edited", "cut", "emptied", "deleted"],
)
def test_the_batch_before_is_checked_before_anything_is_read(
    here: Stage, harm: Callable[[bytes], bytes] | None, cause: str, refused_for: str | None
) -> None:
    (file,) = batch_files(here, only_job(here))
    content = file.read_bytes()
    file.unlink()
    if harm is not None:
        file.write_bytes(harm(content))
    if refused_for is not None:
        refuses_the_volume(here, refused_for)
        adopt(here)
    outcome = here.tick().outcome
    assert (outcome.code, outcome.params["cause"]) == (Code.FILE_CHECK_FAILED, cause)
    assert len(batch_files(here, only_job(here))) == (harm is not None)
    file.write_bytes(content)
    finishes(here, only_job(here))


def test_a_volume_rolled_back_to_an_older_batch_is_noticed(here: Stage) -> None:
    here.tick()
    newest = batch_files(here, only_job(here))[-1]
    kept = newest.rename(here.root.parent / "kept")
    refuses_the_volume(here, "last-missing")
    # Adopted all the same, it is still not built upon.
    adopt(here)
    outcome = here.tick().outcome
    assert (outcome.code, outcome.params["cause"]) == (Code.FILE_CHECK_FAILED, "missing")
    kept.rename(newest)
    finishes(here, only_job(here))


def test_a_missing_directory_is_damage_once_something_was_confirmed(here: Stage) -> None:
    directory = here.root / only_job(here).directory
    kept = directory.rename(here.root.parent / "kept")
    refuses_the_volume(here, "last-missing")
    adopt(here)
    outcome = here.tick().outcome
    assert (outcome.code, outcome.params["cause"]) == (Code.FILE_CHECK_FAILED, "missing")
    assert not directory.exists()
    kept.rename(directory)
    finishes(here, only_job(here))


def test_a_symbolic_link_in_place_of_a_batch_is_not_followed(here: Stage) -> None:
    (file,) = batch_files(here, only_job(here))
    kept = file.rename(here.root.parent / "kept")
    file.symlink_to(kept)
    refuses_the_volume(here, "last-missing")
    adopt(here)
    outcome = here.tick().outcome
    assert outcome.ending in {Ending.WAITING, Ending.FAILED}
    assert outcome.code in {Code.STORAGE_FAILED, Code.FILE_CHECK_FAILED}
    assert len(batch_files(here, only_job(here))) == 1
    file.unlink()
    kept.rename(file)
    finishes(here, only_job(here) if outcome.ending is Ending.FAILED else None)


def test_a_strangers_file_under_the_next_name_is_neither_taken_nor_replaced(here: Stage) -> None:
    job = only_job(here)
    stranger = here.root / job.directory / "000002.sql.zst"
    stranger.write_bytes(b"not one of ours")
    outcome = here.tick().outcome
    assert (outcome.ending, outcome.code) == (Ending.FAILED, Code.FILE_CHECK_FAILED)
    assert outcome.params["file"] == "000002.sql.zst"
    assert stranger.read_bytes() == b"not one of ours"
    assert only_job(here).batches == 1
    stranger.unlink()
    finishes(here, only_job(here))


def test_another_jobs_batch_under_the_next_name_is_not_adopted(here: Stage, database: str) -> None:
    job = only_job(here)
    (first,) = batch_files(here, job)
    (here.root / job.directory / "000002.sql.zst").write_bytes(first.read_bytes())
    outcome = here.tick().outcome
    assert (outcome.code, outcome.params["cause"]) == (Code.FILE_CHECK_FAILED, "SEQ_MISMATCH")
    assert only_job(here).batches == 1


@pytest.mark.parametrize("table", ["note", "line"])
def test_a_value_that_postgres_cannot_print_fails_the_job_naming_its_root(
    database: str, server_dsn: str, volume_root: Path, table: str
) -> None:
    """Byte 129 means nothing in WIN1252, but a database of that encoding stores it."""
    name = f"{database.rsplit('/', 1)[1].partition('?')[0]}_win"
    execute(server_dsn, f"CREATE DATABASE {name} TEMPLATE template0 ENCODING WIN1252 LOCALE 'C'")
    source = server_dsn.replace("/postgres?", f"/{name}?", 1)
    key = "id" if table == "note" else "note_id"
    spoil = f"UPDATE {table} SET said = chr(129) WHERE {key} = 3"
    try:
        here = stage(database, volume_root, KINDS, NOTE, LINE, *FILL, spoil, source=source)
        plan(here, "notes", batch_size=4)
        outcome = here.until(lambda outcome: outcome.ending is Ending.FAILED, 20)[-1].outcome
        assert outcome.code is Code.BATCH_TOO_LARGE
        assert outcome.params["key"] == ["3"]
        job = only_job(here)
        assert (job.page_size, job.roots) == (1, 2)
        assert "page-halved" in event_types(here, job)
        execute(source, f"UPDATE {table} SET said = '' WHERE {key} = 3")
        # The page grows back as soon as batches succeed.
        assert finishes(here, job).batches < 6
    finally:
        execute(server_dsn, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.system
def test_a_page_over_the_size_limit_is_halved_and_a_single_root_is_exempt(
    database: str, volume_root: Path
) -> None:
    here = stage(
        database,
        volume_root,
        "[kinds.notes]\nroot = 'public.note'\ntime = 'at'",
        NOTE,
        "INSERT INTO note SELECT i, '2020-01-01', repeat('x', 70000000) FROM generate_series(1, 2) AS i",
        "INSERT INTO note SELECT 3, '2020-01-01', repeat('y', 140000000)",
    )
    plan(here, "notes", batch_size=4)
    reports = here.until(lambda outcome: outcome.ending in {Ending.IDLE, Ending.FAILED}, 20)
    job = only_job(here)
    assert job.state is State.SUCCEEDED, reports[-1]
    assert event_types(here, job).count("page-halved") >= 1
    files = assert_sound(here, job)
    assert sum(sum(each.values()) for each in rows_in(files).values()) == 3
