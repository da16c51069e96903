"""Files made to exhaust or to fool whoever verifies them: refused by name, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shared.chain.batch import PREAMBLE, begin_lines, copy_line
from shared.chain.canonical import canonical_json
from shared.chain.frame import compressor
from shared.chain.manifest import MANIFEST_NAME
from tests.tamper.mutations import ONE
from tests.tamper.shelf import WHOLE, Entries, batch, lay, text
from tests.unit.chain.scribe import MANIFEST, stored

MIB = 1024 * 1024
# A process that verifies an ordinary archive takes 40 MiB.
PEAK_MAX = 150 * MIB


@dataclass(frozen=True)
class Ended:
    """How a process of ours ended: its exit code, what it printed, the most memory it had."""

    code: int
    output: str
    errors: str
    peak: int

    @property
    def document(self) -> Any:  # noqa: ANN401 - one JSON document
        return json.loads(self.output or self.errors)


# The peak is of this program alone: what wait4 tells would count the process that started it, too.
PROGRAM = """
import sys
from pathlib import Path
from handlers.cli import run
code = run(sys.argv[2:])
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
Path(sys.argv[1]).write_text(status["VmHWM"].split()[0])
sys.exit(code)
"""


def verify(directory: Path, place: Path, *options: str) -> Ended:
    peak = place / "peak"
    asked = [str(peak), "archive", "verify", str(directory), *options]
    command = [sys.executable, "-c", PROGRAM, *asked]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    return Ended(done.returncode, done.stdout, done.stderr, int(peak.read_text()) * 1024)


def compressed(*pieces: tuple[bytes, int]) -> bytes:
    """Return a frame of pieces, each repeated; the content is never in memory as a whole."""
    frame = compressor()
    return b"".join(frame.compress(piece) for piece, times in pieces for _ in range(times)) + (
        frame.flush()
    )


def repeated(byte: bytes, size: int) -> bytes:
    """Return a block of zstd that stands for one byte, ``size`` times, at most 128 KiB."""
    return (size << 3 | 2).to_bytes(3, "little") + byte


def bomb(begin: bytes, byte: bytes, blocks: int) -> bytes:
    """Return a frame that begins well and goes on with one byte, 128 KiB for every four of its own."""
    raw = (len(begin) << 3).to_bytes(3, "little") + begin
    return (
        b"\x28\xb5\x2f\xfd\x04\x68"
        + (raw if begin else b"")
        + repeated(byte, 128 * 1024) * blocks
        + b"\x01\0\0"
        + b"\0\0\0\0"
    )


HEADER = text(batch(WHOLE, ONE)).partition(b"\n")[0]
BEGIN = HEADER + b"\n" + PREAMBLE + begin_lines(MANIFEST.job, 1) + copy_line(MANIFEST.tables[0])
LINE = b" " * MIB


def header_of(value: bytes) -> bytes:
    return stored(b"-- tallystick " + value + b"\n" + text(batch(WHOLE, ONE)).partition(b"\n")[2])


def ended_by(end: tuple[bytes, int]) -> bytes:
    whole = text(batch(WHOLE, ONE)).partition(b"-- end ")[0]
    return compressed((whole + b"-- end ", 1), end, (b"\n", 1))


def columns(count: int) -> bytes:
    document = json.loads(batch(WHOLE, MANIFEST_NAME))
    column = document["tables"][0]["columns"][1]
    document["tables"][0]["columns"] += [
        column | {"name": f"column {number}"} for number in range(count)
    ]
    return canonical_json(document) + b"\n"


def manifest_of(definition: bytes) -> bytes:
    data = batch(WHOLE, MANIFEST_NAME)
    return data.replace(b'"batch":2,', b'"batch":' + definition + b",", 1)


FULL = MIB * 16 - 100
BATCHES: dict[str, tuple[Callable[[], bytes], str]] = {
    "GiBs of one line": (lambda: bomb(b"", b"x", 40_000), "LINE_TOO_LONG"),
    "GiBs of line breaks": (lambda: bomb(b"", b"\n", 40_000), "HEADER_INVALID"),
    "GiBs of zeros in a row": (lambda: bomb(BEGIN, b"\0", 40_000), "ROW_CONTROL"),
    "GiBs of tabs": (lambda: bomb(BEGIN, b"\t", 40_000), "ROW_COLUMNS"),
    "GiBs of empty rows": (lambda: bomb(BEGIN, b"\n", 40_000), "ROW_COLUMNS"),
    "a million columns in the copy line": (
        lambda: stored(BEGIN.replace(b'"id"', b", ".join([b'"id"'] * 1_000_000))),
        "COPY_MISMATCH",
    ),
    "an end line without end": (
        lambda: compressed((text(batch(WHOLE, ONE)).partition(b"}\n")[0] + b"}\n", 1)),
        "TEXT_TRUNCATED",
    ),
    "an end line of GiBs": (lambda: ended_by((LINE, 2048)), "LINE_TOO_LONG"),
    "an end line of 16 MiB": (lambda: ended_by((LINE, 15)), "JSON_INVALID"),
    "millions of tables in the end line": (
        lambda: ended_by(
            (b"{" + b",".join(b'"%x":1' % n for n in range(10**6, 2 * 10**6)) + b"}", 1)
        ),
        "JSON_INVALID",
    ),
    "millions of lists in the header": (
        lambda: header_of(b"[" + b"[]," * 5_000_000 + b"[]]"),
        "JSON_INVALID",
    ),
    "deep lists in the header": (lambda: header_of(b"[" * 100_000), "JSON_INVALID"),
    "a long number in the header": (lambda: header_of(b"9" * FULL), "JSON_INVALID"),
    "a long text in the header": (
        lambda: header_of(b'"' + b"x" * (FULL - 2) + b'"'),
        "HEADER_INVALID",
    ),
    "a long job in the header": (
        lambda: header_of(HEADER[14:].replace(b'"job":"', b'"job":"' + b"\\u0007" * 2_700_000)),
        "JOB_MISMATCH",
    ),
    "a member twice": (lambda: header_of(b'{"a":1,"a":1}'), "JSON_INVALID"),
    "a huge window": (
        lambda: b"\x28\xb5\x2f\xfd\x04\xf8" + repeated(b"x", 128 * 1024) * 1000,
        "FRAME_REFUSED",
    ),
    "a huge size declared": (
        lambda: b"\x28\xb5\x2f\xfd\xe4" + b"\xff" * 8 + repeated(b"x", 128 * 1024) * 1000,
        "FRAME_REFUSED",
    ),
}
MANIFESTS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a million columns in the manifest": (lambda: columns(1_000_000), "MANIFEST_INVALID"),
    "100,000 columns in the manifest": (lambda: columns(100_000), "JSON_INVALID"),
    "a manifest of 64 MiB": (lambda: b" " * (64 * MIB), "MANIFEST_INVALID"),
    "a manifest of 64 MiB of line breaks": (lambda: b"\n" * (64 * MIB), "JSON_INVALID"),
    "millions of lists in the manifest": (
        lambda: manifest_of(b"[" + b"[]," * 5_000_000 + b"[]]"),
        "JSON_INVALID",
    ),
    "millions of numbers in the manifest": (
        lambda: manifest_of(b"[" + b"1," * 8_000_000 + b"1]"),
        "JSON_INVALID",
    ),
    "deep members in the manifest": (
        lambda: manifest_of(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        "JSON_INVALID",
    ),
    "a long number in the manifest": (lambda: manifest_of(b"9" * 4301), "JSON_INVALID"),
    "a NUL in the manifest": (lambda: manifest_of(b"\0"), "JSON_INVALID"),
    "no UTF-8 in the manifest": (lambda: manifest_of(b'"\xff"'), "JSON_INVALID"),
}


def laid(name: str, data: bytes, place: Path) -> Path:
    hostile: Entries = {**WHOLE, name: data}
    return lay(hostile, place / "archive")


def check(directory: Path, place: Path, reason: str, file: str) -> None:
    ended = verify(directory, place, "--json")
    assert ended.code == 1, ended.errors
    params = ended.document["params"]
    assert (params["cause"], params["file"]) == (reason, file)
    assert ended.peak < PEAK_MAX, f"{ended.peak / MIB:.0f} MiB"
    assert len(ended.output) < 20_000
    shown = verify(directory, place)
    assert shown.code == 1
    assert all(char.isprintable() or char == "\n" for char in shown.output)


@pytest.mark.parametrize("case", BATCHES)
def test_a_hostile_batch_is_refused_by_name_in_bounded_memory(case: str, tmp_path: Path) -> None:
    make, reason = BATCHES[case]
    check(laid(ONE, make(), tmp_path), tmp_path, reason, ONE)


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_hostile_manifest_is_refused_by_name_in_bounded_memory(case: str, tmp_path: Path) -> None:
    make, reason = MANIFESTS[case]
    check(laid(MANIFEST_NAME, make(), tmp_path), tmp_path, reason, MANIFEST_NAME)


@pytest.mark.system
@pytest.mark.sweep
@pytest.mark.timeout(900)
def test_one_row_above_the_limit_of_content_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    directory = laid(ONE, bomb(BEGIN, b"x", 4 * 1024 * 8 + 8), tmp_path)
    ended = verify(directory, tmp_path, "--json")
    assert ended.document["params"]["cause"] == "RAW_TOO_LARGE"
    assert ended.peak < PEAK_MAX


def test_a_manifest_of_the_largest_size_hides_nothing_after_it(tmp_path: Path) -> None:
    fill = 16 * MIB + 1 - len(manifest_of(b'""'))
    largest = manifest_of(b'"' + b"x" * fill + b'"')
    good: Entries = {MANIFEST_NAME: largest}
    ended = verify(lay(good, tmp_path / "good"), tmp_path, "--json")
    assert ended.document["verdict"] == "UNFINISHED"
    assert ended.peak < PEAK_MAX
    longer: Entries = {MANIFEST_NAME: largest + b"more\n"}
    ended = verify(lay(longer, tmp_path / "longer"), tmp_path, "--json")
    assert ended.document["verdict"] == "BROKEN"


NAMES = ("a\nb", "\x1b[31mred", "\u202etxt", "\x9b2J", "\udcff\udcfe", "..\\..", "x" * 255)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_hostile_name_is_told_without_commanding_the_terminal(
    name: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    ended = verify(laid(name, b"", tmp_path), tmp_path, *options)
    assert ended.code == 1, ended.errors
    assert all(char.isprintable() or char == "\n" for char in ended.output + ended.errors)
    assert "\nred" not in ended.output


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_names_inside_a_manifest_do_not_command_the_terminal(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    data = batch(WHOLE, MANIFEST_NAME)
    data = data.replace(b'"kind":"tasks"', b'"kind":"\\u009b2J\\u202e"')
    hostile: Entries = {MANIFEST_NAME: data}
    ended = verify(lay(hostile, tmp_path / "archive"), tmp_path, *options)
    assert ended.code == 0
    assert all(char.isprintable() or char == "\n" for char in ended.output)
    if options:
        assert ended.document["kind"] == "\x9b2J\u202e"


def test_a_directory_of_too_many_entries_is_not_judged(tmp_path: Path) -> None:
    directory = lay(WHOLE, tmp_path / "archive")
    for number in range(100_000):
        (directory / f"stranger {number}").touch()
    judged = verify(directory, tmp_path, "--json")
    assert (judged.code, judged.document["params"]["cause"]) == (1, "ENTRY_FOREIGN")
    assert judged.document["damages_left_out"] == 100_000 - 100
    (directory / "one more").touch()
    refused = verify(directory, tmp_path, "--json")
    assert refused.code == 2
    assert refused.output == ""
    told = refused.document["error"]
    assert (told["code"], told["params"]["cause"]) == ("DIRECTORY_UNREADABLE", "too-many-entries")
    assert "100000" in told["message"]
    assert max(judged.peak, refused.peak) < PEAK_MAX
