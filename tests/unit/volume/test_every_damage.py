"""Verifying names every damage and every stranger, and what is still sound; leftovers are no damage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from handlers import verdict
from shared.chain.batch import file_name
from shared.chain.verdict import Verdict
from shared.chain.verify import DAMAGES_MAX, ChainReport
from shared.volume.directory import verified
from shared.volume.listing import is_harmless
from tests.unit.chain.scribe import MANIFEST, Page, chain, with_end, with_header

ROWS = tuple((f"{day}\tx\t2026-01-0{day} 10:00:00+00\n".encode(), b"") for day in range(1, 9))
LEFT = (
    *(
        ".DS_Store",
        "._manifest.json",
        ".nfs0000000004c51f2e0000001b",
        ".fuse_hidden0000004d00000002",
    ),
    *("@eaDir", "Thumbs.db", "desktop.ini", "lost+found", ".Trash-1000", ".directory", "#recycle"),
)


def lay(place: Path, spoil: dict[int, Callable[[Page], Page]] | None = None) -> Path:
    manifest, files = chain(replace(MANIFEST, batch_size=1), ROWS, spoil=spoil)
    place.mkdir()
    (place / "manifest.json").write_bytes(manifest)
    for seq, data in enumerate(files, start=1):
        (place / file_name(seq)).write_bytes(data)
    return place


def cut(directory: Path, *numbers: int) -> None:
    for number in numbers:
        file = directory / file_name(number)
        file.write_bytes(file.read_bytes()[:-4])


def drop(directory: Path, *numbers: int) -> None:
    for number in numbers:
        (directory / file_name(number)).unlink()


def judged(directory: Path) -> ChainReport:
    report = verified(directory, first_only=False)
    first = verified(directory)
    assert (report.verdict, report.reason, report.params) == (
        *(first.verdict, first.reason, first.params),
    )
    assert report.position == first.position
    return report


def damages(report: ChainReport) -> list[tuple[object, object]]:
    return [(each.get("file", each.get("entry")), each["cause"]) for each in report.damages]


def test_a_gap_and_a_cut_are_both_named_with_what_is_sound_around_them(tmp_path: Path) -> None:
    directory = lay(tmp_path / "archive")
    drop(directory, 2, 3)
    cut(directory, 6)
    report = judged(directory)
    assert damages(report) == [
        (file_name(2), "FILE_MISSING"),
        (file_name(6), "FRAME_TRUNCATED"),
    ]
    assert report.damages[0]["missing"] == 2
    assert report.runs == ((1, 1), (4, 5), (7, 8))


def test_a_batch_rewritten_by_somebody_breaks_the_link_after_it(tmp_path: Path) -> None:
    directory = lay(tmp_path / "archive")
    other = lay(tmp_path / "other", {3: with_header(writer="somebody else")})
    (directory / file_name(3)).write_bytes((other / file_name(3)).read_bytes())
    cut(directory, 7)
    report = judged(directory)
    assert damages(report) == [
        (file_name(4), "PREV_MISMATCH"),
        (file_name(7), "FRAME_TRUNCATED"),
    ]
    assert report.runs == ((1, 3), (4, 6), (8, 8))


def test_a_batch_that_is_damaged_and_does_not_follow_is_not_called_sound(tmp_path: Path) -> None:
    spoil: dict[int, Callable[[Page], Page]] = {
        4: lambda it: with_end(raw_bytes=1)(with_header(prev="0" * 64)(it)),
        6: with_header(seq=9),
    }
    report = judged(lay(tmp_path / "archive", spoil))
    assert damages(report) == [
        (file_name(4), "PREV_MISMATCH"),
        (file_name(4), "RAW_BYTES_MISMATCH"),
        (file_name(6), "SEQ_MISMATCH"),
    ]
    assert report.runs == ((1, 3), (5, 5), (7, 8))


def test_files_past_the_end_are_all_named(tmp_path: Path) -> None:
    directory = lay(tmp_path / "archive")
    for number in (9, 12):
        (directory / file_name(number)).write_bytes(b"x")
    report = judged(directory)
    assert damages(report) == [(file_name(n), "FILE_AFTER_FINAL") for n in (9, 12)]
    assert report.runs == ((1, 8),)


def test_every_stranger_is_named_and_the_chain_still_verified(tmp_path: Path) -> None:
    directory = lay(tmp_path / "archive")
    for number in range(150):
        (directory / f"notes {number:03d}").touch()
    cut(directory, 4)
    report = verified(directory, first_only=False)
    assert report.verdict is Verdict.BROKEN
    assert damages(report)[:DAMAGES_MAX] == [
        (f"notes {number:03d}", "ENTRY_FOREIGN") for number in range(DAMAGES_MAX)
    ]
    assert damages(report)[DAMAGES_MAX:] == [(file_name(4), "FRAME_TRUNCATED")]
    assert report.damages_left_out == 50
    assert report.runs == ((1, 3), (5, 8))


def test_what_file_systems_and_desktops_leave_is_no_damage(tmp_path: Path) -> None:
    directory = lay(tmp_path / "archive")
    for name in LEFT:
        (directory / name).touch()
    report = judged(directory)
    assert (report.verdict, report.harmless) == (Verdict.CONSISTENT, tuple(sorted(LEFT)))
    answer = verdict.chain(report, str(directory))
    assert (answer["harmless"], answer["damages"]) == (sorted(LEFT), [])


@pytest.mark.parametrize("name", ["README", ".nfs", "x.DS_Store", ".hidden", "000001.sql.zst~"])
def test_what_anybody_could_have_made_is_a_stranger(name: str) -> None:
    assert not is_harmless(name)
