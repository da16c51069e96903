"""The volume is wrong, full, gone or shared with the dead: what is durable is kept, the rest is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from shared.errors import Code
from shared.jobs.model import Ending, State
from shared.jobs.rules import Action
from shared.plans import policies
from shared.volume import identity, ledger
from tests.operations.notes import FILL, KINDS, NOTE, begun, dies_before_the_settle, finishes
from tests.operations.stage import (
    Stage,
    act,
    batch_files,
    blocked,
    child,
    directory,
    end_of,
    ended,
    event_types,
    events,
    execute,
    expire,
    gate,
    jobs,
    leftovers,
    only_job,
    plan,
    stage,
    units,
    wait_for,
)
from tests.worlds import SIGNED, control, rows


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    return begun(database, volume_root)


def overdue(here: Stage, minutes: int) -> None:
    past = f"clock_timestamp() - interval '{minutes} min'"
    execute(here.control, f"UPDATE tallystick.job SET due_at = {past} WHERE state = 'PENDING'")


def loosen(root: Path) -> Callable[[], object]:
    root.chmod(0o755)
    return lambda: root.chmod(0o700)


def take_away(root: Path) -> Callable[[], object]:
    away = root.rename(root.parent / "away")
    return lambda: away.rename(root)


def link(root: Path) -> Callable[[], object]:
    away = root.rename(root.parent / "away")
    root.symlink_to(away)

    def mend() -> None:
        root.unlink()
        away.rename(root)

    return mend


def remark(root: Path) -> Callable[[], object]:
    marker = root / ".storage-id"
    before = marker.read_text()
    marker.write_text("0" * 32 + "\n")
    return lambda: marker.write_text(before)


def unmark(root: Path) -> Callable[[], object]:
    away = (root / ".storage-id").rename(root.parent / "marker")
    return lambda: away.rename(root / ".storage-id")


def garble(root: Path) -> Callable[[], object]:
    marker = root / ".storage-id"
    before = marker.read_text()
    marker.write_text("volume one\n")
    return lambda: marker.write_text(before)


def stand_in(root: Path) -> Callable[[], object]:
    away = root.rename(root.parent / "away")
    root.write_text("a file")

    def mend() -> None:
        root.unlink()
        away.rename(root)

    return mend


WRONG = {
    "mode": loosen,
    "not-there": take_away,
    "symbolic-link": link,
    "other-volume": remark,
    "no-marker": unmark,
    "marker-malformed": garble,
    "not-a-directory": stand_in,
}


@pytest.mark.parametrize("cause", WRONG)
def test_a_wrong_volume_is_never_written_and_its_jobs_wait_then_pause_then_resume(
    here: Stage, cause: str
) -> None:
    mend = WRONG[cause](here.root)
    before = only_job(here)
    outcome = here.tick().outcome
    found = (outcome.ending, outcome.code, outcome.params["cause"])
    causes = {cause, "not-a-directory"} if cause == "symbolic-link" else {cause}
    assert found[:2] == (Ending.WAITING, Code.STORAGE_UNAVAILABLE)
    assert found[2] in causes
    assert only_job(here) == before
    overdue(here, 14)
    here.tick()
    assert only_job(here).state is State.PENDING
    overdue(here, 16)
    here.tick()
    paused = only_job(here)
    assert (paused.state, paused.error_code) == (State.PAUSED, Code.STORAGE_UNAVAILABLE)
    assert paused.error_params is not None
    assert paused.error_params["cause"] in causes
    assert here.tick().outcome.ending is Ending.WAITING
    mend()
    done = finishes(here)
    assert done.failures == 0
    told = event_types(here, done)
    assert told.count("job-paused") == told.count("job-resumed") == 1


def test_a_job_that_an_operator_paused_is_not_resumed_by_a_good_volume(here: Stage) -> None:
    paused = act(here, only_job(here), Action.PAUSE)
    # Beside it, one that waits for the volume, so that there is something to resume.
    execute(
        here.control,
        "INSERT INTO tallystick.job (operation, namespace_id, storage_id, batch_size, page_size,"
        " max_bytes, input, state, error_code, due_at) SELECT 'archive', namespace_id, storage_id,"
        " 1, 1, 1, input, 'PAUSED', 'STORAGE_UNAVAILABLE', now() + interval '1 h'"
        " FROM tallystick.job",
    )
    here.tick()
    states = {job.id: job.state for job in jobs(here)}
    assert states.pop(paused.id) is State.PAUSED
    assert State.PAUSED not in states.values()


def test_a_copied_volume_is_refused_until_an_operator_adopts_it(here: Stage) -> None:
    original = here.root.rename(here.root.parent / "original")
    shutil.copytree(original, here.root)
    here.root.chmod(0o700)
    outcome = here.tick().outcome
    assert (outcome.code, outcome.params["cause"]) == (Code.STORAGE_UNAVAILABLE, "copied")
    assert only_job(here).batches == 1
    with (
        closing(control(here.control)) as db,
        identity.opened(here.root, here.storage_id) as volume,
    ):
        ledger.adopt(db, volume, SIGNED)
    (entry,) = rows(here.control, "SELECT * FROM tallystick.audit_entry WHERE action = 'adopt'")
    assert (entry["subject"], entry["reason"]) == ("volume", SIGNED.reason)
    assert entry["before"]["root_inode"] != entry["after"]["root_inode"]
    finishes(here)


def test_a_node_with_another_volume_leaves_the_job_alone(here: Stage, tmp_path: Path) -> None:
    other = tmp_path / "other"
    storage_id = identity.initialise(other)
    outcome = here.changed(root=other, storage_id=storage_id).tick().outcome
    assert outcome.ending is Ending.IDLE
    assert only_job(here).batches == 1
    finishes(here)


def test_a_node_without_a_volume_does_nothing_and_says_why(here: Stage) -> None:
    outcome = here.changed(root=None, storage_id=None).tick().outcome
    assert (outcome.ending, outcome.code) == (Ending.IDLE, Code.VOLUME_NOT_CONFIGURED)
    finishes(here)


LIMIT = (
    "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000));"
    " os.execv(sys.argv[1], sys.argv[1:])"
)
LIMITED = (sys.executable, "-c", LIMIT)
BULKY = (
    "INSERT INTO note SELECT i, '2021-01-01', (SELECT string_agg(md5(i::text || j), '')"
    " FROM generate_series(1, 4000) AS j) FROM generate_series(7, 8) AS i"
)


def test_a_file_that_the_system_lets_not_grow_is_a_full_volume(here: Stage) -> None:
    execute(here.source, BULKY)
    outcomes = ended(child(here, once=False, before=LIMITED))
    assert outcomes[-2][:2] == [Ending.FAILED, Code.STORAGE_LIMIT]
    assert outcomes[-2][2]["cause"] == "EFBIG"
    job = only_job(here)
    assert (job.batches, len(batch_files(here, job)), leftovers(here)) == (3, 3, [])
    act(here, job, Action.RETRY)
    finishes(here)


@pytest.mark.system
def test_a_full_disk_publishes_nothing_and_goes_on_when_there_is_room(
    database: str, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk") as root:
        here = stage(database, root, KINDS, NOTE, FILL, BULKY)
        plan(here, "notes", batch_size=2)
        outcome = here.until(lambda outcome: outcome.ending is Ending.FAILED, 10)[-1].outcome
        assert (outcome.code, outcome.params["cause"]) == (Code.STORAGE_LIMIT, "ENOSPC")
        job = only_job(here)
        assert (len(batch_files(here, job)), leftovers(here)) == (job.batches, [])
        subprocess.run(["mount", "-o", "remount,size=8m", root], check=True)
        act(here, job, Action.RETRY)
        finishes(here)


@contextmanager
def small_disk(root: Path) -> Iterator[Path]:
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", root], check=True)
    try:
        yield root
    finally:
        subprocess.run(["umount", root], check=True)


@pytest.mark.parametrize("reserved", ["known to be there", "met by link"])
def test_the_file_of_a_dead_holder_is_adopted_and_the_cursor_comes_from_its_bytes(
    database: str, volume_root: Path, reserved: str
) -> None:
    """The dead one had a page of another size: going on from one's own page would lose a row or double it."""
    more = FILL.replace("(1, 6)", "(7, 20)")
    here = stage(database, volume_root, KINDS, NOTE, FILL, more)
    plan(here, "notes", batch_size=8)
    here.tick()
    execute(here.control, "UPDATE tallystick.job SET page_size = 1")
    dies_before_the_settle(here)
    file = batch_files(here, only_job(here))[-1]
    content, inode = file.read_bytes(), file.stat().st_ino
    assert end_of(file)["roots"] == 1
    forgotten = ", reserved = 0" if reserved == "met by link" else ""
    # The takeover halves the page, which is larger than the dead one's all the same.
    execute(here.control, f"UPDATE tallystick.job SET page_size = 8{forgotten}")
    report = here.tick()
    assert (report.outcome.ending, report.reclaimed) == (Ending.PROGRESSED, True), report
    job = only_job(here)
    (_, unit) = units(here, job)
    assert (unit["evidence"]["adopted"], unit["roots"], job.roots) == (True, 1, 9)
    assert job.checkpoint is not None
    assert job.checkpoint["cursor"] == end_of(file)["last"]
    assert (file.read_bytes(), file.stat().st_ino) == (content, inode)
    assert "batch-adopted" in event_types(here, job)
    finishes(here)


def test_a_durable_batch_is_confirmed_although_the_policy_changed_since(here: Stage) -> None:
    dies_before_the_settle(here)
    with closing(control(here.control)) as db:
        policies.put(db, "default", policies.PolicyChange("notes", 400), SIGNED)
    assert here.tick().outcome.ending is Ending.PROGRESSED
    assert only_job(here).batches == 2
    outcome = here.tick().outcome
    assert (outcome.ending, outcome.code) == (Ending.FAILED, Code.POLICY_CHANGED)
    assert len(batch_files(here, only_job(here))) == 2


def test_adopting_is_never_refused_for_a_budget(here: Stage) -> None:
    dies_before_the_settle(here)
    execute(here.control, "UPDATE tallystick.job SET max_bytes = bytes")
    outcome = here.changed(volume_max_bytes=1).tick().outcome
    assert outcome.ending is Ending.PROGRESSED
    assert only_job(here).batches == 2


def test_adopting_needs_no_source(here: Stage) -> None:
    dies_before_the_settle(here)
    away = {"control": here.control, "application": "postgresql://127.0.0.1:1/x"}
    assert here.changed(sources=away).tick().outcome.ending is Ending.PROGRESSED
    finishes(here)


@pytest.mark.parametrize("left", ["everything", "the manifest", "the directory", "nothing"])
def test_a_job_that_died_before_its_first_batch_was_confirmed_starts_again_by_itself(
    database: str, volume_root: Path, left: str
) -> None:
    here = stage(database, volume_root, KINDS, NOTE, FILL)
    plan(here, "notes", batch_size=2)
    dies_before_the_settle(here)
    job = only_job(here)
    assert (job.batches, len(batch_files(here, job))) == (0, 1)
    found = sorted(directory(here, job).iterdir())
    assert [path.name for path in found] == ["000001.sql.zst", "manifest.json"]
    for path in {"everything": [], "the manifest": found[:1]}.get(left, found):
        path.unlink()
    if left == "nothing":
        directory(here, job).rmdir()
    done = finishes(here)
    assert units(here, done)[0]["evidence"]["adopted"] is (left == "everything")


def test_orphans_in_the_working_directory_are_removed(here: Stage) -> None:
    (here.root / ".tmp" / ("f" * 32)).write_bytes(b"half a batch")
    here.tick()
    assert leftovers(here) == []


def without_database(here: Stage, server: str) -> Any:  # noqa: ANN401 - what the child said
    """Let a child lose its database in the middle of the settle, and return what its tick came to."""
    name = rows(here.control, "SELECT current_database() AS name")[0]["name"]
    with gate(here) as session:
        process = child(here)
        wait_for(lambda: process.poll() is not None or blocked(here.control))
        assert process.poll() is None, process.communicate()
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
            ends = (
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )
            admin.execute(f"{ends} AND pid <> {session.info.backend_pid}".encode())
            try:
                (outcome,) = ended(process)
            finally:
                admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())
    return outcome


def test_evidence_lies_beside_the_data_while_the_database_is_away_and_comes_in_once(
    here: Stage, server_dsn: str
) -> None:
    ending, code, _ = without_database(here, server_dsn)
    assert (ending, code) in {
        (Ending.UNCERTAIN, Code.OUTCOME_UNKNOWN),
        (Ending.UNCERTAIN, Code.DATABASE_UNAVAILABLE),
    }
    (file,) = (here.root / ".evidence").iterdir()
    content = file.read_bytes()
    assert len(batch_files(here, only_job(here))) == 2
    assert event_types(here) == []
    expire(here)
    assert here.tick().outcome.ending is Ending.PROGRESSED
    assert not file.exists()
    (event,) = [event for event in events(here) if event["type"] == "outcome-unknown"]
    assert (event["job_id"], event["source"], event["done"]) == (only_job(here).id, "volume", False)
    # As if the removal had been interrupted after the events were in.
    file.write_bytes(content)
    here.tick()
    assert not file.exists()
    assert event_types(here).count("outcome-unknown") == 1
    finishes(here)


LINE = (
    '{"done": false, "id": "%s", "occurred_at": "2026-01-01T00:00:00+00:00", "severity": "%s",'
    ' "source": "volume", "type": "outcome-unknown"}\n'
)
NAME = "00000000-0000-4000-8000-000000000000.jsonl"
BAD_EVIDENCE: dict[str, Callable[[Path], object]] = {
    "another name": lambda there: (there / "notes.txt").write_text("hello"),
    "no events": lambda there: (there / NAME).write_text("[]\n"),
    "not text": lambda there: (there / NAME).write_bytes(b"\xff\xfe\n"),
    "cut": lambda there: (there / NAME).write_text((LINE % (NAME[:36], "info"))[:-20]),
    "a severity that is none": lambda there: (there / NAME).write_text(LINE % (NAME[:36], "x")),
    "an id that is none": lambda there: (there / NAME).write_text(LINE % ("seven", "info")),
    "a NUL": lambda there: (there / NAME).write_text(LINE % (NAME[:36], "info\\u0000")),
    "deep": lambda there: (there / NAME).write_text("[" * 100_000 + "\n"),
    "a directory": lambda there: (there / NAME).mkdir(),
    "a link": lambda there: (there / NAME).symlink_to("/etc/passwd"),
    "a pipe": lambda there: os.mkfifo(there / NAME),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("what", BAD_EVIDENCE)
def test_evidence_that_cannot_be_read_is_reported_once_and_left_and_stops_nothing(
    here: Stage, what: str
) -> None:
    there = here.root / ".evidence"
    BAD_EVIDENCE[what](there)
    (left,) = there.iterdir()
    finishes(here)
    assert list(there.iterdir()) == [left]
    assert event_types(here).count("evidence-unreadable") == 1
