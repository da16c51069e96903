"""One test per way to damage or forge a chain: each is broken, for its own reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from shared.chain.batch import PREAMBLE, commit_line, done_line, file_name
from shared.chain.canonical import sha256_hex
from shared.chain.verdict import Reason, Verdict
from shared.chain.verify import ChainReport, verify_chain
from tests.unit.chain.scribe import (
    JOB,
    MANIFEST,
    OTHER_JOB,
    PAGES,
    Page,
    chain,
    framed,
    numbered,
    page,
    stored,
    with_end,
    with_header,
    with_rows,
)


def report_of(files: list[bytes], manifest: bytes | None = None) -> ChainReport:
    return verify_chain(manifest or chain()[0], numbered(files))


def reason_of(files: list[bytes], file: str = "000001.sql.zst") -> Reason | None:
    report = report_of(files)
    assert report.verdict is Verdict.BROKEN
    assert report.params["file"] == file
    return report.reason


def spoiled(seq: int, spoil: Callable[[Page], Page]) -> list[bytes]:
    return chain(spoil={seq: spoil})[1]


def text_of_first() -> bytes:
    manifest_bytes = chain()[0]
    return page(MANIFEST, 1, sha256_hex(manifest_bytes), None, PAGES[0], final=False).text()


def first(old: bytes, new: bytes) -> list[bytes]:
    """Batch 1 with some bytes of its text exchanged."""
    text = text_of_first()
    assert text.count(old) >= 1
    return [stored(text.replace(old, new, 1))]


# Files as a whole


@pytest.mark.parametrize("size", [0, 1, 12, 13, 40, -1])
def test_a_cut_file_is_broken(size: int) -> None:
    assert reason_of([chain()[1][0][:size]]) is Reason.FRAME_TRUNCATED


def test_a_dropped_file_breaks_the_next_one() -> None:
    files = chain()[1]
    assert reason_of([files[0], files[2]], "000002.sql.zst") is Reason.SEQ_MISMATCH


def test_swapped_files_are_broken() -> None:
    files = chain()[1]
    assert reason_of([files[1], files[0], files[2]]) is Reason.SEQ_MISMATCH


def test_a_repeated_file_is_broken() -> None:
    files = chain()[1]
    assert reason_of([files[0], files[0]], "000002.sql.zst") is Reason.SEQ_MISMATCH


def test_a_file_spliced_in_from_another_job_is_broken() -> None:
    files = chain()[1]
    other = chain(replace(MANIFEST, job=OTHER_JOB))[1]
    assert reason_of([files[0], other[1]], "000002.sql.zst") is Reason.JOB_MISMATCH


def test_a_file_rewritten_in_the_middle_breaks_the_next_one() -> None:
    files = chain()[1]
    rewritten = chain(pages=((PAGES[0][0], b""), *PAGES[1:]))[1]
    assert reason_of([rewritten[0], files[1]], "000002.sql.zst") is Reason.PREV_MISMATCH


def test_another_manifest_breaks_the_first_batch() -> None:
    manifest, _ = chain(replace(MANIFEST, batch_size=3))
    assert report_of(chain()[1], manifest).reason is Reason.PREV_MISMATCH


# The frame


def test_trailing_bytes_are_broken() -> None:
    assert reason_of([chain()[1][0] + b"\0"]) is Reason.FRAME_TRAILING


def test_trailing_bytes_are_broken_also_when_they_come_alone() -> None:
    manifest, files = chain()
    report = verify_chain(manifest, [(1, [files[0], b"", b"\0"])])
    assert report.reason is Reason.FRAME_TRAILING


def test_an_appended_frame_is_broken() -> None:
    files = chain()[1]
    assert reason_of([files[0] + files[1]]) is Reason.FRAME_TRAILING


def test_an_appended_skippable_frame_is_broken() -> None:
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00note"
    assert reason_of([chain()[1][0] + skippable]) is Reason.FRAME_TRAILING
    assert reason_of([skippable + chain()[1][0]]) is Reason.FRAME_INVALID


def test_bytes_that_are_no_frame_are_broken() -> None:
    assert reason_of([text_of_first()]) is Reason.FRAME_INVALID


def test_a_flipped_bit_is_broken_by_the_checksum_of_the_frame() -> None:
    data = bytearray(chain()[1][0])
    data[-1] ^= 1
    assert reason_of([bytes(data)]) is Reason.FRAME_INVALID


# Header, preamble, blocks


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"job": OTHER_JOB}, Reason.JOB_MISMATCH),
        ({"seq": 2}, Reason.SEQ_MISMATCH),
        ({"prev": "0" * 64}, Reason.PREV_MISMATCH),
        ({"after": ("2026-01-01 00:00:00+00", "0")}, Reason.AFTER_MISMATCH),
    ],
)
def test_a_batch_that_belongs_elsewhere_is_broken(
    change: dict[str, object], reason: Reason
) -> None:
    assert reason_of(spoiled(1, with_header(**change))) is reason


def test_a_batch_that_starts_elsewhere_than_the_last_one_ended_is_broken() -> None:
    files = spoiled(2, with_header(after=("2026-01-01 09:00:00+00", "1")))
    assert reason_of(files, "000002.sql.zst") is Reason.AFTER_MISMATCH


def test_a_format_of_the_future_has_its_own_reason() -> None:
    assert reason_of(first(b'"format":1', b'"format":2')) is Reason.FORMAT_UNKNOWN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"-- tallystick ", b"-- tallystack "),
        (b'"format":1', b'"format":true'),
        (b'"seq":1', b'"seq":"1"'),
        (b'"seq":1', b'"seq":true'),
        (b'"after":null', b'"after":{}'),
        (b'"after":null', b'"after":[1]'),
        (b'"after":null', b'"after": null'),
        (b'"after":null,', b""),
        (b'"writer":"tallystick 0.1.0"', b'"writer":1'),
        (b"0.1.0", b"0.1.0\r"),
        (b"0.1.0", "0.1.\u2028".encode()),
        (b'"writer":"tallystick 0.1.0"}', b'"writer":"x","zeal":1}'),
    ],
)
def test_a_header_of_another_shape_is_broken(old: bytes, new: bytes) -> None:
    assert reason_of(first(old, new)) is Reason.HEADER_INVALID


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"seq":1', b'"seq":1,"seq":1'),
        (b'"seq":1', b'"seq":1.0'),
        (b'"seq":1', b'"seq":NaN'),
        (b'"}', b'"}}'),
        (b"0.1.0", b"\\ud800"),
    ],
)
def test_a_header_with_two_readings_is_broken(old: bytes, new: bytes) -> None:
    assert reason_of(first(old, new)) is Reason.JSON_INVALID


def test_a_header_without_end_is_broken_before_it_fills_the_memory() -> None:
    text = b"-- tallystick " + b" " * (17 * 1024 * 1024)
    assert reason_of([stored(text)]) is Reason.LINE_TOO_LONG
    assert reason_of([stored(text + b"\n")]) is Reason.LINE_TOO_LONG


def test_an_edited_preamble_is_broken() -> None:
    assert (
        reason_of(first(b"row_security = off", b"row_security = on ")) is Reason.PREAMBLE_MISMATCH
    )


def test_a_command_slipped_in_between_preamble_and_rows_is_broken() -> None:
    files = spoiled(1, lambda it: replace(it, preamble=PREAMBLE + b"COMMIT;\n"))
    assert reason_of(files) is Reason.GUARD_MISMATCH
    files = spoiled(1, lambda it: replace(it, guard=it.guard + b"\\! id\n"))
    assert reason_of(files) is Reason.COPY_MISMATCH


@pytest.mark.parametrize("seq", [1, 2, 3])
@pytest.mark.parametrize("old", [b"begun", b"job", b"SAVEPOINT", b"RAISE", b"true", JOB.encode()])
def test_guards_that_would_let_a_gap_pass_are_broken(seq: int, old: bytes) -> None:
    file = file_name(seq)
    for part in ("guard", "done"):

        def edit(it: Page, part: str = part) -> Page:
            return replace(it, **{part: getattr(it, part).replace(old, b"x")})

        edited = spoiled(seq, edit)
        if edited != chain()[1]:
            assert reason_of(edited, file) is Reason.GUARD_MISMATCH
    no_guard = spoiled(seq, lambda it: replace(it, guard=b""))
    assert reason_of(no_guard, file) is Reason.GUARD_MISMATCH
    left_out = spoiled(seq, lambda it: replace(it, done=b""))
    assert reason_of(left_out, file) is Reason.GUARD_MISMATCH


@pytest.mark.parametrize("seq", [1, 3])
def test_lines_that_commit_what_the_end_line_does_not_call_final_are_broken(seq: int) -> None:
    other = seq != 3
    wrong = commit_line(final=other)
    both = {"commit": wrong, "done": done_line(JOB, seq, final=other)}
    for change in ({"commit": wrong}, both):
        files = spoiled(seq, partial(replace, **change))
        assert reason_of(files, file_name(seq)) is Reason.GUARD_MISMATCH


def test_a_block_of_another_table_is_broken() -> None:
    files = spoiled(1, lambda it: replace(it, blocks=(it.blocks[1], it.blocks[0])))
    assert reason_of(files) is Reason.COPY_MISMATCH


def test_a_block_left_out_is_broken() -> None:
    files = spoiled(1, lambda it: replace(it, blocks=it.blocks[:1]))
    assert reason_of(files) is Reason.COPY_MISMATCH


# Rows


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (b"1\tok\n2\tok\textra\n", Reason.ROW_COLUMNS),
        (b"1\tok\n2\n", Reason.ROW_COLUMNS),
        (b"1\tok\textra\n2\n", Reason.ROW_COLUMNS),
        (b"1\tok\n\n", Reason.ROW_COLUMNS),
        (b"1\tok\r\n", Reason.ROW_CONTROL),
        (b"1\to\0k\n", Reason.ROW_CONTROL),
        (b"1\tok\\\n", Reason.ROW_ESCAPE),
        (b"1\\\tok\n", Reason.ROW_ESCAPE),
        (b"1\tok\\\\\\\n", Reason.ROW_ESCAPE),
        (b"1\tok\\.\n", Reason.ROW_ESCAPE),
    ],
)
def test_rows_that_another_reader_would_count_differently_are_broken(
    rows: bytes, reason: Reason
) -> None:
    report = report_of(spoiled(1, with_rows(1, rows)))
    assert report.reason is reason
    assert report.params["table"] == 'app."Task attempts"'


def test_the_row_at_fault_is_numbered() -> None:
    report = report_of(spoiled(1, with_rows(1, b"1\tok\n2\tok\n3\n")))
    assert report.params["row"] == 3


@pytest.mark.parametrize("rows", [PAGES[0][1] + b"9\tok\n", b""])
def test_rows_added_or_removed_without_the_end_line_knowing_are_broken(rows: bytes) -> None:
    assert reason_of(spoiled(1, with_rows(1, rows))) is Reason.ROWS_MISMATCH


def test_a_value_changed_in_length_without_the_end_line_knowing_is_broken() -> None:
    rows = PAGES[0][1].replace(b"ok", b"okay", 1)
    assert reason_of(spoiled(1, with_rows(1, rows))) is Reason.RAW_BYTES_MISMATCH


def test_a_block_that_never_ends_is_broken() -> None:
    text = text_of_first()
    assert reason_of([stored(text[: text.index(b"\\.\n")])]) is Reason.TEXT_TRUNCATED


# The end line


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"roots": 3}, Reason.ROOTS_MISMATCH),
        ({"rows": (("app.tasks", 2),)}, Reason.ROWS_MISMATCH),
        ({"rows": (("app.tasks", 2), ('app."Task attempts"', 4))}, Reason.ROWS_MISMATCH),
        ({"raw_bytes": 1}, Reason.RAW_BYTES_MISMATCH),
        ({"last": None}, Reason.LAST_MISMATCH),
        ({"last": ("2026-01-01 09:30:00+00",)}, Reason.LAST_MISMATCH),
        ({"last": ("2026-01-01 09:30:00+00", "9")}, Reason.LAST_MISMATCH),
        ({"last": ("2026-01-01 09:00:00+00", "2")}, Reason.LAST_MISMATCH),
    ],
)
def test_an_edited_end_line_is_broken(change: dict[str, object], reason: Reason) -> None:
    assert reason_of(spoiled(1, with_end(**change))) is reason


def test_a_batch_without_roots_cannot_move_the_cursor() -> None:
    files = spoiled(3, with_end(last=("2026-01-02 10:00:00+00", "4")))
    assert reason_of(files, "000003.sql.zst") is Reason.LAST_MISMATCH


def test_a_batch_that_ends_where_it_started_has_repeated_its_rows() -> None:
    at = ("2026-01-01 09:30:00+00", "2")
    files = chain(pages=(PAGES[0], PAGES[0]), spoil={2: with_header(after=at)})[1]
    report = report_of(files)
    assert report.reason is Reason.LAST_MISMATCH
    assert report.params["problem"] == "not_moved"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"-- end ", b"-- End "),
        (b'"final":false', b'"final":0'),
        (b'"final":false,', b""),
        (b'"roots":2', b'"roots":"2"'),
        (b'"raw_bytes":', b'"raw_bytes": '),
        (b'"app.tasks":2', b'"app.tasks":true'),
        (b'"last":[', b'"last":[null,'),
    ],
)
def test_an_end_line_of_another_shape_is_broken(old: bytes, new: bytes) -> None:
    assert reason_of(first(old, new)) is Reason.END_INVALID


def test_a_table_counted_twice_in_the_end_line_is_broken() -> None:
    files = first(b'"app.tasks":2', b'"app.tasks":1,"app.tasks":2')
    assert reason_of(files) is Reason.JSON_INVALID


def test_a_missing_end_line_is_broken() -> None:
    text = text_of_first()
    assert reason_of([stored(text[: text.index(b"-- end")])]) is Reason.TEXT_TRUNCATED
    assert reason_of([stored(text[:-1])]) is Reason.TEXT_TRUNCATED


@pytest.mark.parametrize("more", [b"\n", b"DROP TABLE app.tasks;\n", b" " * 3_000_000])
def test_anything_past_the_end_line_is_broken(more: bytes) -> None:
    assert reason_of([stored(text_of_first() + more)]) is Reason.TEXT_TRAILING


def test_the_chain_is_judged_by_stored_bytes_and_not_by_what_they_decompress_to() -> None:
    _, files = chain()
    again = framed(text_of_first(), compression_level=9)
    assert again != files[0]
    assert reason_of([again, *files[1:]], "000002.sql.zst") is Reason.PREV_MISMATCH


def test_header_and_end_line_are_one_line_each_whatever_the_cursor_holds() -> None:
    rows = b"7\tx\tline\\r\\nbreak\\t\\b\\f\\v\\\\ \xc3\xa9\n"
    manifest, files = chain(pages=((rows, b""), (b"", b"")))
    report = verify_chain(manifest, numbered(files))
    assert report.verdict is Verdict.CONSISTENT
    assert report.position is not None
    assert report.position.after == ("line\r\nbreak\t\b\f\v\\ é", "7")
    assert json.dumps(report.position.to_json())
