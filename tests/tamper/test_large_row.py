"""A row of gigabytes in a small file takes no more memory than the limit of a row allows."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from shared.chain.batch import file_name
from shared.chain.canonical import sha256_hex
from shared.chain.frame import compressor
from shared.chain.manifest import encode_manifest
from tests.unit.chain.scribe import MANIFEST, page

MIB = 1024 * 1024
LARGE = 200 * MIB
# What the interpreter and its libraries map before anything is read, and the limit of a row a few times.
ROOM = 512 * MIB
MARK = b"7\tTHE VALUE\t2026-01-01 09:00:00+00\n"


pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One sound batch, of some kilobytes, with one row of many megabytes."""
    directory = tmp_path_factory.mktemp("large") / "archive"
    directory.mkdir()
    manifest = encode_manifest(MANIFEST)
    (directory / "manifest.json").write_bytes(manifest)
    small = page(MANIFEST, 1, sha256_hex(manifest), None, (MARK, b""), final=True).text()
    grown = LARGE - len(b"THE VALUE")
    claimed = b'"raw_bytes":%d' % len(MARK)
    before, _, after = small.partition(b"THE VALUE")
    assert claimed in after
    after = after.replace(claimed, b'"raw_bytes":%d' % (len(MARK) + grown))
    frame = compressor()
    pieces = [frame.compress(before), *(frame.compress(b"a" * MIB) for _ in range(LARGE // MIB))]
    (directory / file_name(1)).write_bytes(
        b"".join([*pieces, frame.compress(after), frame.flush()])
    )
    return directory


def bounded(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "handlers.cli", "archive", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **settings},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM)),
    )


def test_the_file_is_small_and_sound(archive: Path) -> None:
    assert (archive / file_name(1)).stat().st_size < MIB
    done = bounded("verify", str(archive), "--json")
    assert json.loads(done.stdout)["verdict"] == "CONSISTENT", done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("cat", "--table", "app.tasks", "--columns", "id"),
        ("cat", "--table", "app.tasks", "--format", "jsonl"),
        ("find", "7", "--no-index"),
        ("find", "8", "--no-index"),
    ],
)
def test_a_row_above_the_limit_ends_the_command_in_bounded_memory(
    archive: Path, command: tuple[str, ...]
) -> None:
    done = bounded(command[0], str(archive), *command[1:], "--json")
    assert done.returncode == 2, done.stderr[-2000:]
    assert '"code": "ROW_TOO_LARGE"' in done.stderr


def test_the_limit_is_a_setting(archive: Path) -> None:
    done = bounded(
        *("cat", str(archive), "--table", "app.tasks", "--columns", "id", "--json"),
        TALLYSTICK_ROW_MAX_BYTES=str(2 * MIB),
    )
    assert '"limit": 2097152' in done.stderr
