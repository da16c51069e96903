"""Where a window ends: before every row that may still appear, or the archive says what it could not see."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from unittest import mock

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from handlers.cli import run
from shared.archive import kinds as kinds_file
from shared.archive import survey, window
from shared.archive.examine import Problem
from shared.archive.opening import opened
from shared.archive.shape import Opening
from shared.chain.manifest import parse_manifest
from shared.db.connect import connect
from shared.errors import Code, Waits
from shared.jobs.model import Ending, State
from tests.crash.cluster import Cluster, running
from tests.kinds.drafts import findings_of
from tests.operations.stage import (
    batch_files,
    due_now,
    event_types,
    events,
    only_job,
    plan,
    rows_in,
    stage,
)
from tests.postgres.reading import definition_of, execute, opening_of, paged
from tests.worlds import one, rows, without

KIND = 'root = "public.parcel"\ntime = "at"\nrelated = ["public.label"]'
FILE = f"[kinds.parcels]\n{KIND}\n"
TABLES = """
CREATE TABLE parcel (id bigint NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (id, at))
PARTITION BY RANGE (at);
CREATE TABLE parcel_old PARTITION OF parcel DEFAULT;
CREATE TABLE label (
    id bigint PRIMARY KEY, parcel bigint, at timestamptz,
    FOREIGN KEY (parcel, at) REFERENCES parcel
);
CREATE TABLE other (id bigint PRIMARY KEY);
INSERT INTO parcel
SELECT i, now() - interval '2 days' + i * interval '1 minute' FROM generate_series(1, 4) AS i
"""
HOUR_AGO = "INSERT INTO parcel VALUES (99, now() - interval '1 hour')"
MARGIN = timedelta(seconds=window.MARGIN_SECONDS)
DAY = timedelta(days=1)

numbers = itertools.count(1)


@pytest.fixture(scope="module")
def twophase() -> Iterator[Cluster]:
    """A server that knows prepared transactions."""
    with tempfile.TemporaryDirectory(prefix="tallystick-") as name, running(Path(name)) as started:
        execute(started.dsn, "ALTER SYSTEM SET max_prepared_transactions = 8")
        started.restart()
        started.template()
        yield started


@pytest.fixture
def parcels(twophase: Cluster) -> Iterator[str]:
    """URL of a database with parcels, on a server that knows prepared transactions."""
    name = f"parcels_{next(numbers)}"
    execute(twophase.dsn, f"CREATE DATABASE {name} TEMPLATE template_of_ours")
    dsn = make_conninfo(twophase.dsn, dbname=name)
    execute(dsn, TABLES)
    yield dsn
    text = "SELECT quote_literal(gid) AS gid FROM pg_prepared_xacts WHERE database = current_database()"
    for row in rows(dsn, text):
        execute(dsn, f"ROLLBACK PREPARED {row['gid']}")


@pytest.fixture
def source(empty_database: str) -> str:
    execute(empty_database, TABLES)
    return empty_database


def prepare(dsn: str, *statements: str, gid: str = "courier 7's load") -> str:
    """Leave a transaction prepared, and return its name as a literal."""
    literal = "'" + gid.replace("'", "''") + "'"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("BEGIN")
        for statement in statements:
            connection.execute(statement.encode())
        connection.execute(f"PREPARE TRANSACTION {literal}".encode())
    return literal


def window_of(dsn: str, cutoff_at: str | None = None, *, hidden_margin: int = 86_400) -> Opening:
    """Return a window as a job's first look fixes it, which asks for everything up to now."""
    with connect(dsn) as connection:
        return opened(
            connection,
            opening_of(dsn, KIND).shape,
            definition_of(KIND),
            cutoff_at=cutoff_at or one(dsn, "SELECT clock_timestamp()::text"),
            namespace_value=None,
            hidden_margin=hidden_margin,
        )


def before_now(dsn: str, found: Opening) -> timedelta:
    """Return how long before the source's clock a window ends."""
    now: datetime = one(dsn, "SELECT clock_timestamp()")
    return now - datetime.fromisoformat(found.cutoff)


@contextmanager
def in_transaction(dsn: str, statement: str) -> Iterator[datetime]:
    """Hold a transaction open over the block, and yield when it began."""
    with psycopg.connect(dsn) as connection:
        connection.execute(statement.encode())
        row = connection.execute("SELECT now()").fetchone()
        assert row is not None
        yield row[0]
        connection.rollback()


@contextmanager
def reader(dsn: str, *more: str) -> Iterator[str]:
    """Yield the URL of a user who may read the tables, and nothing else but what is granted in ``more``."""
    name = f"window_reader_{next(numbers)}"
    execute(dsn, f"CREATE ROLE {name} LOGIN", f"GRANT SELECT ON parcel, label TO {name}")
    for grant in more:
        execute(dsn, f"GRANT {grant} TO {name}")
    try:
        yield make_conninfo(dsn, user=name)
    finally:
        execute(dsn, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def test_a_job_waits_for_a_prepared_transaction_without_counting_and_then_has_its_rows(
    parcels: str, volume_root: Path
) -> None:
    here = stage(parcels, volume_root, FILE)
    gid = prepare(parcels, HOUR_AGO)
    plan(here, "parcels", days=0)
    for _ in range(14):
        outcome = here.tick().outcome
        assert (outcome.ending, outcome.code) == (Ending.WAITING, Code.EXPORT_FAILED)
        due_now(here)
    assert outcome.params["cause"] == "prepared-transaction"
    assert outcome.params["transaction"] == "courier 7's load"
    job = only_job(here)
    assert (job.state, job.failures, job.opening) == (State.PENDING, 0, None)
    assert event_types(here, job) == ["unit-waits"]
    execute(parcels, f"COMMIT PREPARED {gid}")
    here.until_idle()
    job = only_job(here)
    assert (job.state, job.roots) == (State.SUCCEEDED, 5)
    found = rows_in(batch_files(here, job))['"public"."parcel"']
    assert [line for line in found if line.startswith(b"99\t")]


def test_a_window_that_does_not_wait_for_a_prepared_transaction_passes_its_rows(
    parcels: str,
) -> None:
    gid = prepare(parcels, HOUR_AGO)
    with pytest.raises(Waits):
        window_of(parcels)
    with without(window, "prepared", "held.pid IS NULL", "false"):
        too_wide = window_of(parcels)
    passed = paged(parcels, too_wide, 10)
    execute(parcels, f"COMMIT PREPARED {gid}")
    (lost,) = set(paged(parcels, too_wide, 10)) - set(passed)
    assert lost.startswith(b"99\t")


WRITERS = {
    "a root through its parent": HOUR_AGO,
    "a root in its partition": HOUR_AGO.replace("parcel", "parcel_old"),
    "a related row": "INSERT INTO label SELECT 1, id, at FROM parcel WHERE id = 1",
    "an update": "UPDATE parcel SET id = 98 WHERE id = 2",
    "a partition to come": "CREATE TABLE parcel_new PARTITION OF parcel"
    " FOR VALUES FROM ('2101-01-01') TO ('2102-01-01')",
}
BYSTANDERS = {
    "another table": "INSERT INTO other VALUES (1)",
    "a look at the table": "SELECT * FROM parcel",
    "rows that are locked": "SELECT * FROM parcel FOR UPDATE",
}


@pytest.mark.parametrize("statement", WRITERS.values(), ids=WRITERS)
def test_whatever_may_bring_in_rows_is_waited_for(parcels: str, statement: str) -> None:
    prepare(parcels, statement)
    with pytest.raises(Waits) as caught:
        window_of(parcels)
    assert caught.value.params["cause"] == "prepared-transaction"


def test_an_export_that_goes_on_does_not_wait_for_what_its_window_leaves_out(
    parcels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window was fixed when it was begun; what may still come belongs to another archive."""
    file = tmp_path / "kinds.toml"
    file.write_text(FILE)
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", parcels)
    monkeypatch.setenv("TALLYSTICK_KINDS_FILE", str(file))
    directory = tmp_path / "parcels"
    command = [
        "archive",
        "export",
        "parcels",
        "--until",
        "2100-01-01",
        "--directory",
        str(directory),
    ]
    assert run(command) == 0
    (directory / "000001.sql.zst").unlink()
    prepare(parcels, HOUR_AGO)
    assert run(command) == 0
    assert run([*command[:-1], str(tmp_path / "another")]) == 1


def test_a_prepared_transaction_is_known_after_a_restart_of_the_server(
    parcels: str, twophase: Cluster
) -> None:
    prepare(parcels, HOUR_AGO)
    twophase.restart()
    with pytest.raises(Waits):
        window_of(parcels)


@pytest.mark.parametrize("statement", BYSTANDERS.values(), ids=BYSTANDERS)
def test_what_brings_in_no_rows_is_not_waited_for(parcels: str, statement: str) -> None:
    prepare(parcels, statement)
    assert before_now(parcels, window_of(parcels)) < timedelta(minutes=1)


def test_a_prepared_transaction_of_another_database_is_not_waited_for(
    parcels: str, twophase: Cluster
) -> None:
    # A copy has the same tables under the same object ids.
    twin = f"parcels_{next(numbers)}"
    execute(
        twophase.dsn, f"CREATE DATABASE {twin} TEMPLATE {one(parcels, 'SELECT current_database()')}"
    )
    dsn = make_conninfo(twophase.dsn, dbname=twin)
    gid = prepare(dsn, HOUR_AGO)
    assert before_now(parcels, window_of(parcels)) < timedelta(minutes=1)
    execute(dsn, f"ROLLBACK PREPARED {gid}")


def test_a_forgotten_prepared_transaction_is_named_by_the_check_of_a_kind(parcels: str) -> None:
    (kind,) = kinds_file.parse(FILE, "kinds.toml", "application")
    prepare(parcels, HOUR_AGO, gid="young")
    young = findings_of(parcels, kind)
    with mock.patch.object(survey, "PREPARED_SECONDS", 0):
        old = findings_of(parcels, kind)
    (found,) = [each for each in old if each not in young]
    assert (found.problem, found.refuses) == (Problem.TRANSACTION_PREPARED, False)
    assert (found.params["transaction"], found.params["table"]) == ("young", "public.parcel")


def test_where_activity_cannot_be_seen_a_window_keeps_its_distance_and_says_so(source: str) -> None:
    with reader(source) as url, in_transaction(source, HOUR_AGO):
        found = window_of(url)
        near = window_of(url, hidden_margin=3600)
    assert (found.margin_seconds, found.held_back) == (86_400, "hidden")
    assert DAY <= before_now(source, found) < DAY + timedelta(minutes=1)
    assert (near.margin_seconds, near.held_back) == (3600, "hidden")


def test_a_window_that_takes_hidden_activity_for_none_passes_the_rows_of_a_transaction(
    source: str,
) -> None:
    with reader(source) as url:
        with psycopg.connect(source) as slow:
            slow.execute(HOUR_AGO.encode())
            with without(
                window, "window", "backend_type IS NULL AND usesysid IS NOT NULL", "false"
            ):
                too_wide = window_of(url)
            passed = paged(source, too_wide, 10)
            assert window_of(url).margin_seconds is not None
        (lost,) = set(paged(source, too_wide, 10)) - set(passed)
    assert lost.startswith(b"99\t")


def test_what_is_seen_bounds_a_window_by_itself(source: str) -> None:
    with reader(source, "pg_read_all_stats") as url, in_transaction(source, HOUR_AGO) as began:
        rows(source, "SELECT pg_sleep(0.05)")
        with mock.patch.object(window, "MARGIN_SECONDS", 0):
            found = window_of(url)
    assert datetime.fromisoformat(found.cutoff) == began
    assert (found.margin_seconds, found.held_back) == (None, "running")


def test_where_nobody_else_is_connected_nothing_is_hidden(source: str) -> None:
    with reader(source) as url:
        found = window_of(url)
    assert (found.margin_seconds, found.held_back) == (None, "clock")


def test_a_session_that_does_not_report_its_activity_is_hidden_from_everybody(source: str) -> None:
    silent = make_conninfo(source, options="-c track_activities=off")
    with in_transaction(silent, HOUR_AGO):
        found = window_of(source)
    assert (found.margin_seconds, found.held_back) == (86_400, "hidden")


def test_a_window_older_than_the_distance_is_not_held_back(source: str) -> None:
    with reader(source) as url, in_transaction(source, HOUR_AGO):
        found = window_of(url, "2024-01-01 00:00:00+00")
    assert (found.cutoff, found.held_back) == ("2024-01-01 00:00:00+00", None)
    # Said nevertheless: what ran for longer than that was not seen.
    assert found.margin_seconds == 86_400


@pytest.mark.parametrize("ahead", [0, 1, 60, 86_400])
def test_a_window_ends_before_the_clock_of_the_source_whatever_the_control_clock_says(
    source: str, ahead: int
) -> None:
    skewed = one(source, "SELECT (clock_timestamp() + make_interval(secs => %s))::text", ahead)
    found = window_of(source, skewed)
    assert MARGIN <= before_now(source, found) < MARGIN + timedelta(minutes=1)
    assert found.held_back == "clock"


def test_a_window_by_the_control_clock_alone_passes_rows_that_come_in_a_moment(source: str) -> None:
    skewed = one(source, "SELECT (clock_timestamp() + interval '90 s')::text")
    with without(window, "window", "least(asked, newest, oldest)", "least(asked, oldest)"):
        too_wide = window_of(source, skewed)
    right = window_of(source, skewed)
    passed = paged(source, too_wide, 10)
    execute(source, "INSERT INTO parcel VALUES (99, now() + interval '30 s')")
    assert len(paged(source, too_wide, 10)) == len(passed) + 1
    assert paged(source, right, 10) == passed


def test_a_job_that_was_held_back_says_so_in_its_events_and_its_manifest(
    database: str, volume_root: Path
) -> None:
    execute(database, TABLES)
    with reader(database) as url, in_transaction(database, HOUR_AGO):
        here = stage(database, volume_root, FILE).changed(
            sources={"control": database, "application": url}, hidden_margin_seconds=7200
        )
        plan(here, "parcels", days=0)
        here.until_idle()
    job = only_job(here)
    assert (job.state, job.roots) == (State.SUCCEEDED, 4)
    (event,) = [each for each in events(here, job) if each["type"] == "window-held-back"]
    assert event["reason_code"] == "WINDOW_HELD_BACK"
    assert event["reason_params"]["cause"] == "hidden"
    assert event["reason_params"]["margin"] == 7200
    manifest = (here.root / job.directory / "manifest.json").read_bytes()
    assert parse_manifest(manifest).window.margin_seconds == 7200
