"""The lock of a volume: one holder on the whole volume, told since when, dropped by nothing else."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shared.errors import Busy, Code, Trouble
from shared.volume import identity, lock
from shared.volume.identity import Volume

HOLDER = """
import sys
from pathlib import Path
from shared.volume import identity, lock
with identity.opened(Path(sys.argv[1]), sys.argv[2]) as volume, lock.held(volume):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def volume(volume_root: Path) -> Iterator[Volume]:
    storage_id = identity.initialise(volume_root)
    with identity.opened(volume_root, storage_id) as volume:
        yield volume


@pytest.fixture
def holder(volume: Volume, volume_root: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, volume_root, volume.storage_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_another_process_keeps_us_out_and_we_know_since_when(
    volume: Volume, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(Busy) as busy, lock.held(volume, wait_seconds=0.1):
        pass
    assert busy.value.code is Code.STORAGE_BUSY
    since = datetime.fromisoformat(str(busy.value.params["since"]))
    assert timedelta(0) <= datetime.now(UTC) - since < timedelta(seconds=30)


def test_a_killed_holder_holds_nothing(volume: Volume, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with lock.held(volume, wait_seconds=0.1):
        pass


def test_the_lock_is_waited_for_a_little(volume: Volume, holder: subprocess.Popen[str]) -> None:
    threading.Timer(0.2, holder.kill).start()
    with lock.held(volume, wait_seconds=5):
        pass


def test_one_process_holds_it_once(volume: Volume) -> None:
    """POSIX would grant the lock to a second thread of the process that has it."""
    came: list[str] = []

    def second() -> None:
        try:
            with lock.held(volume, wait_seconds=0.1):
                came.append("in")
        except Busy:
            came.append("busy")

    with lock.held(volume):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert came == ["busy"]
    second()
    assert came == ["busy", "in"]


def granted_to_another(volume_root: Path, storage_id: str) -> bool:
    """Let another process try for the lock."""
    probe = HOLDER.replace("lock.held(volume)", "lock.held(volume, 0.1)")
    tried = subprocess.run(
        [sys.executable, "-c", probe, volume_root, storage_id],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert tried.returncode == 0 or "STORAGE_BUSY" in tried.stderr
    return tried.returncode == 0


def test_nothing_else_that_is_done_with_the_volume_drops_the_lock(
    volume: Volume, volume_root: Path
) -> None:
    """Closing any descriptor of the lock file would, so nothing may open it a second time."""
    from shared.volume import walk

    with lock.held(volume):
        identity.probe(volume_root, volume.storage_id)
        lock.prepare(volume)
        walk.walk(volume, walk.Place(), [], walk.Bounds(10, 5.0))
        with identity.opened(volume_root, volume.storage_id):
            pass
        assert not granted_to_another(volume_root, volume.storage_id)


def test_preparing_empties_the_working_directory_and_makes_what_is_missing(
    volume: Volume, volume_root: Path
) -> None:
    (volume_root / ".tmp" / "orphan").write_bytes(b"half")
    (volume_root / ".evidence" / "kept.jsonl").write_bytes(b"")
    with lock.held(volume):
        lock.prepare(volume)
    assert list((volume_root / ".tmp").iterdir()) == []
    assert [path.name for path in (volume_root / ".evidence").iterdir()] == ["kept.jsonl"]
    (volume_root / ".tmp").rmdir()
    with lock.held(volume):
        lock.prepare(volume)
    assert (volume_root / ".tmp").stat().st_mode & 0o777 == 0o700


def test_a_lock_file_that_is_a_link_is_not_followed(volume: Volume, volume_root: Path) -> None:
    target = volume_root.parent / "target"
    (volume_root / ".lock").symlink_to(target)
    with pytest.raises(Trouble), lock.held(volume):
        pass
    assert not target.exists()
    (volume_root / ".lock").unlink()
    # The failure left the process able to lock.
    with lock.held(volume, wait_seconds=0.1):
        pass


def test_closing_another_descriptor_of_the_lock_file_would_free_it(
    volume: Volume, volume_root: Path
) -> None:
    with lock.held(volume):
        assert not granted_to_another(volume_root, volume.storage_id)
        with (volume_root / ".lock").open("r+b"):
            pass
        assert granted_to_another(volume_root, volume.storage_id)


def test_without_the_mutex_a_second_thread_is_granted_what_the_first_one_has(
    volume: Volume, volume_root: Path
) -> None:
    granted: list[str] = []

    def second() -> None:
        fd = os.open(volume_root / ".lock", os.O_RDWR)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        granted.append("in")

    with lock.held(volume):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert granted == ["in"]


def test_a_descriptor_that_cannot_write_is_given_no_lock(volume: Volume, volume_root: Path) -> None:
    with lock.held(volume):
        pass
    fd = os.open(volume_root / ".lock", os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="Bad file descriptor") as refused:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(fd)
    assert refused.value.errno == errno.EBADF
