"""Whoever reads jobs, units, events and archives is right after rows of them were removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handlers.cli import run
from shared.chain.frame import compressor
from shared.jobs.model import State
from shared.volume.reconcile import Sighting
from tests.operations import past
from tests.operations.past import archive, evidence, is_there, keys, prune, receipts, scan
from tests.operations.stage import Stage, batch_files, jobs, plan, text_of, units
from tests.worlds import one, rows

Ask = Callable[..., tuple[int, Any]]


@pytest.fixture
def here(database: str, volume_root: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    here = past.deployed(database, volume_root)
    kinds = volume_root.parent / "kinds.toml"
    kinds.write_text(past.NOTES)
    for name, value in {
        "DATABASE_URL": database,
        "KINDS_FILE": str(kinds),
        "ARCHIVE_ROOT": str(volume_root),
        "ARCHIVE_STORAGE_ID": here.storage_id,
        "HOME": str(volume_root.parent / "home"),
    }.items():
        monkeypatch.setenv(f"TALLYSTICK_{name}", value)
    return here


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(*arguments: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = run([*arguments, "--json"])
        captured = capsys.readouterr()
        return code, json.loads(captured.out or captured.err.splitlines()[-1])

    return asked


def test_a_scan_finds_nothing_wrong_where_units_were_removed(here: Stage) -> None:
    receipts(here, "a", "b", "c")
    job = archive(here, "idempotency", batch_size=1)
    archive(here, "tasks")
    scan(here)
    prune(here)
    assert units(here, job) == []
    assert findings(here) == set()


def findings(here: Stage) -> set[tuple[str, str | None]]:
    found = [each for unit in evidence(here, scan(here)) for each in unit["findings"]]
    return {(each["code"], each.get("file")) for each in found}


def rewritten(here: Stage, number: int, job_number: int = 0) -> None:
    """Put other bytes in place of a file that verify as part of a chain."""
    file = batch_files(here, jobs(here)[job_number])[number]
    frame = compressor()
    text = text_of(file).replace(b"tallystick test", b"somebody else's")
    file.write_bytes(frame.compress(text) + frame.flush())


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1, (Sighting.CHAIN_BROKEN, "000003.sql.zst")),
        (2, (Sighting.DIGEST_DIFFERS, "000003.sql.zst")),
    ],
)
@pytest.mark.parametrize("files", [1000, 1])
def test_a_scan_still_finds_a_changed_file_where_units_were_removed(
    here: Stage, number: int, expected: tuple[str, str], files: int
) -> None:
    receipts(here, "a", "b", "c")
    archive(here, "idempotency", batch_size=1)
    archive(here, "tasks")
    prune(here)
    rewritten(here, number)
    plan(here, None, batch_size=files)
    found = {each for each in findings(here) if each[0] != Sighting.LEDGER_CORRECTED}
    assert found == {expected}


def test_archives_verify_against_tails_that_stayed(here: Stage, ask: Ask) -> None:
    receipts(here, "a")
    job = archive(here, "idempotency")
    archive(here, "tasks")
    before = ask("archive", "tails")
    prune(here)
    assert ask("archive", "tails") == before
    code, told = ask("archive", "verify", str(job.id), "--require-final")
    assert (code, told["verdict"]) == (0, "SOUND")
    code, told = ask("archive", "verify", "--all")
    assert code == 0
    assert {item["verdict"] for item in told["items"]} == {"SOUND"}


def test_what_was_removed_is_found_and_restored_from_the_archive(here: Stage, ask: Ask) -> None:
    receipts(here, "a", "b")
    scan(here)
    old = scan(here)
    scan(here)
    before = {
        table: rows(here.control, f"SELECT * FROM tallystick.{table} ORDER BY 1, 2, 3")
        for table in ("receipt",)
    }
    its_units = units(here, old)
    archive(here, "idempotency")
    archive(here, "tasks")
    prune(here)
    assert not is_there(here, old)
    assert keys(here) == []
    code, told = ask("archive", "find", "tasks", str(old.id))
    assert code == 0
    assert told["places"][0]["rows"]["tallystick.job"][0]["operation"] == "scan"
    code, told = ask("archive", "restore", "idempotency", "--to", here.control)
    assert code == 0, told
    for table, found in before.items():
        assert rows(here.control, f"SELECT * FROM tallystick.{table} ORDER BY 1, 2, 3") == found
    code, told = ask("archive", "restore", "tasks", "--to", here.control, "--key", str(old.id))
    assert code == 0, told
    assert [job for job in jobs(here) if job.id == old.id] == [old]
    assert units(here, old) == its_units


def test_the_next_archive_goes_on_and_links_to_the_one_before(here: Stage, ask: Ask) -> None:
    receipts(here, "a")
    first = archive(here, "idempotency")
    archive(here, "tasks")
    prune(here)
    rows(here.control, past.RECEIPT.replace("100 days", "1 day"), "b")
    second = archive(here, "idempotency")
    assert second.input["previous"] == {"job": str(first.id), "tail": first.last_sha256}
    assert second.input["after"] == (first.checkpoint or {})["cursor"]
    code, told = ask("archive", "restore", "idempotency", "--to", here.control, "--dry-run")
    assert code == 0
    assert len(told["archives"]) == 2


def test_late_rows_are_counted_right_after_rows_were_removed(here: Stage) -> None:
    """Rows removed are no longer there to be counted; each that came late still is."""
    receipts(here, "a", "b", "c")
    archive(here, "idempotency")
    prune(here)
    rows(here.control, past.RECEIPT.replace("100 days", "200 days"), "late")
    assert late(here) == 1
    rows(here.control, past.RECEIPT.replace("100 days", "300 days"), "later")
    prune(here)
    assert late(here) == 2
    # A sweep takes them in, and what goes after it was counted by the sweep.
    archive(here, "idempotency", scope="all")
    prune(here)
    assert keys(here) == []
    assert late(here) == 0
    rows(here.control, past.RECEIPT.replace("100 days", "400 days"), "latest")
    assert late(here) == 1


def late(here: Stage) -> int | None:
    opening = archive(here, "idempotency", scope="new").opening
    assert opening is not None
    found: int | None = opening["late_rows"]
    return found


def test_a_restored_row_counts_as_late_and_goes_after_a_sweep(here: Stage, ask: Ask) -> None:
    receipts(here, "a")
    archive(here, "idempotency")
    prune(here)
    code, _ = ask("archive", "restore", "idempotency", "--to", here.control)
    assert (code, keys(here)) == (0, ["a"])
    prune(here)
    assert keys(here) == ["a"]
    assert late(here) == 1
    archive(here, "idempotency", scope="all")
    prune(here)
    assert keys(here) == []


def test_jobs_and_events_are_shown_without_what_is_gone(here: Stage, ask: Ask) -> None:
    old = scan(here)
    scan(here)
    job = archive(here, "tasks")
    archive(here, "events")
    pruned = prune(here)
    _, told = ask("jobs", "show", str(job.id))
    assert (told["last_sha256"], told["batches"]) == (job.last_sha256, 1)
    code, told = ask("jobs", "show", str(pruned.id))
    assert code == 0
    assert told["units"][0]["evidence"]["removed"]
    code, told = ask("jobs", "show", str(old.id))
    assert (code, told["error"]["code"]) == (2, "JOB_UNKNOWN")
    assert "archive find tasks" in told["error"]["next"]
    code, told = ask("jobs", "list", "--before", str(old.id))
    assert (code, told["error"]["code"]) == (2, "JOB_UNKNOWN")
    code, told = ask("jobs", "list")
    assert str(old.id) not in [item["id"] for item in told["items"]]
    assert ask("recovery", "list")[0] == 0
    code, told = ask("plan", "list")
    assert code == 0


def test_the_chain_of_jobs_of_a_kind_has_no_gap(here: Stage, ask: Ask) -> None:
    for number in range(3):
        rows(here.control, past.RECEIPT.replace("100 days", f"{90 - number} days"), str(number))
        archive(here, "idempotency")
        archive(here, "tasks")
        prune(here)
    assert keys(here) == []
    code, told = ask("archive", "restore", "idempotency", "--to", here.control, "--dry-run")
    assert code == 0
    assert [each["verdict"] for each in told["archives"]] == ["SOUND"] * 3
    kinds = [job.kind for job in jobs(here) if job.operation == "archive"]
    assert kinds == ["idempotency", "tasks"] * 3


def test_a_namespace_has_one_plan_that_prunes(here: Stage, ask: Ask) -> None:
    signed = ("--reason", "a test needs it")
    code, told = ask("plan", "set", "--operation", "prune", "--every", "1h", "--enable", *signed)
    assert (code, told["operation"], told["kind"], told["revision"]) == (0, "prune", None, "1")
    code, told = ask("plan", "set", "--operation", "prune", "--batch-size", "7", *signed)
    assert (code, told["batch_size"], told["revision"]) == (0, 7, "2")
    assert one(here.control, "SELECT count(*) FROM tallystick.plan WHERE operation = 'prune'") == 1
    assert ask("plan", "set", "tasks", "--operation", "prune", *signed)[0] == 2
    code, told = ask("tick", "prune")
    assert (code, told["outcome"], told["job"]["operation"]) == (0, "finished", "prune")
    assert jobs(here)[-1].state is State.SUCCEEDED


def test_a_disabled_namespace_is_not_pruned(here: Stage, ask: Ask) -> None:
    receipts(here, "a")
    archive(here, "idempotency")
    past.begin(here)
    rows(here.control, "UPDATE tallystick.plan SET next_run_at = now() WHERE operation = 'prune'")
    assert ask("namespaces", "disable", "default", "--reason", "a test")[0] == 0
    here.until_idle()
    assert keys(here) == ["a"]
