"""What a scan finds on a volume: told once, corrected in the ledger, and left alone on the disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from shared.jobs.model import Ending, Job, State
from shared.jobs.rules import Action
from shared.volume import listing, walk
from shared.volume.reconcile import Sighting
from tests.operations.stage import (
    Stage,
    act,
    adopt,
    batch_files,
    directory,
    event_types,
    events,
    execute,
    jobs,
    plan,
    plans_due,
    stage,
    text_of,
    units,
)
from tests.worlds import rows

KINDS = """
[kinds.notes]
root = "public.note"
time = "at"
"""
DDL = (
    "CREATE TABLE note (id integer PRIMARY KEY, at date)",
    "INSERT INTO note SELECT i, '2020-01-01'::date + i FROM generate_series(1, 5) AS i",
)


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    """A volume with one finished archive of three batches, whose ledger a first scan has put right."""
    here = stage(database, volume_root, KINDS, *DDL)
    plan(here, "notes", batch_size=2)
    here.until_idle()
    plan(here, None, batch_size=1000)
    here.until_idle()
    return here


def archive_of(here: Stage) -> Job:
    return next(job for job in jobs(here) if job.operation == "archive")


def scanned(here: Stage, batch_size: int | None = None) -> list[dict[str, Any]]:
    """Scan once more from end to end and return everything that was found, in its order."""
    if batch_size is not None:
        execute(
            here.control,
            f"UPDATE tallystick.plan SET batch_size = {batch_size} WHERE operation = 'scan'",
        )
    execute(here.control, "UPDATE tallystick.plan SET enabled = (operation = 'scan')")
    plans_due(here)
    reports = here.until_idle(100)
    assert reports[-1].outcome.ending is Ending.IDLE, reports[-1]
    scan = jobs(here)[-1]
    assert (scan.operation, scan.state) == ("scan", State.SUCCEEDED)
    found = [each for unit in units(here, scan) for each in unit["evidence"]["findings"]]
    told = [event for event in events(here, scan) if event["type"] == "scan-finding"]
    assert [event["reason_code"] for event in told] == [each["code"] for each in found]
    return found


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in regular(root)}


def regular(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]


def ledger_is_right(here: Stage) -> None:
    """Compare the ledger with the files; the first entry is the root and what works in it."""
    (row,) = rows(here.control, "SELECT used_bytes FROM tallystick.volume")
    assert row["used_bytes"] == sum(path.stat().st_size for path in regular(here.root))


def test_a_volume_in_order_gives_no_finding(here: Stage) -> None:
    before = contents(here.root)
    assert scanned(here) == []
    assert contents(here.root) == before
    ledger_is_right(here)


def edit(here: Stage) -> None:
    file = batch_files(here, archive_of(here))[1]
    content = file.read_bytes()
    file.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])


def swap(here: Stage) -> None:
    """Put a whole other chain in place, one that verifies: only the database knows better."""
    from shared.chain.frame import compressor

    files = batch_files(here, archive_of(here))
    frame = compressor()
    text = text_of(files[-1]).replace(b"tallystick test", b"somebody else's")
    files[-1].write_bytes(frame.compress(text) + frame.flush())


def forge(here: Stage) -> None:
    """Put in a batch whose header holds what no database could keep: it is told all the same."""
    from shared.chain.frame import compressor

    file = batch_files(here, archive_of(here))[1]
    frame = compressor()
    text = text_of(file).replace(b'"job":"', b'"job":"\\u0000\\u001b' + b"x" * 1_000_000, 1)
    file.write_bytes(frame.compress(text) + frame.flush())


def cut(here: Stage) -> None:
    batch_files(here, archive_of(here))[-1].unlink()


def gap(here: Stage) -> None:
    batch_files(here, archive_of(here))[1].unlink()


def unmanifest(here: Stage) -> None:
    (directory(here, archive_of(here)) / "manifest.json").unlink()


def move_away(here: Stage) -> None:
    directory(here, archive_of(here)).rename(here.root.parent / "moved")


def strange(here: Stage) -> None:
    (here.root / f"{uuid4()}-{uuid4()}").mkdir()


def foreign_file(here: Stage) -> None:
    (here.root / "notes.txt").write_text("mine")


def foreign_inside(here: Stage) -> None:
    (directory(here, archive_of(here)) / "notes.txt").write_text("mine")


def foreign_link(here: Stage) -> None:
    (directory(here, archive_of(here)) / "000009.sql.zst").symlink_to("/etc/passwd")


def foreign_pipe(here: Stage) -> None:
    os.mkfifo(directory(here, archive_of(here)) / "000009.sql.zst")


def foreign_bytes(here: Stage) -> None:
    (Path(os.fsdecode(os.fsencode(here.root) + b"/\xff\xfe"))).write_text("no UTF-8 in its name")


def believe(here: Stage) -> None:
    execute(
        here.control,
        "UPDATE tallystick.ledger SET bytes = bytes + 70 WHERE directory <> ''",
        "UPDATE tallystick.volume SET used_bytes = used_bytes + 70",
    )


FINDINGS: dict[Sighting | str, tuple[Callable[[Stage], None], Sighting]] = {
    "an edited batch": (edit, Sighting.CHAIN_BROKEN),
    "a forged batch": (forge, Sighting.CHAIN_BROKEN),
    "another chain that verifies": (swap, Sighting.DIGEST_DIFFERS),
    "the last batch deleted": (cut, Sighting.FILE_MISSING),
    "a batch in the middle deleted": (gap, Sighting.CHAIN_BROKEN),
    "the manifest deleted": (unmanifest, Sighting.CHAIN_BROKEN),
    "the directory gone": (move_away, Sighting.DIRECTORY_MISSING),
    "a directory no job has": (strange, Sighting.UNKNOWN_DIRECTORY),
    "a foreign file": (foreign_file, Sighting.FOREIGN_ENTRY),
    "a foreign file among batches": (foreign_inside, Sighting.FOREIGN_ENTRY),
    "a link among batches": (foreign_link, Sighting.FOREIGN_ENTRY),
    "a pipe among batches": (foreign_pipe, Sighting.FOREIGN_ENTRY),
    "a name that is no UTF-8": (foreign_bytes, Sighting.FOREIGN_ENTRY),
    "a ledger that is wrong": (believe, Sighting.LEDGER_CORRECTED),
}


@pytest.mark.parametrize("what", FINDINGS)
@pytest.mark.parametrize("size", [2, 1000])
def test_what_is_not_as_it_should_be_is_found_and_left_alone(
    here: Stage, what: str, size: int
) -> None:
    spoil, sighting = FINDINGS[what]
    spoil(here)
    # Where it is the file settled last that was spoilt, nothing is scanned before an operator says so.
    adopt(here)
    before = contents(here.root)
    found = scanned(here, size)
    others = {str(sighting), str(Sighting.LEDGER_CORRECTED)}
    assert [each["code"] for each in found].count(sighting) == 1, found
    assert {each["code"] for each in found} <= others
    assert contents(here.root) == before
    ledger_is_right(here)
    # The ledger is put right; what is wrong on the disk is told at every scan until it is mended.
    expected = [] if sighting is Sighting.LEDGER_CORRECTED else [sighting]
    assert [each["code"] for each in scanned(here)] == expected


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_every_damage_is_named(here: Stage, size: int) -> None:
    at = directory(here, archive_of(here))
    (at / "000001.sql.zst").unlink()
    last = at / "000003.sql.zst"
    last.write_bytes(last.read_bytes()[:-4])
    # Without the file that was settled last, the volume is not used before an operator says so.
    adopt(here)
    broken = [each for each in scanned(here, size) if each["code"] == Sighting.CHAIN_BROKEN]
    assert [(each["file"], each["cause"]) for each in broken] == [
        ("000001.sql.zst", "FILE_MISSING"),
        ("000003.sql.zst", "FRAME_TRUNCATED"),
    ]


def test_a_missing_end_is_named_beside_another_damage(here: Stage) -> None:
    at = directory(here, archive_of(here))
    second = at / "000002.sql.zst"
    second.write_bytes(second.read_bytes()[:-4])
    (at / "000003.sql.zst").unlink()
    adopt(here)
    found = scanned(here, 1000)
    damage = {Sighting.CHAIN_BROKEN, Sighting.FILE_MISSING}
    assert [(each["code"], each["file"]) for each in found if each["code"] in damage] == [
        (Sighting.CHAIN_BROKEN, "000002.sql.zst"),
        (Sighting.FILE_MISSING, "000003.sql.zst"),
    ]


def test_a_crowd_of_strangers_hides_no_damage(here: Stage) -> None:
    at = directory(here, archive_of(here))
    for number in range(120):
        (at / f"stranger-{number}").touch()
    first = at / "000001.sql.zst"
    first.write_bytes(first.read_bytes()[:-4])
    found = scanned(here, 1000)
    assert Sighting.CHAIN_BROKEN in [each["code"] for each in found]


def test_a_directory_with_too_many_strangers_keeps_no_other_from_being_verified(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = directory(here, archive_of(here))
    for number in range(4):
        (at / f"stranger-{number}").touch()
    monkeypatch.setattr(listing, "ENTRIES_MAX", 3)
    found = scanned(here, 1000)
    (unread,) = [each for each in found if each["code"] == Sighting.ENTRY_UNREADABLE]
    assert (unread["directory"], unread["cause"]) == (at.name, "too-many-entries")


def test_what_file_systems_and_desktops_leave_is_listed_and_no_damage(here: Stage) -> None:
    at = directory(here, archive_of(here))
    for name in (".DS_Store", ".nfs000000000001a2b300000001", "._000001.sql.zst"):
        (at / name).write_bytes(b"left")
    (at / "@eaDir").mkdir()
    (here.root / "lost+found").mkdir()
    found = [each for each in scanned(here) if each["code"] != Sighting.LEDGER_CORRECTED]
    assert [each["code"] for each in found] == [Sighting.HARMLESS_ENTRY] * 2
    assert sorted(name for each in found for name in each["names"]) == sorted(
        [".DS_Store", ".nfs000000000001a2b300000001", "._000001.sql.zst", "@eaDir", "lost+found"]
    )


def test_every_stranger_is_named(here: Stage) -> None:
    at = directory(here, archive_of(here))
    for number in range(25):
        (at / f"notes {number:02d}.txt").write_text("mine")
    found = [each for each in scanned(here) if each["code"] == Sighting.FOREIGN_ENTRY]
    assert [each["name"] for each in found] == [f"notes {number:02d}.txt" for number in range(25)]


def test_files_past_the_recorded_end_are_called_unrecorded(here: Stage) -> None:
    archive = archive_of(here)
    execute(
        here.control,
        "ALTER TABLE tallystick.unit DISABLE TRIGGER ALL",
        f"DELETE FROM tallystick.unit WHERE job_id = '{archive.id}' AND seq = 3",
        "UPDATE tallystick.job SET batches = 2, state = 'ABANDONED' WHERE operation = 'archive'",
    )
    (finding,) = scanned(here)
    assert (finding["code"], finding["file"]) == (Sighting.UNRECORDED_FILE, "000003.sql.zst")


def test_what_an_abandoned_job_had_set_aside_is_given_back(here: Stage) -> None:
    plan(here, "notes", batch_size=2, scope="all")
    execute(here.control, "UPDATE tallystick.plan SET enabled = (operation = 'archive')")
    plans_due(here)
    here.tick()
    archive = next(job for job in jobs(here) if job.state is State.PENDING and job.kind)
    execute(here.control, f"UPDATE tallystick.job SET reserved = 500 WHERE id = '{archive.id}'")
    act(here, archive, Action.ABANDON)
    assert Sighting.LEFTOVER_RESERVATION in [each["code"] for each in scanned(here)]
    (row,) = rows(here.control, "SELECT sum(reserved) AS sum FROM tallystick.job")
    assert row["sum"] == 0
    assert scanned(here) == []


def test_a_batch_below_a_regular_job_is_bounded_by_the_size_of_its_plan(here: Stage) -> None:
    execute(here.control, "UPDATE tallystick.plan SET batch_size = 2 WHERE operation = 'scan'")
    for _ in range(6):
        strange(here)
    plans_due(here)
    here.until_idle(100)
    scan = jobs(here)[-1]
    steps = [unit["evidence"] for unit in units(here, scan)]
    assert all(step["files"] <= 2 for step in steps)
    assert len(steps) >= 4


def test_a_scan_of_one_file_a_step_gets_somewhere(here: Stage) -> None:
    assert scanned(here, 1) == []


def test_a_scan_goes_on_after_its_last_key(here: Stage) -> None:
    execute(here.control, "UPDATE tallystick.plan SET batch_size = 2 WHERE operation = 'scan'")
    execute(here.control, "UPDATE tallystick.plan SET enabled = (operation = 'scan')")
    for _ in range(3):
        strange(here)
    plans_due(here)
    places = []
    while here.tick().outcome.ending is Ending.PROGRESSED:
        checkpoint = jobs(here)[-1].checkpoint
        assert checkpoint is not None
        place = walk.Place.from_json(checkpoint)
        places.append((place.after, place.position.seq if place.position else -1))
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    told = [event for event in events(here) if event["reason_code"] == Sighting.UNKNOWN_DIRECTORY]
    assert len({event["reason_params"]["directory"] for event in told}) == len(told) == 3


def test_a_job_without_a_confirmed_batch_may_still_lack_its_manifest(here: Stage) -> None:
    plan(here, "notes", batch_size=2, scope="all")
    plans_due(here)
    away = here.changed(
        sources={"control": here.control, "application": "postgresql://127.0.0.1:1/x"}
    )
    away.tick()
    waiting = next(job for job in jobs(here) if job.state is State.PENDING and job.kind)
    directory(here, waiting).mkdir()
    assert scanned(here) == []
    assert "scan-finding" not in event_types(here, waiting)
