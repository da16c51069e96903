"""Trouble with the volume."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.errors import Code
from tests.remedies.scene import Scene, Variables, remedy

# Sixty rows that do not compress, of 32 KiB each: more than the smallest budget there is.
BULKY = (
    "INSERT INTO app.orders (customer, placed_at) SELECT (SELECT string_agg(md5(i::text || j), '')"
    " FROM generate_series(1, 1000) AS j), timestamptz '2019-01-01 00:00:00+00'"
    " FROM generate_series(1, 100) AS i"
)
HOLDER = """
import fcntl, sys
lock = open(sys.argv[1], "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
ROOMY = 64 * 1024 * 1024


@contextmanager
def held(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold the lock of a volume until the end of the block, or its own."""
    command = [sys.executable, "-c", HOLDER, str(root / ".lock")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
        if holder.poll() is None:
            holder.communicate()


@remedy(Code.STORAGE_BUSY, 1)
def another_process_is_at_work(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    with held(scene.root):
        assert scene.ask("tick", code=0)["code"] == "STORAGE_BUSY"
    yield {}
    assert scene.job(job)["batches"] == 2


@remedy(Code.STORAGE_BUSY, 2)
def the_holder_of_the_lock_hangs(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    with held(scene.root) as holder:
        scene.ask("tick", code=0)
        yield {"ROOT": str(scene.root)}
        assert holder.wait(10) != 0
    assert scene.job(job)["batches"] == 2


@remedy(Code.STORAGE_LIMIT, 1)
def the_budget_of_the_job_is_used_up(scene: Scene) -> Iterator[Variables]:
    scene.deploy("--max-bytes", "1MiB")
    scene.sql(BULKY)
    told = scene.ask("tick", "--until-idle", code=3)
    job = scene.newest()["id"]
    assert told["ticks"][-2]["params"]["cause"] == "job-budget"
    yield {"JOB": job, "KIND": "orders", "MORE": "64MiB"}
    assert scene.finishes(job)["max_bytes"] == ROOMY
    assert scene.ask("plan", "list")["items"][0]["max_bytes"] == ROOMY


@remedy(Code.STORAGE_LIMIT, 2)
def the_budget_of_the_volume_is_used_up(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.setenv(ARCHIVE_MAX_BYTES=1024 * 1024)
    scene.sql(BULKY)
    told = scene.ask("tick", "--until-idle", code=3)
    assert told["ticks"][-2]["params"]["cause"] == "volume-budget"
    job = scene.newest()["id"]
    yield {"JOB": job, "MORE": str(ROOMY)}
    scene.finishes(job)


@contextmanager
def small_disk(disk: Path) -> Iterator[tuple[Path, Path]]:
    """Mount a file system with 1 MiB left; yield where it is, and the file that fills the rest."""
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], check=True)
    try:
        films = disk / "films"
        films.write_bytes(bytes(7 * 1024 * 1024))
        yield disk, films
    finally:
        subprocess.run(["umount", disk], check=True)


@remedy(Code.STORAGE_LIMIT, 3)
def the_disk_is_full(scene: Scene) -> Iterator[Variables]:
    with small_disk(scene.directory / "disk") as (disk, films):
        (disk / "volume").mkdir(mode=0o700)
        scene.root_at = disk / "volume"
        scene.deploy()
        scene.sql(BULKY)
        told = scene.ask("tick", "--until-idle", code=3)
        assert told["ticks"][-2]["params"]["cause"] == "ENOSPC"
        job = scene.newest()["id"]
        yield {"JOB": job, "DISPENSABLE": str(films)}
        scene.finishes(job)


@remedy(Code.STORAGE_FAILED, 1)
def something_else_lies_in_place_of_a_directory(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    temp = scene.root / ".tmp"
    temp.rmdir()
    temp.write_text("a file")
    assert scene.ask("tick", code=1)["note"]["params"]["cause"] == "ENOTDIR"
    elsewhere = scene.directory / "found"
    yield {"ROOT": str(scene.root), "INTRUDER": str(temp), "ELSEWHERE": str(elsewhere)}
    assert elsewhere.read_text() == "a file"
    scene.finishes(job)


@remedy(Code.STORAGE_FAILED, 2)
def it_lasted_for_twelve_failures(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    directory = scene.directory_of(job)
    away = directory.rename(scene.directory / "away")
    directory.write_text("a file")
    # As after an adoption: otherwise nothing is claimed while the file settled last is away.
    scene.sql(
        "UPDATE tallystick.volume SET last_directory = NULL, last_file = NULL, last_bytes = NULL,"
        " last_sha256 = NULL"
    )
    for _ in range(11):
        scene.ask("tick", code=1)
        scene.time_passes()
    scene.ask("tick", code=3)
    assert scene.job(job)["state"] == "FAILED"
    directory.unlink()
    away.rename(directory)
    yield {"JOB": job}
    scene.finishes(job)


def spoilt(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def damaged(scene: Scene) -> tuple[str, Path, bytes]:
    """Spoil the first batch of a job; return the job, the file, and what was in it."""
    job = scene.in_mid_job()
    file = scene.directory_of(job) / "000001.sql.zst"
    content = file.read_bytes()
    file.write_bytes(spoilt(content))
    assert scene.ask("tick", code=3)["params"]["cause"] == "digest"
    return job, file, content


@remedy(Code.FILE_CHECK_FAILED, 1)
def a_file_was_altered_and_there_is_a_copy(scene: Scene) -> Iterator[Variables]:
    job, file, content = damaged(scene)
    copy = scene.directory / "copy" / file.parent.name / file.name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(content)
    place = {"ROOT": str(scene.root), "DIRECTORY": file.parent.name, "FILE": file.name}
    yield {"JOB": job, "COPY": str(scene.directory / "copy"), **place}
    scene.finishes(job)


@remedy(Code.FILE_CHECK_FAILED, 2)
def a_file_was_altered_and_there_is_no_copy(scene: Scene) -> Iterator[Variables]:
    job, file, content = damaged(scene)
    yield {"JOB": job, "KIND": "orders"}
    assert scene.job(job)["state"] == "ABANDONED"
    assert file.read_bytes() == spoilt(content)
    assert scene.finishes()["roots"] == 45


@remedy(Code.STORAGE_UNAVAILABLE, 1)
def the_volume_is_not_mounted(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    device = scene.root.rename(scene.directory / "device")
    scene.root.mkdir(mode=0o700)
    assert scene.ask("tick", code=1)["note"]["params"]["cause"] == "no-marker"
    yield {"OPTIONS": "--bind", "DEVICE": str(device), "ROOT": str(scene.root)}
    try:
        scene.finishes(job)
    finally:
        subprocess.run(["umount", scene.root], check=True)


@remedy(Code.STORAGE_UNAVAILABLE, 2)
def the_volume_is_open_to_others(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.root.chmod(0o755)
    assert scene.ask("volume", "show", code=1)["problem"]["params"]["cause"] == "mode"
    yield {"ROOT": str(scene.root)}
    assert scene.ask("volume", "show", code=0)["usable"] is True
    scene.finishes(job)


@remedy(Code.STORAGE_UNAVAILABLE, 3)
def the_volume_is_a_copy(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    directory = scene.directory_of(job).name
    original = scene.root.rename(scene.directory / "original")
    shutil.copytree(original, scene.root)
    scene.root.chmod(0o700)
    assert scene.ask("tick", code=1)["note"]["params"]["cause"] == "copied"
    yield {"ROOT": str(scene.root), "DIRECTORY": directory}
    scene.finishes(job)
