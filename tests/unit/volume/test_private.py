"""What Tallystick makes is its owner's alone, whatever the umask, the parent directory and links say."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from shared.chain.manifest import MANIFEST_MAX_BYTES, MANIFEST_READ_BYTES
from shared.errors import TallystickError
from shared.volume import files, identity, lock, publish

JOB = "11111111-1111-4111-8111-111111111111-22222222-2222-4222-8222-222222222222"


@pytest.fixture(params=[0o777, 0o022, 0o000])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    assert os.umask(before) == request.param


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A directory whose set-group-id bit is inherited by what is made in it."""
    path = tmp_path / "team"
    path.mkdir()
    path.chmod(0o2777)
    return path


def modes(root: Path) -> dict[str, int]:
    """Return the modes of a directory and everything below it."""
    return {
        str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode)
        for path in (root, *root.rglob("*"))
    }


def test_a_volume_and_all_that_is_in_it_are_private(team: Path, umask: int) -> None:
    root = team / "volume"
    with (
        identity.opened(root, identity.initialise(root)) as volume,
        lock.held(volume),
    ):
        lock.prepare(volume)
        temp = publish.write_temp(volume, [b"rows"])
        with publish.job_directory(volume, JOB, create=True) as directory:
            assert publish.publish(volume, temp, directory, "000001.sql.zst")
        publish.discard(volume, temp)
    found = modes(root)
    assert {found[name] for name in (".", ".tmp", ".evidence", JOB)} == {0o700}
    assert {found[name] for name in (".lock", ".storage-id", f"{JOB}/000001.sql.zst")} == {0o600}


def test_a_volume_with_the_bits_of_its_parent_is_private_enough(team: Path) -> None:
    root = team / "volume"
    root.mkdir(mode=0o700)
    assert stat.S_IMODE(root.stat().st_mode) == 0o2700
    identity.probe(root, identity.initialise(root))


def test_a_link_that_takes_the_place_of_a_new_volume_is_not_followed(tmp_path: Path) -> None:
    """Between making a directory and setting its mode, somebody who may write beside it swaps it."""
    root, target = tmp_path / "volume", tmp_path / "target"
    target.mkdir()
    target.chmod(0o755)
    mkdir = os.mkdir

    def swapped(*args: object, **kwargs: object) -> None:
        mkdir(*args, **kwargs)  # type: ignore[arg-type]
        if root.is_dir() and not root.is_symlink():
            root.rmdir()
            root.symlink_to(target)

    with mock.patch.object(os, "mkdir", swapped), pytest.raises(TallystickError):
        identity.initialise(root)
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    assert list(target.iterdir()) == []


def test_a_manifest_of_the_largest_size_is_read_whole_with_its_line_break(tmp_path: Path) -> None:
    content = b"x" * MANIFEST_MAX_BYTES + b"\n"
    (tmp_path / "manifest.json").write_bytes(content)
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        read = publish.read_published(directory, "manifest.json", MANIFEST_READ_BYTES)
        assert read == content
    finally:
        os.close(directory)


def test_reads_that_return_less_than_was_asked_for_are_gone_on_with(tmp_path: Path) -> None:
    content = b"0123456789" * 10
    (tmp_path / "file").write_bytes(content)
    read = os.read
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with mock.patch.object(os, "read", lambda fd, size: read(fd, min(size, 7))):
            assert publish.read_published(directory, "file", 1000) == content
            assert publish.read_published(directory, "file", 50) == content[:50]
            assert files.read_whole(directory, "file", 50)[0] == content[:50]
    finally:
        os.close(directory)


def test_writes_that_take_less_than_was_given_are_gone_on_with(tmp_path: Path) -> None:
    write = os.write
    with mock.patch.object(os, "write", lambda fd, piece: write(fd, bytes(piece[:5]))):
        storage_id = identity.initialise(tmp_path / "volume")
    identity.probe(tmp_path / "volume", storage_id)
