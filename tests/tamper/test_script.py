"""The script takes what is sound, whatever it holds, and differs from us where its page says so."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from shared.chain.manifest import MANIFEST_NAME, Manifest, Previous, Table
from tests.tamper.mutations import ALL_GENERATED, ONE, Said, manifest_with, nested, rewritten
from tests.tamper.shelf import WHOLE, Entries, entries, lay, tail
from tests.tamper.verifiers import PAGE, SCRIPT, ours, theirs
from tests.unit.chain.scribe import (
    ATTEMPTS,
    MANIFEST,
    OTHER_JOB,
    PAGES,
    TASKS,
    chain,
    column,
    with_header,
)

pytestmark = pytest.mark.system

ODD_NAMES = Table(
    'say "hi"',
    "tâches\u2028\u202e\U0001f600",
    0,
    ("a.b",),
    ("id",),
    (column("a.b"), column('"'), column("\\"), column("'; DROP TABLE x; --")),
)
KEYED = replace(MANIFEST, key=("note", "id"))
VALUES = (
    "",
    "\\",
    "\\.",
    "\\N",
    "\b\f\n\r\t\v",
    "-- end {}",
    "é\u2028\U0001f600",
    "'$(id)`id`\"",
    "\x7f\x01",
)
ESCAPES = {
    ord(char): f"\\{letter}" for char, letter in zip("\\\b\f\n\r\t\v", "\\bfnrtv", strict=True)
}


def rows(*values: tuple[str, ...]) -> bytes:
    return b"".join(
        "\t".join(each.translate(ESCAPES) for each in row).encode() + b"\n" for row in values
    )


def keyed(values: tuple[str, ...]) -> Entries:
    pages = tuple((rows((str(at), value, "2026-01-01")), b"") for at, value in enumerate(values))
    return entries(*chain(KEYED, pages))


def of(manifest: Manifest, *blocks: bytes) -> Entries:
    pages = tuple((*page[: len(manifest.tables) - len(blocks)], *blocks) for page in PAGES)
    return entries(*chain(manifest, pages))


GOOD: dict[str, Entries] = {
    "every escape in keys": keyed(VALUES),
    "no related tables": entries(
        *chain(replace(MANIFEST, tables=(TASKS,)), tuple(page[:1] for page in PAGES))
    ),
    "rows without columns": of(replace(MANIFEST, tables=(TASKS, ATTEMPTS, ALL_GENERATED)), b"\n\n"),
    "odd names": of(replace(MANIFEST, tables=(TASKS, ATTEMPTS, ODD_NAMES)), b"1\t\t\\N\t\\\\\n"),
    "no policy, a previous job": of(
        replace(MANIFEST, policy=None, previous=Previous(OTHER_JOB, "ab" * 32))
    ),
    "a window that begins later": of(
        replace(MANIFEST, window=replace(MANIFEST.window, after=("2025-01-01", "é\n")))
    ),
    "as deep as may be": of(replace(MANIFEST, definition={"deep": nested(62)})),
    "the largest exact number": of(replace(MANIFEST, definition={"n": 2**53, "m": -(2**53)})),
    "nothing at all": entries(*chain(MANIFEST, ((b"", b""),))),
    "a long row": entries(
        *chain(MANIFEST, ((b"1\t" + b"\\\\x" * 500_000 + b"\t2026-01-01\n", b""),))
    ),
    "bytes that are no UTF-8": entries(
        *chain(MANIFEST, ((b"1\t\xff\xc3\t2026-01-01\n", b"\xe2\x82\t\n"),))
    ),
}


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("case", GOOD)
def test_what_is_sound_is_sound_for_both(case: str, shell: str, tmp_path: Path) -> None:
    directory = lay(GOOD[case], tmp_path / "archive")
    for expected, verdict in ((tail(GOOD[case]), "SOUND"), (None, "CONSISTENT")):
        assert ours(directory, expected)[0] == (verdict, None)
        assert theirs(directory, expected, shell=shell)[0] == (verdict, None)


def differing(definition: object, place: Path) -> tuple[Said, Said]:
    directory = lay(manifest_with(["definition", "x"], definition)(WHOLE), place / "archive")
    return ours(directory, None)[0], theirs(directory, None)[0]


def test_too_many_parts_alone_do_not_break_it_for_the_script(tmp_path: Path) -> None:
    said, script = differing([0] * 200_001, tmp_path)
    assert (said, script) == (("BROKEN", MANIFEST_NAME), ("CONSISTENT", None))
    assert "or to the parts of a JSON" in PAGE


def test_too_long_a_manifest_alone_does_not_break_it_for_the_script(tmp_path: Path) -> None:
    said, script = differing("x" * (16 * 1024 * 1024), tmp_path)
    assert (said, script) == (("BROKEN", MANIFEST_NAME), ("CONSISTENT", None))
    assert "to the length of the manifest" in PAGE


def test_too_long_a_header_alone_does_not_break_it_for_the_script(tmp_path: Path) -> None:
    long = rewritten(spoil={1: with_header(writer="x" * (16 * 1024 * 1024))})
    directory = lay(long(WHOLE), tmp_path / "archive")
    assert ours(directory, None)[0] == ("BROKEN", ONE)
    assert theirs(directory, None)[0] == ("CONSISTENT", None)
    assert "header and end line" in PAGE


def test_an_integer_beyond_2_to_53_is_broken_for_an_older_jq(tmp_path: Path) -> None:
    said, script = differing(2**53 + 1, tmp_path)
    assert said == ("CONSISTENT", None)
    assert script in {("CONSISTENT", None), ("BROKEN", MANIFEST_NAME)}
    assert "an integer beyond 2^53" in PAGE


def test_the_script_ends_with_2_when_it_cannot_judge(tmp_path: Path) -> None:
    real = lay(WHOLE, tmp_path / "archive")
    link = tmp_path / "link"
    link.symlink_to(real)
    bare = {"PATH": str(tmp_path)}
    for arguments, environment in (
        ([str(tmp_path / "nowhere")], None),
        ([str(link)], None),
        ([str(real)], bare),
    ):
        done = subprocess.run(
            ["/bin/sh", "-c", SCRIPT, "verify.sh", *arguments],
            capture_output=True,
            check=False,
            env=environment or dict(os.environ),
        )
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.count(b"\n") == 1
