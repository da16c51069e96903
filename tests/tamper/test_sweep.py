"""Every flipped bit and every cut is caught by the trusted tail, and never called sound without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from shared.chain.manifest import MANIFEST_NAME
from shared.chain.verdict import Verdict
from shared.chain.verify import ChainReport, verify_chain
from tests.crash.extent import EVERY
from tests.tamper.shelf import Entries, batch, lay, tail
from tests.tamper.sweep import ARCHIVE, cuts, flips, one_bit_flips
from tests.tamper.verifiers import ours, theirs

TRUSTED = tail(ARCHIVE)
LAST = max(ARCHIVE.keys() - {MANIFEST_NAME})
SHARDS = 4
# What the gate tries of the script; a prime to the eight bits of a byte.
STRIDE = 61

Tried = tuple[str, int, Entries]


def judged(archive: Entries, expected: str | None) -> ChainReport:
    names = sorted(archive.keys() - {MANIFEST_NAME})
    files = ((seq, [batch(archive, name)]) for seq, name in enumerate(names, start=1))
    return verify_chain(batch(archive, MANIFEST_NAME), files, expected_sha256=expected)


def blamed(name: str) -> set[str]:
    """Return the files that may be named: the one that was changed, or the next, which knew it."""
    names = sorted(ARCHIVE.keys() - {MANIFEST_NAME})
    order = [MANIFEST_NAME, *names]
    at = order.index(name)
    return set(order[at : at + 2])


def check(tried: Iterator[Tried]) -> int:
    count = 0
    for name, at, archive in tried:
        count += 1
        anchored = judged(archive, TRUSTED)
        assert anchored.verdict is Verdict.BROKEN, (name, at)
        assert anchored.params["file"] in blamed(name), (name, at, anchored.params)
        alone = judged(archive, None)
        if alone.verdict is not Verdict.BROKEN:
            # Nothing follows the last file that would know it; its frame may be spelled otherwise.
            assert (name, alone.verdict) == (LAST, Verdict.CONSISTENT), at
    return count


def size() -> int:
    return sum(len(batch(ARCHIVE, name)) for name in ARCHIVE)


def test_the_archive_that_is_swept_is_sound() -> None:
    assert judged(ARCHIVE, TRUSTED).verdict is Verdict.SOUND


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_flipped_bit_is_caught_and_named(shard: int) -> None:
    assert check(islice(flips(ARCHIVE), shard, None, SHARDS)) == size() * 8 // SHARDS


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_cut_is_caught_and_named(shard: int) -> None:
    assert check(islice(cuts(ARCHIVE), shard, None, SHARDS)) in {
        size() // SHARDS,
        size() // SHARDS + 1,
    }


@pytest.mark.parametrize("kind", [flips, cuts])
def test_read_from_a_directory_it_is_the_same(
    kind: Callable[[Entries], Iterator[Tried]], tmp_path: Path
) -> None:
    for number, (_, _, archive) in enumerate(islice(kind(ARCHIVE), 0, None, 101)):
        directory = lay(archive, tmp_path / str(number))
        for expected in (None, TRUSTED):
            report = judged(archive, expected)
            assert ours(directory, expected)[0] == (
                str(report.verdict),
                report.params.get("file"),
            )


def check_script(tried: Iterator[Tried], place: Path) -> None:
    for number, (name, at, archive) in enumerate(tried):
        directory = lay(archive, place / str(number))
        for expected in (TRUSTED, None) if name == LAST else (TRUSTED,):
            report = judged(archive, expected)
            mine = (str(report.verdict), report.params.get("file"))
            assert theirs(directory, expected)[0] == mine, (name, at)


@pytest.mark.system
@pytest.mark.parametrize("kind", [one_bit_flips, cuts])
def test_the_script_says_the_same_of_a_sample(
    kind: Callable[[Entries], Iterator[Tried]], tmp_path: Path
) -> None:
    check_script(islice(kind(ARCHIVE), 0, None, STRIDE), tmp_path)


@pytest.mark.system
@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("kind", [one_bit_flips, cuts])
def test_the_script_says_the_same_of_every_byte(
    kind: Callable[[Entries], Iterator[Tried]], shard: int, tmp_path: Path
) -> None:
    check_script(islice(kind(ARCHIVE), shard, None, SHARDS * EVERY), tmp_path)
