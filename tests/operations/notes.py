"""Six notes, archived two a batch."""

from __future__ import annotations

from pathlib import Path

from shared.jobs.model import Ending, Job, State
from tests.operations.stage import (
    Stage,
    assert_sound,
    blocked,
    child,
    copied,
    expire,
    gate,
    killed,
    leftovers,
    only_job,
    plan,
    rows_in,
    stage,
    wait_for,
)
from tests.worlds import rows

KINDS = """
[kinds.notes]
root = "public.note"
time = "at"
"""
NOTE = "CREATE TABLE note (id integer PRIMARY KEY, at date NOT NULL, said text)"
FILL = "INSERT INTO note SELECT i, '2020-01-01'::date + i / 3, 'n' || i FROM generate_series(1, 6) AS i"


def begun(database: str, volume_root: Path) -> Stage:
    """Return a stage on which the first of three batches is confirmed."""
    here = stage(database, volume_root, KINDS, NOTE, FILL)
    plan(here, "notes", batch_size=2)
    assert here.tick().outcome.ending is Ending.PROGRESSED
    return here


def finishes(here: Stage) -> Job:
    """Tick to the end, and check that every row of the source was archived once."""
    reports = here.until_idle()
    assert reports[-1].outcome.ending is Ending.IDLE, reports[-1]
    job = only_job(here)
    assert job.state is State.SUCCEEDED
    found = rows_in(assert_sound(here, job))
    assert found == {'"public"."note"': copied(here.source, "SELECT * FROM note")}
    assert leftovers(here) == []
    return job


def dies_before_the_settle(here: Stage) -> None:
    """Let a process publish the next batch and be killed before it is recorded."""
    with gate(here):
        process = child(here)
        wait_for(lambda: process.poll() is not None or blocked(here.control))
        assert process.poll() is None, process.communicate()
        killed(process)
        for pid in blocked(here.control):
            rows(here.control, "SELECT pg_terminate_backend(%s, 5000)", pid)
    expire(here)
