"""Which verdict a chain gets, and what the report says beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from shared.chain.canonical import sha256_hex
from shared.chain.verdict import Broken, Reason, Verdict
from shared.chain.verify import Position, start, verify_batch, verify_chain
from tests.unit.chain.scribe import MANIFEST, PAGES, chain, numbered, page, stored


def test_a_finished_chain_that_ends_at_the_expected_tail_is_sound() -> None:
    manifest, files = chain()
    report = verify_chain(manifest, numbered(files), expected_sha256=sha256_hex(files[-1]))
    assert report.verdict is Verdict.SOUND
    assert report.anchored
    assert report.manifest == MANIFEST
    assert report.position == Position(
        seq=3,
        tail=sha256_hex(files[-1]),
        after=("2026-01-02 10:00:00+00", "3"),
        roots=3,
        rows=7,
        bytes=sum(map(len, files)),
        final=True,
    )


def test_without_an_expected_tail_a_finished_chain_is_only_consistent() -> None:
    manifest, files = chain()
    report = verify_chain(manifest, numbered(files))
    assert report.verdict is Verdict.CONSISTENT
    assert not report.anchored


@pytest.mark.parametrize("anchored", [True, False])
def test_a_chain_without_a_final_batch_is_unfinished(anchored: bool) -> None:
    manifest, files = chain(final=False)
    expected = sha256_hex(files[-1]) if anchored else None
    report = verify_chain(manifest, numbered(files), expected_sha256=expected)
    assert report.verdict is Verdict.UNFINISHED
    assert report.anchored is anchored


def test_a_manifest_alone_is_unfinished_and_can_be_the_expected_tail() -> None:
    manifest, _ = chain()
    report = verify_chain(manifest, [], expected_sha256=sha256_hex(manifest))
    assert report.verdict is Verdict.UNFINISHED
    assert report.anchored
    assert report.position is not None
    assert report.position.seq == 0


@pytest.mark.parametrize("recorded", [0, 1, 2])
def test_files_that_go_on_from_the_expected_tail_are_unrecorded(recorded: int) -> None:
    manifest, files = chain()
    tail = sha256_hex([manifest, *files][recorded])
    report = verify_chain(manifest, numbered(files), expected_sha256=tail)
    assert report.verdict is Verdict.UNRECORDED
    assert report.unrecorded == tuple(range(recorded + 1, 4))


def test_a_damaged_file_past_the_expected_tail_is_broken_but_the_anchor_was_met() -> None:
    manifest, files = chain()
    spoiled = [files[0], files[1][:-1]]
    report = verify_chain(manifest, numbered(spoiled), expected_sha256=sha256_hex(files[0]))
    assert report.verdict is Verdict.BROKEN
    assert report.anchored
    assert report.params["file"] == "000002.sql.zst"
    assert report.position is not None
    assert report.position.seq == 1


def test_an_expected_tail_that_is_nowhere_is_broken() -> None:
    manifest, files = chain()
    report = verify_chain(manifest, numbered(files), expected_sha256="0" * 64)
    assert (report.verdict, report.reason) == (Verdict.BROKEN, Reason.TAIL_NOT_FOUND)
    assert report.params["tail"] == sha256_hex(files[-1])


def test_a_chain_whose_end_was_cut_off_is_broken_for_whoever_kept_the_tail() -> None:
    manifest, files = chain()
    tail = sha256_hex(files[-1])
    report = verify_chain(manifest, numbered(files[:-1]), expected_sha256=tail)
    assert report.reason is Reason.TAIL_NOT_FOUND


def test_a_file_after_a_final_batch_is_damage_even_past_the_expected_tail() -> None:
    manifest, files = chain()
    extra = page(
        MANIFEST, 4, sha256_hex(files[-1]), ("2026-01-02 10:00:00+00", "3"), PAGES[0], final=False
    )
    more = [*files, stored(extra.text())]
    report = verify_chain(manifest, numbered(more), expected_sha256=sha256_hex(files[-1]))
    assert report.reason is Reason.FILE_AFTER_FINAL
    assert report.params == {"file": "000004.sql.zst", "final": 3}


def test_a_walk_does_not_go_on_from_a_final_batch() -> None:
    manifest_bytes, files = chain()
    manifest, position = start(manifest_bytes)
    for data in files:
        _, position = verify_batch(manifest, position, [data])
    with pytest.raises(Broken) as caught:
        verify_batch(manifest, position, [files[-1]])
    assert caught.value.reason is Reason.FILE_AFTER_FINAL


def test_a_missing_file_is_named() -> None:
    manifest, files = chain()
    report = verify_chain(manifest, [(1, [files[0]]), (3, [files[2]])])
    assert report.reason is Reason.FILE_MISSING
    assert report.params == {"file": "000002.sql.zst", "found": 3}


def test_a_broken_manifest_leaves_nothing_to_walk() -> None:
    report = verify_chain(b"{}\n", [])
    assert (report.verdict, report.reason) == (Verdict.BROKEN, Reason.MANIFEST_INVALID)
    assert report.params["file"] == "manifest.json"
    assert report.position is None
    assert report.manifest is None


def test_a_failing_read_is_not_a_verdict() -> None:
    manifest, files = chain()

    def failing() -> Iterator[bytes]:
        yield files[0][:20]
        raise OSError(5, "read")

    with pytest.raises(OSError, match="read"):
        verify_chain(manifest, [(1, failing())])


def test_a_walk_can_stop_and_go_on_from_a_stored_position() -> None:
    manifest_bytes, files = chain()
    manifest, position = start(manifest_bytes)
    for data in files:
        position = Position.from_json(position.to_json())
        proof, position = verify_batch(manifest, position, [data])
        assert proof.sha256 == sha256_hex(data)
        assert proof.bytes == len(data)
    assert position.final
    assert position.rows == 7


@pytest.mark.parametrize(
    "change",
    [
        {"seq": True},
        {"tail": None},
        {"after": "x"},
        {"after": [1]},
        {"final": 1},
        {"more": 1},
    ],
)
def test_a_stored_position_of_another_shape_is_refused(change: dict[str, object]) -> None:
    _, position = start(chain()[0])
    with pytest.raises(ValueError, match="position"):
        Position.from_json({**position.to_json(), **change})


def test_the_window_of_the_job_is_the_cursor_of_its_first_batch() -> None:
    begun = ("2025-12-31 00:00:00+00", "0")
    manifest = replace(MANIFEST, window=replace(MANIFEST.window, after=begun))
    manifest_bytes, files = chain(manifest)
    assert verify_chain(manifest_bytes, numbered(files)).verdict is Verdict.CONSISTENT
    _, elsewhere = start(chain()[0])
    assert elsewhere.after is None
