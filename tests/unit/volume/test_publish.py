"""Publishing: a name is given once, whole files only, and the answer of ``link`` is never taken on trust."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.chain.batch import file_name
from shared.errors import Code, Passing, Verdict
from shared.volume import files, identity, listing, publish
from shared.volume.identity import Volume

JOB = "11111111-1111-4111-8111-111111111111-22222222-2222-4222-8222-222222222222"
NAME = "000001.sql.zst"


@pytest.fixture
def volume(volume_root: Path) -> Iterator[Volume]:
    with identity.opened(volume_root, identity.initialise(volume_root)) as volume:
        yield volume


@pytest.fixture
def directory(volume: Volume) -> Iterator[int]:
    with publish.job_directory(volume, JOB, create=True) as directory:
        yield directory


def temps(root: Path) -> list[str]:
    return [path.name for path in (root / ".tmp").iterdir()]


def test_a_temporary_file_is_whole_private_and_hashed(volume: Volume, volume_root: Path) -> None:
    temp = publish.write_temp(volume, [b"one", b"", b"two"])
    path = volume_root / ".tmp" / temp.name
    assert path.read_bytes() == b"onetwo"
    assert path.stat().st_mode & 0o777 == 0o600
    assert (temp.size, temp.inode) == (6, path.stat().st_ino)
    assert temp.sha256 == hashlib.sha256(b"onetwo").hexdigest()
    with publish.opened_temp(volume, temp) as fd:
        assert publish.sha256_of(fd) == temp.sha256
    publish.discard(volume, temp)
    publish.discard(volume, temp)
    assert temps(volume_root) == []


def test_chunks_that_fail_leave_no_temporary_file(volume: Volume, volume_root: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise Verdict(Code.SCHEMA_CHANGED)

    with pytest.raises(Verdict) as verdict:
        publish.write_temp(volume, chunks())
    assert verdict.value.code is Code.SCHEMA_CHANGED
    assert temps(volume_root) == []


def test_a_name_is_given_without_a_copy(volume: Volume, directory: int, volume_root: Path) -> None:
    temp = publish.write_temp(volume, [b"content"])
    assert publish.publish(volume, temp, directory, NAME)
    assert (volume_root / JOB / NAME).stat().st_ino == temp.inode
    publish.discard(volume, temp)
    assert (volume_root / JOB / NAME).stat().st_nlink == 1


def test_a_link_whose_answer_was_lost_is_known_by_its_inode(volume: Volume, directory: int) -> None:
    """The second call is what a server replays after a lost reply: it says EEXIST of our own file."""
    temp = publish.write_temp(volume, [b"content"])
    assert publish.publish(volume, temp, directory, NAME)
    assert publish.publish(volume, temp, directory, NAME)


def test_another_file_under_the_name_is_never_replaced(
    volume: Volume, directory: int, volume_root: Path
) -> None:
    first = publish.write_temp(volume, [b"first"])
    second = publish.write_temp(volume, [b"second"])
    assert publish.publish(volume, first, directory, NAME)
    assert not publish.publish(volume, second, directory, NAME)
    assert (volume_root / JOB / NAME).read_bytes() == b"first"


def test_a_link_under_the_name_is_not_followed(
    volume: Volume, directory: int, volume_root: Path
) -> None:
    temp = publish.write_temp(volume, [b"content"])
    (volume_root / JOB / NAME).symlink_to(volume_root / ".tmp" / temp.name)
    with pytest.raises(Verdict) as verdict:
        publish.publish(volume, temp, directory, NAME)
    assert verdict.value.params["cause"] == "not-a-file"
    with pytest.raises(Verdict), publish.published(directory, NAME):
        pass


def test_a_name_that_is_followed_leads_out_of_the_volume(directory: int, volume_root: Path) -> None:
    elsewhere = volume_root.parent / "elsewhere"
    elsewhere.write_bytes(b"of somebody else")
    (volume_root / JOB / NAME).symlink_to(elsewhere)
    fd = os.open(NAME, files.READ & ~os.O_NOFOLLOW, dir_fd=directory)
    with os.fdopen(fd, "rb") as file:
        assert file.read() == b"of somebody else"


def test_a_link_that_failed_is_told_by_its_own_error(volume: Volume, directory: int) -> None:
    temp = publish.write_temp(volume, [b"content"])
    publish.discard(volume, temp)
    with pytest.raises(Passing) as passing:
        publish.publish(volume, temp, directory, NAME)
    assert (passing.value.code, passing.value.params["cause"]) == (Code.STORAGE_FAILED, "ENOENT")


@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT", "EFBIG"])
def test_a_full_volume_is_a_verdict_and_other_errors_pass(error: str) -> None:
    import errno

    with pytest.raises(Verdict) as verdict, files.storage_errors(file="x"):
        raise OSError(getattr(errno, error), "said so")
    assert (verdict.value.code, verdict.value.params["cause"]) == (Code.STORAGE_LIMIT, error)
    with pytest.raises(Passing), files.storage_errors():
        raise OSError(errno.EIO, "said so")


def test_a_file_that_was_confirmed_and_is_gone_is_damage(volume: Volume, directory: int) -> None:
    with pytest.raises(Verdict) as verdict, publish.published(directory, NAME):
        pass
    assert verdict.value.code is Code.FILE_CHECK_FAILED
    with pytest.raises(Verdict):
        publish.read_published(directory, "manifest.json", 100)
    with (
        pytest.raises(Verdict),
        publish.job_directory(volume, JOB.replace("1", "3"), create=False),
    ):
        pass


def test_a_pipe_under_a_name_holds_nobody_up(directory: int, volume_root: Path) -> None:
    code = (
        "import os, sys; from shared.volume import publish;"
        f" publish.published(os.open(sys.argv[1], os.O_RDONLY), '{NAME}').__enter__()"
    )
    os.mkfifo(volume_root / JOB / NAME)
    process = subprocess.Popen(
        [sys.executable, "-c", code, volume_root / JOB],
        cwd=Path(__file__).parents[3],
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.wait(5) != 0
    finally:
        process.kill()
        process.wait()


def test_a_file_that_may_not_grow_is_thrown_away(volume: Volume, volume_root: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path; from shared.volume import identity, publish\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "with identity.opened(Path(sys.argv[1]), sys.argv[2]) as volume:\n"
        "    publish.write_temp(volume, [b'x' * 700, b'x' * 700])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, volume_root, volume.storage_id],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "STORAGE_LIMIT" in done.stderr
    assert temps(volume_root) == []


def test_a_listing_is_bounded(
    volume: Volume, directory: int, volume_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        (volume_root / JOB / f"f{number}").touch()
    assert files.names_in(directory) == ["f0", "f1", "f2", "f3"]
    monkeypatch.setattr(files, "ENTRIES_MAX", 3)
    with pytest.raises(Verdict) as verdict:
        files.names_in(directory)
    assert verdict.value.params["cause"] == "too-many-entries"


def test_batch_files_do_not_count_against_the_bound_of_a_listing(
    volume: Volume, directory: int, volume_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 6):
        (volume_root / JOB / file_name(number)).touch()
    for number in range(3):
        (volume_root / JOB / f"f{number}").touch()
    monkeypatch.setattr(listing, "ENTRIES_MAX", 3)
    found = listing.listed(directory)
    assert (list(found.numbers), len(found.foreign)) == ([1, 2, 3, 4, 5], 3)
    (volume_root / JOB / "f3").touch()
    with pytest.raises(Verdict) as verdict:
        listing.listed(directory)
    assert verdict.value.params["cause"] == "too-many-entries"


def test_a_directory_that_is_a_link_is_not_entered(volume: Volume, volume_root: Path) -> None:
    (volume_root.parent / "elsewhere").mkdir()
    (volume_root / JOB).symlink_to(volume_root.parent / "elsewhere")
    with pytest.raises((Passing, Verdict)), publish.job_directory(volume, JOB, create=True):
        pass
    assert list((volume_root.parent / "elsewhere").iterdir()) == []


@pytest.mark.system
@pytest.mark.parametrize(
    ("call", "error"), [("fsync", "EIO"), ("fsync", "ENOSPC"), ("linkat", "EIO")]
)
def test_a_failing_call_is_never_repeated_and_leaves_nothing_behind(
    volume: Volume, volume_root: Path, call: str, error: str
) -> None:
    code = (
        "import sys; from pathlib import Path; from shared.volume import identity, publish\n"
        "with identity.opened(Path(sys.argv[1]), sys.argv[2]) as volume,"
        f" publish.job_directory(volume, '{JOB}', create=False) as directory:\n"
        "    temp = publish.write_temp(volume, [b'content'])\n"
        f"    try:\n        publish.publish(volume, temp, directory, '{NAME}')\n"
        "    finally:\n        publish.discard(volume, temp)\n"
    )
    with publish.job_directory(volume, JOB, create=True):
        pass
    trace = volume_root.parent / "trace"
    done = subprocess.run(
        [
            *("strace", "-f", "-o", str(trace)),
            *("-e", f"trace={call}", "-e", f"inject={call}:error={error}"),
            *(sys.executable, "-c", code, str(volume_root), volume.storage_id),
        ],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("STORAGE_LIMIT" if error == "ENOSPC" else "STORAGE_FAILED") in done.stderr
    assert trace.read_text().count(f"{call}(") == 1
    assert temps(volume_root) == []
    assert list((volume_root / JOB).iterdir()) == []
