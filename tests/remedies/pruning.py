"""Trouble with pruning: history that is not what was archived, or that does not go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shared.errors import Code
from tests.golden.scenario import deployed
from tests.operations.past import RECEIPT
from tests.remedies.scene import Scene, Variables, remedy

KEYS = "SELECT key FROM tallystick.receipt ORDER BY key"
SLOW = (
    (
        "CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_sleep(0.4); RETURN old; END'"
    ),
    "CREATE TRIGGER slow BEFORE DELETE ON tallystick.receipt FOR EACH ROW EXECUTE FUNCTION public.slow()",
)
STUBBORN = (
    "CREATE FUNCTION public.stubborn() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    (
        "CREATE TRIGGER stubborn BEFORE DELETE ON tallystick.receipt FOR EACH ROW"
        " EXECUTE FUNCTION public.stubborn()"
    ),
)


def keys(scene: Scene) -> list[str]:
    return [row["key"] for row in scene.sql(KEYS)]


def history(scene: Scene, *given: str) -> str:
    """Archive receipts, with a file for each of the first two; return the job."""
    deployed(scene.shell, scene.database, scene.root, scene.monkeypatch.setenv)
    scene.setenv(KINDS_FILE=None)
    for key in given:
        scene.sql(RECEIPT, key)
    scene.do("policy", "set", "idempotency", "--after", "30d")
    scene.do("plan", "set", "idempotency", "--enable", "--scope", "new")
    return str(scene.finishes()["id"])


def prunes(scene: Scene, *plan: str, code: int = 0) -> str:
    """Have a job prune, and return it."""
    scene.do("plan", "set", "--operation", "prune", "--enable", *plan)
    scene.sql(
        "UPDATE tallystick.plan SET next_run_at = now() - interval '1 s' WHERE operation = 'prune'"
    )
    scene.ask("tick", "prune", code=code)
    return str(scene.newest()["id"])


@remedy(Code.ROWS_KEPT, 1)
def a_receipt_was_changed_after_it_was_archived(scene: Scene) -> Iterator[Variables]:
    history(scene, "a", "b")
    scene.sql("UPDATE tallystick.receipt SET status = 200 WHERE key = 'a'")
    prunes(scene)
    scene.ask("recovery", "list", code=0)
    assert keys(scene) == ["a"]
    yield {"KIND": "idempotency"}
    prunes(scene)
    assert keys(scene) == []


def lost(scene: Scene) -> tuple[Path, bytes]:
    """Lose a file, give it up, and let the next job pass over it; return its place and content."""
    job = history(scene, "a")
    file = scene.directory_of(job) / "000001.sql.zst"
    content = file.read_bytes()
    file.unlink()
    # It was the file settled last.
    scene.do("volume", "adopt")
    failed = prunes(scene, code=3)
    scene.do("jobs", "abandon", failed)
    prunes(scene)
    scene.ask("recovery", "list", code=0)
    assert keys(scene) == ["a"]
    return file, content


@remedy(Code.FILE_PASSED_OVER, 1)
def a_file_is_lost_for_good(scene: Scene) -> Iterator[Variables]:
    lost(scene)
    yield {"KIND": "idempotency"}
    prunes(scene)
    assert keys(scene) == []


@remedy(Code.FILE_PASSED_OVER, 2)
def a_lost_file_turns_up(scene: Scene) -> Iterator[Variables]:
    file, content = lost(scene)
    copy = scene.directory / "copy"
    copy.mkdir()
    (copy / file.name).write_bytes(content)
    place = {"ROOT": str(scene.root), "DIRECTORY": file.parent.name}
    yield {"COPY": str(copy), "FILE": file.name, **place}
    assert len(scene.ask("archive", "verify", "--all", code=0)["items"]) == 1


def slow(scene: Scene) -> str:
    """Let rows take longer to go than a tick has time; return the job that met them."""
    history(scene, "a", "b", "c", "d")
    for statement in SLOW:
        scene.sql(statement)
    scene.setenv(DEADLINE_SECONDS=1, TIMEOUT_SECONDS=5, LEASE_SECONDS=6)
    job = prunes(scene, "--batch-size", "1", code=1)
    assert scene.job(job)["error"]["params"]["cause"] == "deadline"
    scene.time_passes()
    return job


@remedy(Code.PRUNE_INCOMPLETE, 1)
def the_time_of_a_tick_was_up(scene: Scene) -> Iterator[Variables]:
    job = slow(scene)
    # What made it slow has passed.
    scene.sql("DROP TRIGGER slow ON tallystick.receipt")
    scene.setenv(DEADLINE_SECONDS=None, TIMEOUT_SECONDS=None, LEASE_SECONDS=None)
    yield {"JOB": job}
    assert scene.job(job)["state"] == "SUCCEEDED"
    assert keys(scene) == []


@remedy(Code.PRUNE_INCOMPLETE, 2)
def ticks_have_too_little_time(scene: Scene) -> Iterator[Variables]:
    job = slow(scene)
    yield {"KIND": "idempotency", "SMALLER": "100"}
    assert scene.job(job)["state"] == "SUCCEEDED"
    assert keys(scene) == []


@remedy(Code.PRUNE_INCOMPLETE, 3)
def a_trigger_keeps_the_rows(scene: Scene) -> Iterator[Variables]:
    history(scene, "a")
    for statement in STUBBORN:
        scene.sql(statement)
    job = prunes(scene, code=1)
    assert scene.job(job)["error"]["params"]["cause"] == "left"
    for code in (*[1] * 10, 3):
        scene.time_passes()
        scene.ask("tick", "prune", code=code)
    place = {"DATABASE": scene.database, "TRIGGER": "stubborn", "TABLE": "tallystick.receipt"}
    yield {"JOB": job, **place}
    scene.ask("tick", "prune", code=0)
    assert scene.job(job)["state"] == "SUCCEEDED"
    assert keys(scene) == []
