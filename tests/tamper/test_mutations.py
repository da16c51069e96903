"""With the trusted tail every mutation is caught and named; without it no verdict claims more than it can."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from handlers.cli import run
from shared.volume.files import shown
from tests.tamper.mutations import MUTATIONS, SOUND, Mutation, Said
from tests.tamper.shelf import lay
from tests.tamper.verifiers import ours, safe, theirs

WRONG = "0" * 64
UNTOUCHED = {"nothing", "nothing, unfinished"}
HARMLESS = {name for name in MUTATIONS if name.startswith("harmless ")}
# Many share a test, so that starting tests takes no longer than what they do.
SHARDS = 8
in_shards = pytest.mark.parametrize("shard", range(SHARDS))


def laid(shard: int, place: Path) -> Iterator[tuple[Mutation, Path]]:
    for number, mutation in enumerate(MUTATIONS.values()):
        if number % SHARDS == shard:
            yield mutation, lay(mutation.result, place / str(number))


def cases(mutation: Mutation) -> list[tuple[str | None, Said]]:
    """Return what must be said with no tail, with the trusted one and with a wrong one."""
    wrong = mutation.alone if mutation.alone[0] == "BROKEN" else ("BROKEN", None)
    return [(None, mutation.alone), (mutation.trusted, mutation.anchored), (WRONG, wrong)]


def agrees(said: Said, must: Said) -> bool:
    return said[0] == must[0] and must[1] in (None, said[1])


def told(file: str | None) -> str | None:
    """Spell the name of a file as verdicts do."""
    if file is None:
        return None
    text = "".join(char if char.isprintable() else "?" for char in shown(file))
    return text if len(text) <= 200 else text[:200] + "…"


@in_shards
def test_what_was_done_to_an_archive_is_said_and_no_more(shard: int, tmp_path: Path) -> None:
    for mutation, directory in laid(shard, tmp_path):
        for tail, (verdict, file) in cases(mutation):
            said, reason = ours(directory, tail)
            assert agrees(said, (verdict, told(file))), (mutation.name, tail, said, reason)
            assert (reason is None) == (verdict != "BROKEN")


@in_shards
@pytest.mark.parametrize("require_final", [False, True])
def test_exit_codes_are_as_documented_and_nothing_commands_the_terminal(
    shard: int, require_final: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for mutation, directory in laid(shard, tmp_path):
        for tail, (verdict, _) in cases(mutation):
            arguments = ["archive", "verify", "--directory", str(directory)]
            arguments += ["--expected-sha256", tail] if tail else []
            arguments += ["--require-final"] if require_final else []
            ended = run(arguments)
            output = capsys.readouterr()
            good = {"SOUND", "CONSISTENT"} if require_final else {"UNFINISHED", "UNRECORDED"}
            expected = 0 if verdict in good | {"SOUND", "CONSISTENT"} else 1
            assert (ended, output.err) == (expected, ""), (mutation.name, tail)
            assert all(char.isprintable() or char == "\n" for char in output.out), mutation.name


@pytest.mark.system
@pytest.mark.timeout(900)
@in_shards
def test_the_script_says_the_same(shard: int, tmp_path: Path) -> None:
    for mutation, directory in laid(shard, tmp_path):
        for tail, (verdict, file) in cases(mutation):
            if tail == WRONG and mutation.alone[0] == "BROKEN":
                continue  # said already: no tail changes it
            must = (verdict, None if file is None else safe(file))
            said, ended = theirs(directory, tail)
            assert agrees(said, must), (mutation.name, tail, said)
            assert ended == (1 if verdict == "BROKEN" else 0)
            if file is None:
                assert said == ours(directory, tail)[0]


def test_no_mutation_may_be_called_sound() -> None:
    for mutation in MUTATIONS.values():
        if mutation.name not in UNTOUCHED:
            assert mutation.result != mutation.archive, mutation.name
        if mutation.name not in UNTOUCHED | HARMLESS:
            assert SOUND not in (mutation.anchored, mutation.alone)
            assert mutation.anchored[0] in {"BROKEN", "UNRECORDED"}
