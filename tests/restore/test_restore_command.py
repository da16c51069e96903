"""``archive restore`` from a shell: a directory, a job, a whole kind, and a kill in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from handlers.cli import run
from tests.operations.stage import (
    Stage,
    blocked,
    copied,
    directory,
    execute,
    jobs,
    locked,
    only_job,
    wait_for,
)
from tests.restore.shelf import ORDERS, TABLES, again, archived, assert_equal
from tests.worlds import one

MORE = (
    "INSERT INTO shop.orders (customer, placed_at)"
    " SELECT 'late ' || n, timestamptz '2021-01-01Z' + n * interval '1 hour'"
    " FROM generate_series(1, 15) AS n"
)
CHILD = [sys.executable, "-m", "handlers.cli"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def two_jobs(database: str, volume_root: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A kind archived twice, and the settings of the node that did."""
    here = archived(database, volume_root)
    execute(database, MORE)
    again(here)
    assert [job.roots for job in jobs(here)] == [45, 15]
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", database)
    monkeypatch.setenv("TALLYSTICK_ARCHIVE_ROOT", str(volume_root))
    monkeypatch.setenv("TALLYSTICK_ARCHIVE_STORAGE_ID", here.storage_id)
    return here


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, object], str]]:
    def command(*arguments: str) -> tuple[int, dict[str, object], str]:
        capsys.readouterr()
        code = run(["archive", "restore", *arguments, "--json"])
        captured = capsys.readouterr()
        told = captured.out or captured.err.splitlines()[-1]
        return code, json.loads(told), captured.err

    return command


Shell = Callable[..., tuple[int, dict[str, object], str]]


def test_a_kind_comes_back_from_all_its_jobs(
    two_jobs: Stage, shell: Shell, empty_database: str
) -> None:
    code, told, error = shell("orders", "--to", empty_database, "--create-tables")
    assert (code, error) == (0, "")
    assert [each["verdict"] for each in told["archives"]] == ["SOUND", "SOUND"]  # type: ignore[attr-defined]
    assert told["batches"] == {"restored": 7, "skipped": 0}
    assert_equal(two_jobs.source, empty_database, *TABLES)


def test_a_volume_alone_is_enough_for_a_kind(
    two_jobs: Stage, shell: Shell, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", "postgresql://nowhere.invalid/x")
    code, told, _ = shell(str(two_jobs.root), "--to", empty_database, "--create-tables")
    # The older archive is anchored by the link in the newer one.
    assert code == 0
    assert [each["verdict"] for each in told["archives"]] == ["SOUND", "CONSISTENT"]  # type: ignore[attr-defined]
    assert_equal(two_jobs.source, empty_database, *TABLES)
    code, told, _ = shell(str(two_jobs.root), "--to", empty_database, "--expected-sha256", "0" * 64)
    assert (code, told["error"]["params"]["cause"]) == (1, "TAIL_NOT_FOUND")  # type: ignore[index]


def test_a_job_is_named_by_the_beginning_of_its_id(
    two_jobs: Stage, shell: Shell, empty_database: str
) -> None:
    job = jobs(two_jobs)[1]
    code, told, _ = shell(str(job.id)[:8], "--to", empty_database, "--create-tables")
    assert (code, told["batches"]) == (0, {"restored": 2, "skipped": 0})
    assert one(empty_database, "SELECT count(*) FROM shop.orders") == 15


def test_a_link_to_an_archive_that_is_gone_shows(
    two_jobs: Stage, shell: Shell, empty_database: str
) -> None:
    gone = directory(two_jobs, jobs(two_jobs)[0])
    gone.rename(two_jobs.root.parent / gone.name)
    code, told, _ = shell(str(two_jobs.root), "--to", empty_database, "--create-tables")
    assert (code, told["error"]["params"]["cause"]) == (1, "previous-missing")  # type: ignore[index]


def test_what_is_no_archive_is_said_to_be_none(
    two_jobs: Stage, shell: Shell, empty_database: str, tmp_path: Path
) -> None:
    for target, expected in {
        "nothing": "ARCHIVE_UNKNOWN",
        "/nowhere/at/all": "DIRECTORY_UNREADABLE",
        str(tmp_path): "ARCHIVE_UNKNOWN",
    }.items():
        code, told, _ = shell(target, "--to", empty_database)
        assert (code, told["error"]["code"]) == (2, expected)  # type: ignore[index]


def test_a_key_that_is_nowhere_is_told_by_the_exit_code(
    two_jobs: Stage, shell: Shell, empty_database: str
) -> None:
    code, told, _ = shell(
        *("orders", "--to", empty_database, "--create-tables", "--key", "7", "--key", "777")
    )
    assert (code, told["keys_missing"]) == (1, ["777"])
    assert one(empty_database, "SELECT id FROM shop.orders") == 7


def test_every_difference_is_told_in_words(
    two_jobs: Stage, empty_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["archive", "restore", "orders", "--to", empty_database]) == 2
    error = capsys.readouterr().err
    for table in TABLES:
        assert f"{table}: there is no such table" in error
    assert "--create-tables" in error


def test_a_directory_needs_no_settings_and_a_wrong_url_tells_no_password(
    database: str,
    volume_root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = archived(database, volume_root)
    monkeypatch.setenv("TALLYSTICK_LEASE_SECONDS", "nonsense")
    url = "postgresql://me:topsecret@nowhere.invalid/x"
    assert run(["archive", "restore", str(directory(here, only_job(here))), "--to", url]) == 1
    error = capsys.readouterr().err
    assert "RESTORE_FAILED" in error
    assert "topsecret" not in error


@pytest.mark.parametrize("after", [0, 2])
def test_killed_in_the_middle_of_a_batch_it_goes_on_where_it_stopped(
    database: str, volume_root: Path, empty_database: str, after: int
) -> None:
    here = archived(database, volume_root, kinds=ORDERS)
    path = str(directory(here, only_job(here)))
    command = [*CHILD, "archive", "restore", path, "--to", empty_database, "--json"]
    run(["archive", "restore", path, "--to", empty_database, "--create-tables", "--key", "none"])
    # Each batch waits at its parts for whoever holds this lock: killed there, it has rows on their way.
    execute(
        empty_database,
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
        f" IF new.order_id > {after * 10} THEN PERFORM pg_advisory_xact_lock_shared(4711); END IF;"
        " RETURN new; END$$",
        "CREATE TRIGGER wait BEFORE INSERT ON shop.part FOR EACH ROW EXECUTE FUNCTION wait()",
        "CREATE TABLE gate ()",
    )
    with locked(empty_database, "gate") as holder:
        holder.execute("SELECT pg_advisory_lock(4711)")
        child = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        wait_for(lambda: blocked(empty_database), 60)
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        holder.execute("SELECT pg_advisory_unlock(4711)")
    records = "SELECT count(*) FROM tallystick_restore.batch"
    wait_for(lambda: not blocked(empty_database))
    assert one(empty_database, records) == after
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["batches"] == {"restored": 5 - after, "skipped": after}
    assert_equal(database, empty_database, *TABLES)
    assert copied(empty_database, "SELECT * FROM shop.part")
