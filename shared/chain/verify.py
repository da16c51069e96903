"""The reader's side of a chain: streams of stored bytes in, a verdict out.

It shares the names of the format with the writer and none of its encoding: a verifier built on
the writer's code would agree with the writer's mistakes.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from shared.chain.batch import (
    End,
    Header,
    copy_line,
    file_name,
)
from shared.chain.canonical import sha256_hex
from shared.chain.frame import decompressed
from shared.chain.lines import check_beginning, cursor, read_end, read_guard, read_header
from shared.chain.manifest import MANIFEST_NAME, Cursor, Manifest, parse_manifest
from shared.chain.text import LastRow, Text, copy_text, count_rows
from shared.chain.verdict import Broken, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# So many damages of one archive are named; the others are counted.
DAMAGES_MAX = 100
LINKS = frozenset({Reason.PREV_MISMATCH, Reason.AFTER_MISMATCH})
# The tail of a position after a damage: no digest, so no file can be said to follow from it.
UNKNOWN = ""


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
    `position` is the last that verified before any damage. `anchored`: the expected tail was met.
    `unrecorded`: numbers of the files past it. `damages` are all that were found, each with `file` or
    `entry` and `cause`, the first DAMAGES_MAX of them. `runs` are first and last numbers of batches that
    verified and follow from one another. `harmless`: entries that file systems and desktops leave.
    """

    verdict: Verdict
    reason: Reason | None
    params: Mapping[str, object]
    position: Position | None
    unrecorded: tuple[int, ...]
    manifest: Manifest | None
    anchored: bool
    damages: tuple[Mapping[str, object], ...] = ()
    damages_left_out: int = 0
    runs: tuple[tuple[int, int], ...] = ()
    harmless: tuple[str, ...] = ()


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
    final = read_guard(text, header)
    end = read_end(text)
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
    first_only: bool = True,
) -> ChainReport:
    """Judge a whole chain: its manifest, and its batch files by ascending number.

    `expected_sha256` is the tail kept elsewhere. Files past it must still continue the chain:
    then they are unrecorded, otherwise the chain is broken. `passed` is told of each batch before the
    first damage. With `first_only` nothing is read after it; else the bytes of a batch may be iterated
    twice.
    """
    manifest: Manifest | None = None
    position: Position | None = None
    anchor: int | None = None
    runs = Runs()
    file, rest = MANIFEST_NAME, iter(batches)
    at: list[tuple[int, Iterable[bytes]]] = []
    failure: Broken | None = None
    try:
        manifest, position = start(manifest_bytes)
        anchor = 0 if position.tail == expected_sha256 else None
        for seq, chunks in rest:
            at = [(seq, chunks)]
            _check_sequence(position, seq)
            file = file_name(seq)
            proof, position = verify_batch(manifest, position, chunks)
            anchor = seq if position.tail == expected_sha256 else anchor
            runs.add(seq)
            passed(proof)
        at = []
        _check_anchor(anchor, expected_sha256, position)
    except Broken as broken:
        # A new one: the frames that the old one leads to hold what was read.
        failure = Broken(broken.reason, **{"file": file, **broken.params})
    if failure is not None:
        report = ChainReport(
            Verdict.BROKEN,
            failure.reason,
            failure.params,
            position,
            (),
            manifest,
            anchor is not None,
        )
        return _with_damages(report, failure, () if first_only or not at else chain(at, rest), runs)
    assert position is not None  # noqa: S101 - only a broken chain has none
    unrecorded = () if anchor is None else tuple(range(anchor + 1, position.seq + 1))
    verdict = _verdict(anchored=anchor is not None, unrecorded=unrecorded, final=position.final)
    return ChainReport(
        verdict, None, {}, position, unrecorded, manifest, anchor is not None, runs=runs.all()
    )


def damage_of(broken: Broken) -> dict[str, object]:
    """Return a damage as it is stored and listed: what is said of it, and its cause."""
    return {**broken.params, "cause": str(broken.reason)}


def unlinked(position: Position, seq: int) -> Position:
    """Return the position after a damage that reaches up to file `seq`.

    What the next file says of its predecessor is then believed. Its own bytes, and whether the files
    after it follow from it, are still verified.
    """
    return replace(position, seq=seq, tail=UNKNOWN)


def verify_on(
    manifest: Manifest, position: Position, seq: int, chunks: Iterable[bytes]
) -> tuple[BatchProof | None, Position, list[Broken]]:
    """Verify file `seq` past any damage; return it if it is sound, where to go on, and every damage.

    `chunks` are iterated twice where the file does not follow from the one before.
    """
    damages: list[Broken] = []
    file = file_name(seq)
    if seq != position.seq + 1 and not position.final:
        missing = {"found": seq, "missing": seq - position.seq - 1}
        damages.append(Broken(Reason.FILE_MISSING, file=file_name(position.seq + 1), **missing))
        position = unlinked(position, seq - 1)
    for _ in range(2):
        try:
            return *verify_batch(manifest, position, chunks), damages
        except Broken as broken:
            damages.append(Broken(broken.reason, **{"file": file, **broken.params}))
            if broken.reason not in LINKS:
                break
        position = unlinked(position, seq - 1)
    return None, unlinked(position, seq), damages


def _with_damages(
    report: ChainReport,
    first: Broken,
    batches: Iterable[tuple[int, Iterable[bytes]]],
    runs: Runs,
) -> ChainReport:
    """Verify `batches`, which begin with the first damaged file, and add everything that is found."""
    manifest, position = report.manifest, report.position
    found: list[dict[str, object]] = []
    count = 0
    if manifest is not None and position is not None:
        at = position
        for seq, chunks in batches:
            proof, at, damages = verify_on(manifest, at, seq, chunks)
            count += len(damages)
            found += map(damage_of, damages[: max(0, DAMAGES_MAX - len(found))])
            if proof is not None:
                runs.add(seq, linked=not damages)
    return replace(
        report,
        damages=tuple(found) or (damage_of(first),),
        damages_left_out=count - len(found),
        runs=runs.all(),
    )


class Runs:
    """Stretches of sound batches, each following from the one before it."""

    def __init__(self) -> None:
        """Begin with none."""
        self._runs: list[tuple[int, int]] = []

    def add(self, seq: int, *, linked: bool = True) -> None:
        """Add a sound batch; `linked` says that it follows from the file before."""
        if linked and self._runs and self._runs[-1][1] == seq - 1:
            self._runs[-1] = (self._runs[-1][0], seq)
        else:
            self._runs.append((seq, seq))

    def all(self) -> tuple[tuple[int, int], ...]:
        """Return the first DAMAGES_MAX + 1 stretches."""
        return tuple(self._runs[: DAMAGES_MAX + 1])


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


def _check_header(header: Header, manifest: Manifest, position: Position) -> None:
    if header.job != manifest.job:
        raise Broken(Reason.JOB_MISMATCH, expected=manifest.job, found=header.job)
    if header.seq != position.seq + 1:
        raise Broken(Reason.SEQ_MISMATCH, expected=position.seq + 1, found=header.seq)
    if position.tail == UNKNOWN:
        return
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
        after = cursor(value["after"], Reason.JSON_INVALID)
    except Broken:
        raise wrong from None
    return Position(seq, tail, after, roots, rows, size, final)
