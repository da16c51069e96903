"""More than 100,000 batches in one archive, and as many archives on a volume: everything still works."""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shared.chain.batch import file_name
from shared.chain.canonical import sha256_hex
from shared.chain.manifest import encode_manifest
from tests.crash.extent import EVERY
from tests.operations.stage import execute
from tests.unit.chain.scribe import MANIFEST, TASKS, page, stored
from tests.worlds import one

COUNT = 100_001
TABLES = "CREATE SCHEMA app", "CREATE TABLE app.tasks (id bigint PRIMARY KEY, done_at timestamptz)"
SMALL = replace(
    MANIFEST,
    batch_size=1,
    tables=(replace(TASKS, columns=(TASKS.columns[0], TASKS.columns[2])),),
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound chain of very many batches of one row."""
    directory = tmp_path_factory.mktemp("many") / "archive"
    directory.mkdir()
    manifest = encode_manifest(SMALL)
    (directory / "manifest.json").write_bytes(manifest)
    prev, after = sha256_hex(manifest), None
    for seq in range(1, COUNT + 1):
        row = b"%d\t2026-01-01 00:00:00+00\n" % seq
        made = page(SMALL, seq, prev, after, (row,), final=seq == COUNT)
        data = stored(made.text())
        (directory / file_name(seq)).write_bytes(data)
        prev, after = sha256_hex(data), made.end.last
    return directory


def asked(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "handlers.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_an_archive_of_more_batches_than_entries_may_be_is_read_and_restored(
    archive: Path, empty_database: str
) -> None:
    execute(empty_database, *TABLES)
    table = ("--table", "app.tasks", "--columns", "id")
    for command in (
        ("verify", str(archive)),
        ("find", str(archive), str(COUNT), "--no-index"),
        ("cat", str(archive), *table),
    )[slice(0, None, EVERY)]:
        done = asked("archive", *command)
        assert done.returncode == 0, (command, done.stderr[-1000:])
        assert str(COUNT) in done.stdout
    key = ("--key", str(COUNT))
    done = asked("archive", "restore", str(archive), "--to", empty_database, *key)
    assert done.returncode == 0, done.stderr[-1000:]
    assert one(empty_database, "SELECT max(id) FROM app.tasks") == COUNT
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 600 * 1024
