"""A volume without inodes, mounted read-only, or with something unreadable: each is said for what it is."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from handlers.cli import run
from shared.errors import Code, Missing, Verdict
from shared.jobs.model import Ending, State
from shared.jobs.rules import Action
from shared.volume import files, walk
from shared.volume.reconcile import Sighting
from tests.operations.notes import FILL, KINDS, NOTE, begun, finishes
from tests.operations.stage import (
    Stage,
    act,
    batch_files,
    due_now,
    execute,
    jobs,
    leftovers,
    only_job,
    plan,
    plans_due,
    stage,
    units,
)


@pytest.mark.parametrize(
    ("error", "code", "cause"),
    [
        (errno.ENOSPC, Code.STORAGE_LIMIT, "ENOSPC"),
        (errno.EDQUOT, Code.STORAGE_LIMIT, "EDQUOT"),
    ],
)
def test_a_file_system_with_inodes_left_is_out_of_bytes(
    tmp_path: Path, error: int, code: Code, cause: str
) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(Verdict) as verdict, files.storage_errors(fd):
            raise OSError(error, os.strerror(error))
    finally:
        os.close(fd)
    assert (verdict.value.code, verdict.value.params["cause"]) == (code, cause)


def test_a_read_only_file_system_is_no_volume_to_work_with() -> None:
    with pytest.raises(Missing) as missing, files.storage_errors(file="x"):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    assert missing.value.params == {"cause": "read-only", "file": "x"}


@contextmanager
def disk(root: Path, options: str) -> Iterator[Path]:
    root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size=8m,mode=0700,{options}", "tmpfs", str(root)]
    subprocess.run(mount, check=True)
    try:
        yield root
    finally:
        subprocess.run(["umount", root], check=True)


@pytest.mark.system
def test_a_file_system_without_inodes_is_told_from_one_without_bytes(
    database: str, tmp_path: Path
) -> None:
    with disk(tmp_path / "disk", "nr_inodes=40") as root:
        (root / "others").mkdir()
        (root / "volume").mkdir(mode=0o700)
        here = stage(database, root / "volume", KINDS, NOTE, FILL)
        plan(here, "notes", batch_size=2)
        here.tick()
        while os.statvfs(root).f_favail:
            (root / "others" / str(os.statvfs(root).f_favail)).touch()
        outcome = here.tick().outcome
        assert (outcome.ending, outcome.code) == (Ending.FAILED, Code.STORAGE_LIMIT)
        assert outcome.params["cause"] == "inodes"
        free = outcome.params["free"]
        assert isinstance(free, int)
        assert free > 1024 * 1024
        assert leftovers(here) == []
        for path in (root / "others").iterdir():
            path.unlink()
        act(here, only_job(here), Action.RETRY)
        finishes(here)


@pytest.mark.system
def test_a_read_only_mount_is_said_by_ticks_volume_show_and_doctor_alike(
    database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(*words: str) -> Any:  # noqa: ANN401 - any document
        capsys.readouterr()
        run([*words, "--json"])
        return json.loads(capsys.readouterr().out)

    with disk(tmp_path / "disk", "nr_inodes=100") as root:
        here = begun(database, root)
        monkeypatch.setenv("TALLYSTICK_DATABASE_URL", here.control)
        monkeypatch.setenv("TALLYSTICK_ARCHIVE_ROOT", str(root))
        monkeypatch.setenv("TALLYSTICK_ARCHIVE_STORAGE_ID", here.storage_id)
        subprocess.run(["mount", "-o", "remount,ro", root], check=True)
        outcome = here.tick().outcome
        assert (outcome.ending, outcome.code) == (Ending.WAITING, Code.STORAGE_UNAVAILABLE)
        assert outcome.params["cause"] == "read-only"
        shown = asked("volume", "show")
        assert (shown["usable"], shown["problem"]["params"]["cause"]) == (False, "read-only")
        found = asked("doctor")["findings"]
        told = [each["params"]["cause"] for each in found if each["code"] == "STORAGE_UNAVAILABLE"]
        assert told == ["read-only"]
        subprocess.run(["mount", "-o", "remount,rw", root], check=True)
        finishes(here)


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    """A volume with two finished archives of three batches, and a plan to scan it."""
    here = stage(database, volume_root, KINDS, NOTE, FILL)
    plan(here, "notes", batch_size=2, scope="all")
    here.until_idle()
    plans_due(here)
    here.until_idle()
    plan(here, None, batch_size=1000)
    execute(here.control, "UPDATE tallystick.plan SET enabled = (operation = 'scan')")
    return here


def failing(name: str, error: int) -> Callable[[int, str], AbstractContextManager[int]]:
    """Open as ever, but answer with an error for one name."""
    opens = files.opened_file if name.endswith(".zst") else files.opened_directory

    def opened(dir_fd: int, asked: str) -> AbstractContextManager[int]:
        if asked == name:
            raise OSError(error, os.strerror(error))
        return opens(dir_fd, asked)

    return opened


def findings(here: Stage) -> list[dict[str, object]]:
    scan = next(job for job in jobs(here) if job.operation == "scan")
    assert scan.state is State.SUCCEEDED
    return [each for unit in units(here, scan) for each in unit["evidence"]["findings"]]


@pytest.mark.parametrize("what", ["directory", "file"])
def test_what_may_not_be_read_is_reported_and_the_scan_goes_on(here: Stage, what: str) -> None:
    first, second = sorted(job.directory for job in jobs(here))
    name = first if what == "directory" else "000002.sql.zst"
    broken = here.root / second / "000001.sql.zst"
    broken.write_bytes(broken.read_bytes()[:-1] + b"x")
    with mock.patch.object(walk, f"opened_{what}", failing(name, errno.EACCES)):
        here.until_idle()
    found = {(each["code"], each["directory"]): each for each in findings(here)}
    if what == "directory":
        assert (Sighting.CHAIN_BROKEN, second) in found
    unreadable = found[Sighting.ENTRY_UNREADABLE, first]
    assert unreadable["cause"] == "EACCES"
    assert unreadable.get("file") == (None if what == "directory" else name)
    assert (Sighting.FILE_MISSING, first) not in found
    assert (Sighting.CHAIN_BROKEN, first) not in found


def test_an_error_that_may_pass_is_tried_again_before_it_is_reported(here: Stage) -> None:
    first, _ = sorted(job.directory for job in jobs(here))
    with mock.patch.object(walk, "opened_directory", failing(first, errno.EIO)):
        for _ in range(2):
            outcome = here.tick().outcome
            assert (outcome.ending, outcome.code) == (Ending.WAITING, Code.STORAGE_FAILED)
            due_now(here)
        here.until_idle()
    (found,) = (each for each in findings(here) if each["code"] == Sighting.ENTRY_UNREADABLE)
    assert (found["directory"], found["file"], found["cause"]) == (first, None, "EIO")


def test_an_error_that_has_passed_is_not_reported(here: Stage) -> None:
    first, _ = sorted(job.directory for job in jobs(here))
    with mock.patch.object(walk, "opened_directory", failing(first, errno.EIO)):
        assert here.tick().outcome.ending is Ending.WAITING
    due_now(here)
    here.until_idle()
    codes = [each["code"] for each in findings(here)]
    assert Sighting.ENTRY_UNREADABLE not in codes
    assert len(batch_files(here, jobs(here)[0])) == 3
