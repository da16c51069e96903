"""What the rules of publishing and of the volume are for: each taken away, and what comes of it then."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from shared.archive.describe import manifest_of
from shared.archive.shape import Opening
from shared.chain.manifest import Manifest
from shared.chain.verdict import Broken
from shared.errors import Code, Trouble, Verdict
from shared.jobs.model import Ending, Job
from shared.jobs.rules import Action
from shared.operations import archive
from shared.volume import files, identity, lock, publish
from shared.volume.publish import Temp
from tests.operations.notes import (
    FILL,
    KINDS,
    NOTE,
    begun,
    dies_before_the_settle,
    finishes,
)
from tests.operations.stage import (
    Stage,
    act,
    adopt,
    batch_files,
    directory,
    due_now,
    execute,
    fails_with,
    leftovers,
    only_job,
    plan,
    refuses_the_volume,
    report,
    stage,
    text_of,
)
from tests.worlds import rows


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    return begun(database, volume_root)


def test_a_marker_alone_lets_a_copy_of_the_volume_be_written(here: Stage) -> None:
    """Its inode numbers are all that tells a copy; here they are taken for whatever is found."""
    original = here.root.rename(here.root.parent / "original")
    shutil.copytree(original, here.root)
    here.root.chmod(0o700)
    found = [str(path.stat().st_ino) for path in (here.root, here.root / ".storage-id")]
    inodes = "UPDATE tallystick.volume SET root_inode = %s, marker_inode = %s"
    before = rows(here.control, "SELECT root_inode, marker_inode FROM tallystick.volume")[0]
    rows(here.control, inodes, *found)
    assert here.tick().outcome.ending is Ending.PROGRESSED
    # The copy is taken away, and what was recorded as durable with it.
    shutil.rmtree(here.root)
    original.rename(here.root)
    rows(here.control, inodes, *before.values())
    assert len(batch_files(here, only_job(here))) == only_job(here).batches - 1
    refuses_the_volume(here, "last-missing")
    adopt(here)
    fails_with(here, Code.FILE_CHECK_FAILED, "missing")


@contextmanager
def spoiled_temps() -> Iterator[None]:
    """Let a bit of each batch change on its way to the disk, which no call reports."""
    write_temp = publish.write_temp

    def spoiled(volume: identity.Volume, chunks: Any) -> Temp:  # noqa: ANN401
        temp = write_temp(volume, chunks)
        path = Path(f"/proc/self/fd/{volume.fd}/.tmp/{temp.name}")
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        return temp

    with mock.patch.object(publish, "write_temp", spoiled):
        yield


def test_bytes_that_are_not_read_back_get_their_name_whatever_became_of_them(here: Stage) -> None:
    with spoiled_temps():
        fails_with(here, Code.FILE_CHECK_FAILED)
    assert len(batch_files(here, only_job(here))) == 1
    # Named without a look at it, the file stands there for good: a name is given once.
    with (
        spoiled_temps(),
        identity.opened(here.root, here.storage_id) as volume,
        publish.job_directory(volume, only_job(here).directory, create=False) as job,
    ):
        temp = publish.write_temp(volume, [batch_files(here, only_job(here))[0].read_bytes()])
        assert publish.publish(volume, temp, job, "000002.sql.zst")
    with pytest.raises(Broken):
        text_of(batch_files(here, only_job(here))[1])


def test_a_budget_that_is_asked_before_looking_refuses_what_is_durable_already(here: Stage) -> None:
    """Its bytes are spent: nothing but room for the same file once more would ever get the job further."""
    dies_before_the_settle(here)
    execute(here.control, "UPDATE tallystick.job SET max_bytes = bytes")
    with mock.patch.object(archive, "_is_there", return_value=False):
        fails_with(here, Code.STORAGE_LIMIT, "job-budget")
    assert len(batch_files(here, only_job(here))) == only_job(here).batches + 1


def test_a_manifest_that_differs_by_its_writer_is_damage_to_the_next_one(
    database: str, volume_root: Path
) -> None:
    """Of two writers only one gives the file its name; the other must have written the same."""
    here = stage(database, volume_root, KINDS, NOTE, FILL)
    plan(here, "notes", batch_size=2)
    moments = iter(("12:00", "12:02"))

    def with_a_time(job: Job, opening: Opening) -> Manifest:
        made = manifest_of(job, opening)
        return replace(made, definition=made.definition | {"written_at": next(moments)})

    with mock.patch.object(archive, "manifest_of", with_a_time):
        here.tick()
        assert only_job(here).batches == 1
        fails_with(here, Code.FILE_CHECK_FAILED)


def test_orphans_that_nobody_removes_stay_on_the_volume_and_in_no_account(here: Stage) -> None:
    (here.root / ".tmp" / ("f" * 32)).write_bytes(b"half a batch")
    with mock.patch.object(lock, "prepare"):
        here.until_idle()
    assert leftovers(here) == ["f" * 32]
    used = rows(here.control, "SELECT used_bytes FROM tallystick.volume")[0]["used_bytes"]
    counted = list(directory(here, only_job(here)).iterdir())
    assert used == sum(path.stat().st_size for path in counted)
    here.tick()
    assert leftovers(here) == []


def test_rename_in_place_of_link_replaces_what_is_recorded(here: Stage) -> None:
    """What a process does that stood still while its successor did the same batch."""
    job = only_job(here)
    recorded = report(here, job, job.last_sha256)
    with (
        identity.opened(here.root, here.storage_id) as volume,
        publish.job_directory(volume, job.directory, create=False) as open_directory,
    ):
        late = publish.write_temp(volume, [b"of another page"])
        assert not publish.publish(volume, late, open_directory, "000001.sql.zst")
        assert report(here, job, job.last_sha256) == recorded
        (here.root / ".tmp" / late.name).rename(batch_files(here, job)[0])
    assert report(here, job, job.last_sha256) != recorded
    refuses_the_volume(here, "last-size")
    adopt(here)
    fails_with(here, Code.FILE_CHECK_FAILED, "digest")


def test_the_word_of_link_alone_takes_ones_own_file_for_anothers(here: Stage) -> None:
    """A server that replays a call whose answer was lost says EEXIST of what it did itself."""
    job = only_job(here)
    with (
        identity.opened(here.root, here.storage_id) as volume,
        publish.job_directory(volume, job.directory, create=False) as open_directory,
    ):
        temp = publish.write_temp(volume, [b"content"])
        path = here.root / ".tmp" / temp.name
        os.link(path, "000002.sql.zst", dst_dir_fd=open_directory)
        with pytest.raises(FileExistsError):
            os.link(path, "000002.sql.zst", dst_dir_fd=open_directory)
        assert publish.publish(volume, temp, open_directory, "000002.sql.zst")


def test_an_error_of_reading_taken_for_damage_fails_the_job_for_good(here: Stage) -> None:
    """A server of files that was away for a moment: the bytes it did not give are no proof of anything."""

    def away(fd: int) -> Iterator[bytes]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with (
        mock.patch.object(publish, "chunks_of", away),
        mock.patch.object(files, "Passing", Verdict),
    ):
        fails_with(here, Code.STORAGE_FAILED, "EIO")
    act(here, only_job(here), Action.RETRY)
    with mock.patch.object(publish, "chunks_of", away):
        outcome = here.tick().outcome
    assert (outcome.ending, outcome.code) == (Ending.WAITING, Code.STORAGE_FAILED)
    due_now(here)
    finishes(here)


BYTES = 8 * 1024 * 1024


@contextmanager
def overcommitted(place: Path) -> Iterator[Path]:
    """Mount a file system whose disk has less room than it says, as thin storage may."""
    disk, mount = place / "disk", place / "mount"
    disk.mkdir()
    mount.mkdir()
    small = ("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk))
    subprocess.run(small, check=True)
    try:
        image = disk / "image"
        with image.open("wb") as file:
            file.truncate(8 * BYTES)
        bare = ("-O", "^has_journal", "-N", "64", "-E", "lazy_itable_init=1,nodiscard")
        subprocess.run(["mkfs.ext4", "-q", "-F", *bare, str(image)], check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(mount)], check=True)
        mount.chmod(0o700)
        try:
            yield mount
        finally:
            subprocess.run(["umount", str(mount)], check=True)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def forgotten(mount: Path) -> None:
    """Let the file system read everything from its disk again."""
    subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
    for path in mount.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.system
def test_a_second_fsync_says_of_lost_bytes_that_they_are_durable(tmp_path: Path) -> None:
    content = os.urandom(BYTES)
    with overcommitted(tmp_path) as mount:
        with (mount / "file").open("wb", buffering=0) as file:
            file.write(content)
            with pytest.raises(OSError, match=r"No space|Input/output"):
                os.fsync(file.fileno())
            # The kernel has given up on what it could not write, and told so once.
            os.fsync(file.fileno())
        forgotten(mount)
        try:
            assert (mount / "file").read_bytes() != content
        except OSError as error:
            assert error.errno == errno.EIO  # noqa: PT017


@pytest.mark.system
def test_a_file_whose_fsync_failed_is_thrown_away_and_not_synced_again(tmp_path: Path) -> None:
    with (
        overcommitted(tmp_path) as mount,
        identity.opened(*made_a_volume(mount / "volume")) as volume,
    ):
        with pytest.raises(Trouble):
            publish.write_temp(volume, [os.urandom(BYTES)])
        assert list((mount / "volume" / ".tmp").iterdir()) == []


def made_a_volume(root: Path) -> tuple[Path, str]:
    return root, identity.initialise(root)
