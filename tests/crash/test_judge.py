"""The judge can be believed: a sound world has no fault, and each fault it must notice is noticed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.judge import Allowed
from tests.crash.scene import Scene, scene
from tests.operations.stage import execute

pytestmark = pytest.mark.system

Doctor = Callable[[Scene], None]


@pytest.fixture
def done(database: str, volume_root: Path) -> Scene:
    """A world in which everything was archived without a disturbance."""
    made = scene(database, volume_root)
    made.stage.until_idle()
    return made


def directory(world: Scene) -> Path:
    (found,) = world.stage.root.glob("*-*-*")
    return found


def sql(statement: str) -> Doctor:
    return lambda world: execute(world.stage.control, statement)


def text_of(world: Scene, seq: int) -> bytes:
    return subprocess.run(
        ["zstd", "-dc", str(directory(world) / f"{seq:06}.sql.zst")],
        capture_output=True,
        check=True,
    ).stdout


def rewritten(seq: int, old: bytes, new: bytes) -> Doctor:
    """Change what a file says, in bytes that are zstd all the same."""

    def change(world: Scene) -> None:
        text = text_of(world, seq)
        assert old in text
        stored = subprocess.run(
            ["zstd", "-c"], input=text.replace(old, new, 1), capture_output=True, check=True
        ).stdout
        file = directory(world) / f"{seq:06}.sql.zst"
        file.chmod(0o600)
        file.write_bytes(stored)

    return change


def added(place: str) -> Doctor:
    def add(world: Scene) -> None:
        (world.stage.root / place).write_bytes(b"x")

    return add


def lost(name: str) -> Doctor:
    return lambda world: (directory(world) / name).unlink()


JOB = "UPDATE tallystick.job SET "
DOCTORED: dict[str, tuple[Doctor, str]] = {
    "a row of the source is gone": (sql("DELETE FROM line WHERE note_id = 2"), "the source's"),
    "a row of the source changed": (
        sql("UPDATE note SET body = 'new' WHERE id = 1"),
        "the source's",
    ),
    "a row was changed in a file": (rewritten(3, b"xx", b"xy"), "other rows of public.line"),
    "a root was changed in a file": (
        rewritten(3, "Grüße".encode(), b"Gruesse"),
        "not the source's",
    ),
    "a root is in two batches": (rewritten(3, b"\n17\t", b"\n16\t"), "not the source's"),
    "the last file is gone": (lost("000003.sql.zst"), "3 batches are recorded"),
    "a file in the middle is gone": (lost("000002.sql.zst"), "should be file 2"),
    "the manifest is gone": (lost("manifest.json"), "manifest.json is missing"),
    "a chain does not hold": (rewritten(2, b'"seq":2', b'"seq":2,"x":1'), "has prev"),
    "a digest is another": (
        sql("UPDATE tallystick.unit SET sha256 = repeat('0', 64) WHERE seq = 2"),
        "another digest",
    ),
    "the tail is another": (sql(JOB + "last_sha256 = repeat('0', 64)"), "its tail"),
    "a unit is not recorded": (
        sql("DELETE FROM tallystick.unit WHERE seq = 2"),
        "units are counted",
    ),
    "roots are counted twice": (sql(JOB + "roots = roots + 1"), "its roots are"),
    "bytes are counted twice": (sql(JOB + "bytes = bytes + 1"), "its bytes are"),
    "a job is stuck": (sql(JOB + "state = 'PENDING', closed_at = NULL"), "it is PENDING"),
    "bytes are set aside for ever": (sql(JOB + "reserved = 1"), "set aside"),
    "a claim is not accounted for": (sql(JOB + "attempts = attempts + 1"), "accounted for"),
    "a takeover has no event": (
        sql(JOB + "attempts = attempts + 1, takeovers = 1"),
        "accounted for",
    ),
    "a job is doubled": (
        sql(
            "INSERT INTO tallystick.job (operation, namespace_id, kind, plan_id, batch_size, page_size,"
            " max_bytes, input) SELECT operation, namespace_id, kind, plan_id, batch_size, page_size,"
            " max_bytes, input FROM tallystick.job"
        ),
        "has 2 jobs",
    ),
    "a job is lost": (
        sql("DELETE FROM tallystick.unit; DELETE FROM tallystick.job"),
        "has 0 jobs",
    ),
    "the ledger is wrong": (
        sql("UPDATE tallystick.ledger SET bytes = bytes + 1"),
        "the ledger has",
    ),
    "the volume's account is wrong": (
        sql("UPDATE tallystick.volume SET used_bytes = 0"),
        "the volume has 0 bytes",
    ),
    "a temporary file is left": (added(".tmp/0123"), ".tmp/0123 is left over"),
    "a directory belongs to nobody": (
        lambda world: (world.stage.root / "0-1").mkdir(),
        "belongs to no job",
    ),
}


def test_a_sound_world_has_no_fault(done: Scene) -> None:
    assert done.faults() == []


def test_a_world_in_mid_job_is_sound_where_that_is_allowed(
    database: str, volume_root: Path
) -> None:
    made = scene(database, volume_root)
    made.stage.tick()
    assert made.faults(Allowed(states=("PENDING",))) == []
    assert made.faults() != []


@pytest.mark.parametrize("name", DOCTORED)
def test_the_judge_notices_that(name: str, done: Scene) -> None:
    doctor, words = DOCTORED[name]
    doctor(done)
    faults = done.faults()
    assert any(words in fault for fault in faults), faults


def test_a_file_past_the_recorded_end_is_a_fault_unless_allowed(
    database: str, volume_root: Path
) -> None:
    made = scene(database, volume_root)
    made.stage.until_idle()
    execute(
        made.stage.control,
        "DELETE FROM tallystick.unit WHERE seq = 3",
        "UPDATE tallystick.job SET state = 'ABANDONED', batches = 2, last_sha256 = unit.sha256,"
        " roots = 16, attempts = 2, bytes = (SELECT sum(bytes) FROM tallystick.unit)"
        " FROM tallystick.unit WHERE unit.seq = 2",
    )
    assert any(
        "000003.sql.zst is not recorded" in fault for fault in made.faults(Allowed(("ABANDONED",)))
    )
    assert made.faults(Allowed(("ABANDONED",), unrecorded=True)) == []
