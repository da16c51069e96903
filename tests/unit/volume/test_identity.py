"""Which directory is the volume: made once, recognised always, and never waited for."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.errors import Code, Missing, Refused
from shared.volume import identity

WANTED = "0123456789abcdef" * 2


def test_a_fresh_volume_is_private_and_carries_its_id(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "volume"
    storage_id = identity.initialise(root)
    assert re.fullmatch(r"[0-9a-f]{32}", storage_id)
    assert root.stat().st_mode & 0o777 == 0o700
    assert (root / ".storage-id").read_text() == f"{storage_id}\n"
    assert {path.name for path in root.iterdir()} == {".storage-id", ".tmp", ".evidence"}
    with identity.opened(root, storage_id) as volume:
        assert (volume.root_inode, volume.owner) == (root.stat().st_ino, os.getuid())
        assert volume.marker_inode == (root / ".storage-id").stat().st_ino
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(volume.fd)


def test_two_volumes_have_two_ids(tmp_path: Path) -> None:
    assert identity.initialise(tmp_path / "a") != identity.initialise(tmp_path / "b")


def test_a_volume_is_made_once(volume_root: Path) -> None:
    storage_id = identity.initialise(volume_root)
    with pytest.raises(Refused) as refused:
        identity.initialise(volume_root)
    assert refused.value.code is Code.VOLUME_EXISTS
    assert (volume_root / ".storage-id").read_text() == f"{storage_id}\n"


def test_a_volume_with_the_id_asked_for_is_made_once_and_then_left_as_it_is(
    volume_root: Path,
) -> None:
    assert identity.initialise(volume_root, WANTED) == WANTED
    before = (volume_root / ".storage-id").stat()
    (volume_root / "a job").mkdir()
    assert identity.initialise(volume_root, WANTED) == WANTED
    assert (volume_root / ".storage-id").stat() == before
    assert (volume_root / ".storage-id").read_text() == f"{WANTED}\n"
    assert list((volume_root / ".tmp").iterdir()) == []


def test_another_volume_than_the_one_asked_for_is_refused(volume_root: Path) -> None:
    there = identity.initialise(volume_root)
    with pytest.raises(Refused) as refused:
        identity.initialise(volume_root, WANTED)
    assert (refused.value.code, refused.value.params["cause"]) == (Code.VOLUME_EXISTS, "other")
    assert (volume_root / ".storage-id").read_text() == f"{there}\n"


def test_making_a_volume_that_was_cut_short_is_made_whole_by_the_next_try(
    volume_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for call in ("mkdir", "write", "fsync", "link"):
        with monkeypatch.context() as patched:
            patched.setattr(os, call, cut)
            with pytest.raises(KeyboardInterrupt):
                identity.initialise(volume_root, WANTED)
        assert not (volume_root / ".storage-id").exists()
    assert identity.initialise(volume_root, WANTED) == WANTED
    with identity.opened(volume_root, WANTED):
        pass


def test_two_that_make_the_same_volume_at_once_both_have_it(
    volume_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def overtaken(source: str, target: str, **directories: Any) -> None:  # noqa: ANN401 - as link
        monkeypatch.setattr(os, "link", link)
        identity.initialise(volume_root, WANTED)
        link(source, target, **directories)

    monkeypatch.setattr(os, "link", overtaken)
    assert identity.initialise(volume_root, WANTED) == WANTED


def test_a_volume_made_in_a_directory_of_a_group_is_private_all_the_same(tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)
    identity.initialise(tmp_path / "volume", WANTED)
    assert stat.S_IMODE((tmp_path / "volume").stat().st_mode) == 0o700


def test_a_place_where_no_volume_can_be_made_is_refused_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place, cause in (("file", "not-a-directory"), ("file/volume", "not-a-directory")):
        with pytest.raises(Refused) as refused:
            identity.initialise(tmp_path / place, WANTED)
        assert refused.value.params["cause"] == cause


def test_a_directory_that_holds_anything_is_not_made_a_volume(volume_root: Path) -> None:
    (volume_root / "mine").write_text("")
    with pytest.raises(Refused) as refused:
        identity.initialise(volume_root)
    assert (refused.value.code, refused.value.params["cause"]) == (Code.VOLUME_EXISTS, "not-empty")
    assert [path.name for path in volume_root.iterdir()] == ["mine"]


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o770, 0o701, 0o1700, 0o500])
def test_a_directory_that_is_not_private_is_not_made_a_volume(volume_root: Path, mode: int) -> None:
    volume_root.chmod(mode)
    with pytest.raises(Refused) as refused:
        identity.initialise(volume_root)
    assert (refused.value.code, refused.value.params["cause"]) == (
        Code.STORAGE_UNAVAILABLE,
        "mode",
    )
    volume_root.chmod(0o700)
    assert list(volume_root.iterdir()) == []


def test_a_symbolic_link_is_not_made_a_volume(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(Refused):
        identity.initialise(tmp_path / "link")
    assert list((tmp_path / "real").iterdir()) == []


def pipe(root: Path) -> None:
    (root / ".storage-id").unlink()
    os.mkfifo(root / ".storage-id", 0o600)


def linked_marker(root: Path) -> None:
    moved = (root / ".storage-id").rename(root.parent / "marker")
    (root / ".storage-id").symlink_to(moved)


def directory_marker(root: Path) -> None:
    (root / ".storage-id").unlink()
    (root / ".storage-id").mkdir()


def upper(root: Path) -> None:
    (root / ".storage-id").write_text((root / ".storage-id").read_text().upper() + "x")


def more(root: Path) -> None:
    with (root / ".storage-id").open("a") as marker:
        marker.write("more\n")


def nothing(root: Path) -> None:
    (root / ".storage-id").write_text("")


CAUSES: dict[str, tuple[Callable[[Path], None], str]] = {
    "link": (linked_marker, "marker-unreadable"),
    "directory": (directory_marker, "marker-unreadable"),
    "upper case": (upper, "marker-malformed"),
    "another line": (more, "marker-malformed"),
    "empty": (nothing, "marker-malformed"),
}


@pytest.mark.parametrize("what", CAUSES)
def test_a_marker_that_is_none_is_named(volume_root: Path, what: str) -> None:
    storage_id = identity.initialise(volume_root)
    spoil, cause = CAUSES[what]
    spoil(volume_root)
    for look in (identity.probe, lambda root, given: identity.opened(root, given).__enter__()):
        with pytest.raises(Missing) as missing:
            look(volume_root, storage_id)
        assert missing.value.code is Code.STORAGE_UNAVAILABLE
        assert missing.value.params["cause"] == cause


def test_a_pipe_in_place_of_the_marker_is_no_marker(volume_root: Path) -> None:
    storage_id = identity.initialise(volume_root)
    pipe(volume_root)
    with pytest.raises(Missing) as missing:
        identity.probe(volume_root, storage_id)
    assert missing.value.params["cause"] == "marker-unreadable"


PROBE = """
import sys, time
from pathlib import Path
from shared.errors import Missing
from shared.volume import identity
began = time.monotonic()
try:
    identity.probe(Path(sys.argv[1]), sys.argv[2], seconds=0.5)
except Missing as missing:
    print(missing.params["cause"], time.monotonic() - began < 2)
"""
LOOK = """
import sys, time
from pathlib import Path
from shared.volume import identity
began = time.monotonic()
with identity.opened(Path(sys.argv[1]), sys.argv[2]):
    print("opened", time.monotonic() - began < 2)
"""


def on_a_dead_mount(volume_root: Path, program: str) -> list[str]:
    """Run a program for which the call that reads the marker hangs for three seconds."""
    storage_id = identity.initialise(volume_root)
    hang = "inject=read:delay_enter=3000000"
    trace: list[str | os.PathLike[str]] = [
        "strace",
        "-f",
        "-qq",
        "-o",
        os.devnull,
        "-P",
        volume_root / ".storage-id",
        "-e",
        hang,
    ]
    done = subprocess.run(
        [*trace, sys.executable, "-c", program, volume_root, storage_id],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.system
def test_a_probe_gives_up_on_a_volume_that_does_not_answer(volume_root: Path) -> None:
    assert on_a_dead_mount(volume_root, PROBE) == ["no-answer", "True"]


@pytest.mark.system
def test_without_a_limit_a_volume_that_does_not_answer_is_waited_for(volume_root: Path) -> None:
    assert on_a_dead_mount(volume_root, LOOK) == ["opened", "False"]


def test_a_probe_of_a_good_volume_says_nothing(volume_root: Path) -> None:
    identity.probe(volume_root, identity.initialise(volume_root))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_marker_of_another_owner_is_refused(volume_root: Path) -> None:
    storage_id = identity.initialise(volume_root)
    os.chown(volume_root / ".storage-id", 12345, -1)
    with pytest.raises(Missing) as missing, identity.opened(volume_root, storage_id):
        pass
    assert missing.value.params["cause"] == "owner"
