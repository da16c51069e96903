"""The reader's side of a chain: streams of stored bytes in, a verdict out.

It shares the names of the format with the writer and none of its encoding: a verifier built on
the writer's code would agree with the writer's mistakes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from shared.chain.batch import (
    END_MARK,
    HEADER_MARK,
    PREAMBLE,
    End,
    Header,
    begin_lines,
    commit_line,
    copy_line,
    done_line,
    file_name,
)
from shared.chain.canonical import canonical_json, parse_json, sha256_hex
from shared.chain.frame import decompressed
from shared.chain.manifest import FORMAT, MANIFEST_NAME, Cursor, Manifest, parse_manifest
from shared.chain.text import LastRow, Text, copy_text, count_rows
from shared.chain.verdict import Broken, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_PRINTABLE = re.compile(rb"[ -~]*")


@dataclass(frozen=True)
class Position:
    """Where a walk along a chain stands: all that is needed to verify the next file.

    `seq` and `tail` are those of the last verified file (0 and the manifest's digest before the
    first batch); `roots`, `rows` and `bytes` (as stored) are totals over the batches so far.
    """

    seq: int
    tail: str
    after: Cursor | None
    roots: int
    rows: int
    bytes: int
    final: bool

    def to_json(self) -> dict[str, object]:
        """Give the position as a JSON object, to be stored between two steps of a walk."""
        return {**asdict(self), "after": None if self.after is None else list(self.after)}

    @staticmethod
    def from_json(value: Mapping[str, object]) -> Position:
        """Read what `to_json` gave; raises ValueError for anything else."""
        return _position(value)


@dataclass(frozen=True)
class BatchProof:
    """What a verified batch file says and weighs; `bytes` as stored."""

    header: Header
    end: End
    sha256: str
    bytes: int


@dataclass(frozen=True)
class ChainReport:
    """The verdict about a chain and how far the walk came.

    `reason` and `params` are set when the verdict is BROKEN, `params["file"]` naming the file.
    `position` is the last that verified. `anchored`: the expected tail was met. `unrecorded`:
    numbers of the files past it.
    """

    verdict: Verdict
    reason: Reason | None
    params: Mapping[str, object]
    position: Position | None
    unrecorded: tuple[int, ...]
    manifest: Manifest | None
    anchored: bool


def start(manifest_bytes: bytes) -> tuple[Manifest, Position]:
    """Begin a walk at the manifest; raises Broken."""
    manifest = parse_manifest(manifest_bytes)
    tail = sha256_hex(manifest_bytes)
    return manifest, Position(0, tail, manifest.window.after, 0, 0, 0, final=False)


def verify_batch(
    manifest: Manifest, position: Position, chunks: Iterable[bytes]
) -> tuple[BatchProof, Position]:
    """Verify one file as the next of the chain, from its stored bytes in order.

    Raises Broken. What `chunks` raises passes through: bytes that could not be read prove
    nothing.
    """
    if position.final:
        raise Broken(Reason.FILE_AFTER_FINAL, final=position.seq)
    stored = _Stored(chunks)
    text = Text(decompressed(stored))
    header = read_header(text)
    _check_header(header, manifest, position)
    check_beginning(text, header)
    last_root = _last_root(manifest)
    rows, raw_bytes = _count_blocks(text, manifest, last_root)
    final = _read_guard(text, header)
    end = _read_end(text)
    if end.final != final:
        raise Broken(Reason.GUARD_MISMATCH, place="end")
    _check_counts(end, manifest, rows, raw_bytes)
    _check_last(end, header, manifest, last_root)
    if not text.finished():
        raise Broken(Reason.TEXT_TRAILING)
    proof = BatchProof(header, end, stored.digest.hexdigest(), stored.size)
    return proof, Position(
        seq=header.seq,
        tail=proof.sha256,
        after=end.last,
        roots=position.roots + end.roots,
        rows=position.rows + sum(rows.values()),
        bytes=position.bytes + proof.bytes,
        final=end.final,
    )


def verify_chain(
    manifest_bytes: bytes,
    batches: Iterable[tuple[int, Iterable[bytes]]],
    *,
    expected_sha256: str | None = None,
    passed: Callable[[BatchProof], None] = lambda _: None,
) -> ChainReport:
    """Judge a whole chain: its manifest, and its batch files by ascending number.

    `expected_sha256` is the tail kept elsewhere. Files past it must still continue the chain:
    then they are unrecorded, otherwise the chain is broken. `passed` is told of each batch.
    """
    manifest: Manifest | None = None
    position: Position | None = None
    anchor: int | None = None
    file = MANIFEST_NAME
    try:
        manifest, position = start(manifest_bytes)
        anchor = 0 if position.tail == expected_sha256 else None
        for seq, chunks in batches:
            _check_sequence(position, seq)
            file = file_name(seq)
            proof, position = verify_batch(manifest, position, chunks)
            anchor = seq if position.tail == expected_sha256 else anchor
            passed(proof)
        _check_anchor(anchor, expected_sha256, position)
    except Broken as broken:
        params = {"file": file, **broken.params}
        return ChainReport(
            Verdict.BROKEN, broken.reason, params, position, (), manifest, anchor is not None
        )
    unrecorded = () if anchor is None else tuple(range(anchor + 1, position.seq + 1))
    verdict = _verdict(anchored=anchor is not None, unrecorded=unrecorded, final=position.final)
    return ChainReport(verdict, None, {}, position, unrecorded, manifest, anchor is not None)


def _verdict(*, anchored: bool, unrecorded: tuple[int, ...], final: bool) -> Verdict:
    if unrecorded:
        return Verdict.UNRECORDED
    if not final:
        return Verdict.UNFINISHED
    return Verdict.SOUND if anchored else Verdict.CONSISTENT


def _check_sequence(position: Position, seq: int) -> None:
    if position.final:
        raise Broken(Reason.FILE_AFTER_FINAL, file=file_name(seq), final=position.seq)
    if seq != position.seq + 1:
        raise Broken(Reason.FILE_MISSING, file=file_name(position.seq + 1), found=seq)


def _check_anchor(anchor: int | None, expected: str | None, position: Position) -> None:
    if expected is not None and anchor is None:
        raise Broken(Reason.TAIL_NOT_FOUND, expected=expected, tail=position.tail)


class _Stored:
    """The stored bytes on their way to the decompressor, hashed and counted as they pass."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.digest = hashlib.sha256()
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.digest.update(chunk)
            self.size += len(chunk)
            yield chunk


def read_header(text: Text) -> Header:
    """Take the first line of a batch; raises Broken."""
    value = _marked_json(text.line(), HEADER_MARK, "header", Reason.HEADER_INVALID)
    version = value.get("format")
    if type(version) is not int:
        raise Broken(Reason.HEADER_INVALID, problem="format")
    if version != FORMAT:
        raise Broken(Reason.FORMAT_UNKNOWN, place="header", format=version)
    if value.keys() != {"format", "job", "seq", "prev", "after", "writer"}:
        raise Broken(Reason.HEADER_INVALID, problem="members")
    job, seq, prev, writer = (value[name] for name in ("job", "seq", "prev", "writer"))
    if not (isinstance(job, str) and isinstance(prev, str) and isinstance(writer, str)):
        raise Broken(Reason.HEADER_INVALID, problem="type")
    if type(seq) is not int:
        raise Broken(Reason.HEADER_INVALID, problem="type")
    return Header(job, seq, prev, _cursor(value["after"], Reason.HEADER_INVALID), writer)


def check_beginning(text: Text, header: Header) -> None:
    """Take the lines between header and first table; raises Broken unless they are those of the format."""
    if text.take(len(PREAMBLE)) != PREAMBLE:
        raise Broken(Reason.PREAMBLE_MISMATCH)
    guard = begin_lines(header.job, header.seq)
    if text.take(len(guard)) != guard:
        raise Broken(Reason.GUARD_MISMATCH, place="beginning")


def _check_header(header: Header, manifest: Manifest, position: Position) -> None:
    if header.job != manifest.job:
        raise Broken(Reason.JOB_MISMATCH, expected=manifest.job, found=header.job)
    if header.seq != position.seq + 1:
        raise Broken(Reason.SEQ_MISMATCH, expected=position.seq + 1, found=header.seq)
    if header.prev != position.tail:
        raise Broken(Reason.PREV_MISMATCH, expected=position.tail, found=header.prev)
    if header.after != position.after:
        raise Broken(Reason.AFTER_MISMATCH, expected=position.after, found=header.after)


def _count_blocks(text: Text, manifest: Manifest, last_root: LastRow) -> tuple[dict[str, int], int]:
    rows: dict[str, int] = {}
    raw_bytes = 0
    for index, table in enumerate(manifest.tables):
        opening = copy_line(table)
        if text.take(len(opening)) != opening:
            raise Broken(Reason.COPY_MISMATCH, table=table.label)
        watched = last_root if index == 0 else LastRow(frozenset())
        try:
            counted, size = count_rows(text, len(table.copied), watched)
        except Broken as broken:
            raise Broken(broken.reason, table=table.label, **broken.params) from None
        rows[table.label] = counted
        raw_bytes += size
    return rows, raw_bytes


def _read_guard(text: Text, header: Header) -> bool:
    """Take the lines between last table and end line, and tell whether they call the batch final."""
    found = text.line() + b"\n" + text.line() + b"\n"
    for final in (False, True):
        if found == done_line(header.job, header.seq, final=final) + commit_line(final=final):
            return final
    raise Broken(Reason.GUARD_MISMATCH, place="end")


def _read_end(text: Text) -> End:
    value = _marked_json(text.line(), END_MARK, "end", Reason.END_INVALID)
    if value.keys() != {"roots", "rows", "raw_bytes", "last", "final"}:
        raise Broken(Reason.END_INVALID, problem="members")
    roots, rows, raw_bytes, final = (
        value[name] for name in ("roots", "rows", "raw_bytes", "final")
    )
    if type(roots) is not int or type(raw_bytes) is not int or not isinstance(final, bool):
        raise Broken(Reason.END_INVALID, problem="type")
    if not isinstance(rows, dict) or any(type(count) is not int for count in rows.values()):
        raise Broken(Reason.END_INVALID, problem="type")
    last = _cursor(value["last"], Reason.END_INVALID)
    return End(roots, tuple(rows.items()), raw_bytes, last, final)


def _check_counts(end: End, manifest: Manifest, rows: Mapping[str, int], raw_bytes: int) -> None:
    if dict(end.rows) != rows:
        raise Broken(Reason.ROWS_MISMATCH, counted=dict(rows), claimed=dict(end.rows))
    counted_roots = rows[manifest.root.label]
    if end.roots != counted_roots:
        raise Broken(Reason.ROOTS_MISMATCH, counted=counted_roots, claimed=end.roots)
    if end.raw_bytes != raw_bytes:
        raise Broken(Reason.RAW_BYTES_MISMATCH, counted=raw_bytes, claimed=end.raw_bytes)


def _check_last(end: End, header: Header, manifest: Manifest, last_root: LastRow) -> None:
    """Hold the cursor against the rows: the next page starts where it says."""
    if end.roots == 0:
        if end.last != header.after:
            raise Broken(Reason.LAST_MISMATCH, problem="moved_without_roots")
        return
    if end.last is None or len(end.last) != 1 + len(manifest.key):
        raise Broken(Reason.LAST_MISMATCH, problem="length")
    if end.last == header.after:
        raise Broken(Reason.LAST_MISMATCH, problem="not_moved")
    for text, column in zip(end.last, _ordering(manifest), strict=True):
        if column is not None and last_root.fields.get(column) != copy_text(text):
            raise Broken(Reason.LAST_MISMATCH, problem="not_last_root", last=end.last)


def _ordering(manifest: Manifest) -> tuple[int | None, ...]:
    """Give the places of time and key in a root's row; None for a generated column."""
    copied = manifest.root.copied
    return tuple(
        copied.index(name) if name in copied else None for name in (manifest.time, *manifest.key)
    )


def _last_root(manifest: Manifest) -> LastRow:
    return LastRow(frozenset(place for place in _ordering(manifest) if place is not None))


def _marked_json(line: bytes, mark: bytes, place: str, reason: Reason) -> dict[str, object]:
    # Printable ASCII alone: a raw carriage return would end the comment for psql.
    if not line.startswith(mark) or not _PRINTABLE.fullmatch(line):
        raise Broken(reason, problem="line")
    spelled = line[len(mark) :]
    value = parse_json(spelled, place=place)
    if not isinstance(value, dict):
        raise Broken(reason, problem="type")
    if canonical_json(value) != spelled:
        raise Broken(reason, problem="not_canonical")
    return value


def _cursor(value: object, reason: Reason) -> Cursor | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise Broken(reason, problem="cursor")
    # No text of a database holds U+0000, and none could be given one to keep.
    if not all(isinstance(text, str) and "\0" not in text for text in value):
        raise Broken(reason, problem="cursor")
    return tuple(value)


def _position(value: Mapping[str, object]) -> Position:
    wrong = ValueError("position", value)
    if value.keys() != Position.__dataclass_fields__.keys():
        raise wrong
    seq, roots, rows, size = (value[name] for name in ("seq", "roots", "rows", "bytes"))
    if type(seq) is not int or type(roots) is not int:
        raise wrong
    if type(rows) is not int or type(size) is not int:
        raise wrong
    tail, final = value["tail"], value["final"]
    if not isinstance(tail, str) or not isinstance(final, bool):
        raise wrong
    try:
        after = _cursor(value["after"], Reason.JSON_INVALID)
    except Broken:
        raise wrong from None
    return Position(seq, tail, after, roots, rows, size, final)
