"""Two states of one volume with the same identity: a clone or an older snapshot is refused."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from shared.errors import Code
from shared.jobs.model import Ending, State
from shared.volume import current, identity, ledger
from tests.operations.notes import FILL, KINDS, NOTE, begun, finishes
from tests.operations.stage import (
    Stage,
    adopt,
    batch_files,
    directory,
    event_types,
    execute,
    jobs,
    only_job,
    plan,
    plans_due,
    refuses_the_volume,
    stage,
)
from tests.worlds import rows

LAST = "SELECT last_directory, last_file, last_bytes, last_sha256 FROM tallystick.volume"


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    """A volume with one finished archive of one batch, and a plan that makes another whenever it is due."""
    here = stage(database, volume_root, KINDS, NOTE, FILL)
    plan(here, "notes", batch_size=10, scope="all")
    here.until_idle()
    return here


def job_directories(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if not path.name.startswith(".")]


def cloned(here: Stage) -> Path:
    """Copy what a clone of the volume would hold now; the inodes stay those of the one root there is."""
    clone = here.root.parent / "clone"
    shutil.copytree(here.root, clone)
    return clone


def swap(here: Stage, other: Path) -> None:
    """Let the root hold what the other state of the volume holds, and keep its own there."""
    ours, theirs = job_directories(here.root), job_directories(other)
    for path in ours:
        path.rename(here.root.parent / path.name)
    for path in theirs:
        path.rename(here.root / path.name)
    for path in ours:
        (here.root.parent / path.name).rename(other / path.name)


def one_more_job(here: Stage) -> None:
    plans_due(here)
    assert here.until_idle()[-1].outcome.ending is Ending.IDLE
    assert jobs(here)[-1].state is State.SUCCEEDED


def test_two_clones_used_in_turn_come_apart_in_silence_if_nobody_looks_for_the_last_file(
    here: Stage,
) -> None:
    clone = cloned(here)
    with mock.patch.object(current, "check", return_value=None):
        one_more_job(here)
        swap(here, clone)
        one_more_job(here)
    assert [job.state for job in jobs(here)] == [State.SUCCEEDED] * 3
    assert len(job_directories(here.root)) == len(job_directories(clone)) == 2


def test_of_two_clones_used_in_turn_the_one_left_behind_is_refused(here: Stage) -> None:
    clone = cloned(here)
    one_more_job(here)
    newest = batch_files(here, jobs(here)[-1])[-1]
    swap(here, clone)
    plans_due(here)
    refuses_the_volume(here, "last-missing")
    assert here.tick().outcome.params["file"] == newest.name
    swap(here, clone)
    assert here.until_idle()[-1].outcome.ending is Ending.IDLE
    assert [job.state for job in jobs(here)] == [State.SUCCEEDED] * 3
    assert len(job_directories(here.root)) == 3


def test_a_scan_too_is_kept_from_an_older_state(here: Stage) -> None:
    older = cloned(here)
    one_more_job(here)
    swap(here, older)
    plan(here, None, batch_size=1000)
    refuses_the_volume(here, "last-missing")


def test_jobs_pause_and_resume_by_themselves_when_the_right_volume_is_back(
    database: str, volume_root: Path
) -> None:
    here = begun(database, volume_root)
    older = cloned(here)
    here.tick()
    swap(here, older)
    execute(
        here.control, "UPDATE tallystick.job SET due_at = clock_timestamp() - interval '16 min'"
    )
    here.tick()
    paused = only_job(here)
    assert (paused.state, paused.error_code) == (State.PAUSED, Code.STORAGE_UNAVAILABLE)
    swap(here, older)
    done = finishes(here)
    assert done.failures == 0
    assert event_types(here, done).count("job-resumed") == 1


def test_an_older_state_is_used_once_adopted_and_the_other_one_then_is_not(here: Stage) -> None:
    clone = cloned(here)
    one_more_job(here)
    newer = jobs(here)[-1]
    swap(here, clone)
    adopted = adopt(here)
    assert adopted.lacks is not None
    assert adopted.lacks.params["directory"] == newer.directory
    assert set(rows(here.control, LAST)[0].values()) == {None}
    (entry,) = rows(here.control, "SELECT * FROM tallystick.audit_entry WHERE action = 'adopt'")
    assert entry["before"]["last_directory"] == newer.directory
    one_more_job(here)
    swap(here, clone)
    plans_due(here)
    refuses_the_volume(here, "last-missing")
    # What only the other state has is still there.
    assert directory(here, newer).is_dir()


def test_a_volume_that_has_the_file_keeps_it_when_it_is_adopted(here: Stage) -> None:
    (before,) = rows(here.control, LAST)
    assert adopt(here).lacks is None
    assert rows(here.control, LAST) == [before]


def test_a_file_that_is_settled_while_an_operator_adopts_is_looked_for_too(
    database: str, volume_root: Path
) -> None:
    here = begun(database, volume_root)
    lacks, looks = ledger._lacks, []

    def slow(volume: identity.Volume, last: current.Settled | None) -> object:
        looks.append(last)
        if len(looks) == 1:
            here.tick()
        return lacks(volume, last)

    with mock.patch.object(ledger, "_lacks", slow):
        adopted = adopt(here)
    assert [each.file for each in looks if each] == ["000001.sql.zst", "000002.sql.zst"]
    assert adopted.last == looks[-1]
    assert rows(here.control, LAST)[0]["last_file"] == "000002.sql.zst"


def test_the_volume_is_known_by_the_file_settled_last_and_a_scan_leaves_it(here: Stage) -> None:
    (file,) = batch_files(here, only_job(here))
    known = (file.parent.name, file.name, file.stat().st_size, only_job(here).last_sha256)
    assert tuple(rows(here.control, LAST)[0].values()) == known
    plan(here, None, batch_size=1000)
    one_more_job(here)
    scanned = [job for job in jobs(here) if job.operation == "scan"]
    assert [job.state for job in scanned] == [State.SUCCEEDED]
    newest = max((job for job in jobs(here) if job.kind), key=lambda job: job.created_at)
    assert rows(here.control, LAST)[0]["last_directory"] == newest.directory


def test_a_job_begins_on_no_volume_whose_last_file_has_the_size_and_other_content(
    here: Stage,
) -> None:
    (file,) = batch_files(here, only_job(here))
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    plans_due(here)
    outcome = here.tick().outcome
    assert (outcome.ending, outcome.code) == (Ending.PAUSED, Code.STORAGE_UNAVAILABLE)
    assert outcome.params["cause"] == "last-digest"
    # While it waits, the volume is looked at as closely before anything is claimed: it stays paused.
    refuses_the_volume(here, "last-digest")
    assert jobs(here)[-1].state is State.PAUSED
    file.write_bytes(content)
    assert here.until_idle()[-1].outcome.ending is Ending.IDLE
    assert [job.state for job in jobs(here)] == [State.SUCCEEDED] * 2


def test_a_name_that_a_network_file_system_hides_for_a_while_is_waited_for(here: Stage) -> None:
    plans_due(here)
    with mock.patch.object(current, "opened_file", side_effect=FileNotFoundError(2, "hidden")):
        outcome = here.tick().outcome
    assert (outcome.ending, outcome.code) == (Ending.WAITING, Code.STORAGE_FAILED)
    assert outcome.params["cause"] == "ENOENT"
    assert here.until_idle()[-1].outcome.ending is Ending.IDLE


@contextmanager
def mounted(image: Path, point: Path) -> Iterator[Path]:
    point.mkdir()
    subprocess.run(["mount", "-o", "loop", image, point], check=True)
    try:
        yield point / "volume"
    finally:
        subprocess.run(["umount", point], check=True)


@pytest.mark.system
def test_a_clone_of_the_block_device_is_refused_although_its_inodes_are_the_same(
    database: str, tmp_path: Path
) -> None:
    image, clone = tmp_path / "image", tmp_path / "clone.image"
    with image.open("wb") as file:
        file.truncate(16 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    with mounted(image, tmp_path / "first") as root:
        here = stage(database, root, KINDS, NOTE, FILL)
        plan(here, "notes", batch_size=10, scope="all")
        here.until_idle()
    shutil.copyfile(image, clone)
    with (
        mounted(image, tmp_path / "one") as one,
        mounted(clone, tmp_path / "two") as two,
    ):
        first, second = here.changed(root=one), here.changed(root=two)
        assert one.stat().st_ino == two.stat().st_ino
        one_more_job(first)
        plans_due(second)
        refuses_the_volume(second, "last-missing")
        assert first.until_idle()[-1].outcome.ending is Ending.IDLE
        assert [job.state for job in jobs(first)] == [State.SUCCEEDED] * 3
