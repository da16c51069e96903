"""Writes small chains for the tests, and lets a test spoil one thing at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from shared.chain.batch import (
    END_OF_ROWS,
    PREAMBLE,
    End,
    Header,
    begin_lines,
    commit_line,
    copy_line,
    done_line,
    end_line,
    header_line,
    unescape,
)
from shared.chain.canonical import sha256_hex
from shared.chain.frame import compressor
from shared.chain.manifest import (
    Column,
    Cursor,
    Manifest,
    Namespace,
    Policy,
    Source,
    Table,
    Window,
    encode_manifest,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

JOB = "0b2f1c9e-8a8b-4d6f-9c57-1f2e3d4c5b6a"
OTHER_JOB = "7d9e4b10-3c55-4f0a-8f5e-2a1b0c9d8e7f"
NAMESPACE = "5f0c3a52-61de-4a3b-9a41-0f6f2f1f7a11"


def column(name: str, kind: str = "text", *, generated: str | None = None) -> Column:
    return Column(name, kind, False, generated, "", None, None)


TASKS = Table(
    schema="app",
    name="tasks",
    parent=None,
    foreign_key=(),
    references=(),
    columns=(
        column("id", "bigint"),
        column("note"),
        column("done_at", "timestamp with time zone"),
        column("loud", generated="upper(note)"),
    ),
)
ATTEMPTS = Table(
    schema="app",
    name="Task attempts",
    parent=0,
    foreign_key=("task_id",),
    references=("id",),
    columns=(column("task_id", "bigint"), column("outcome")),
)
MANIFEST = Manifest(
    job=JOB,
    namespace=Namespace(NAMESPACE, "default"),
    kind="tasks",
    definition={"root": "app.tasks", "batch": 2},
    window=Window(None, "2026-01-03 00:00:00+00", None),
    policy=Policy(4, 365),
    batch_size=2,
    source=Source("shop", "UTF8"),
    tables=(TASKS, ATTEMPTS),
    key=("id",),
    time="done_at",
    previous=None,
)

PAGES: tuple[tuple[bytes, bytes], ...] = (
    (
        b"1\tfirst\t2026-01-01 09:00:00+00\n2\tback\\\\slash\\ttab\t2026-01-01 09:30:00+00\n",
        b"1\tok\n2\t\\N\n2\tok\n",
    ),
    (b"3\t\\\\.\t2026-01-02 10:00:00+00\n", b"3\t\n"),
    (b"", b""),
)


@dataclass(frozen=True)
class Page:
    """One batch before it is compressed, part by part."""

    header: Header
    preamble: bytes
    guard: bytes
    blocks: tuple[tuple[bytes, bytes], ...]
    done: bytes
    commit: bytes
    end: End

    def text(self) -> bytes:
        blocks = b"".join(opening + rows + END_OF_ROWS for opening, rows in self.blocks)
        before = header_line(self.header) + self.preamble + self.guard
        return before + blocks + self.done + self.commit + end_line(self.end)


def cursor_of(manifest: Manifest, rows: bytes) -> Cursor:
    fields = rows.splitlines()[-1].split(b"\t")
    copied = manifest.root.copied
    texts = [unescape(fields[copied.index(name)]) for name in (manifest.time, *manifest.key)]
    return tuple(str(text) for text in texts)


def page(
    manifest: Manifest,
    seq: int,
    prev: str,
    after: Cursor | None,
    rows: tuple[bytes, ...],
    *,
    final: bool,
) -> Page:
    counts = tuple(
        (table.label, block.count(b"\n"))
        for table, block in zip(manifest.tables, rows, strict=True)
    )
    last = cursor_of(manifest, rows[0]) if rows[0] else after
    return Page(
        header=Header(manifest.job, seq, prev, after, "tallystick 0.1.0"),
        preamble=PREAMBLE,
        guard=begin_lines(manifest.job, seq),
        blocks=tuple(
            (copy_line(table), block) for table, block in zip(manifest.tables, rows, strict=True)
        ),
        done=done_line(manifest.job, seq, final=final),
        commit=commit_line(final=final),
        end=End(counts[0][1], counts, sum(map(len, rows)), last, final),
    )


def stored(text: bytes) -> bytes:
    frame = compressor()
    return frame.compress(text) + frame.flush()


def framed(data: bytes, *, declare_size: bool = False, **options: int) -> bytes:
    """One frame by any other writer, with a checksum unless `options` say otherwise."""
    chosen = {
        getattr(zstd.CompressionParameter, name): value
        for name, value in {"checksum_flag": 1, **options}.items()
    }
    if declare_size:
        return zstd.compress(data, options=chosen)
    packed = zstd.ZstdCompressor(options=chosen)
    return packed.compress(data) + packed.flush()


def chain(
    manifest: Manifest = MANIFEST,
    pages: tuple[tuple[bytes, ...], ...] = PAGES,
    *,
    final: bool = True,
    spoil: dict[int, Callable[[Page], Page]] | None = None,
) -> tuple[bytes, list[bytes]]:
    """Write a whole chain; `spoil[seq]` changes that batch, and those after it still link to it."""
    manifest_bytes = encode_manifest(manifest)
    prev, after = sha256_hex(manifest_bytes), manifest.window.after
    files = []
    for seq, rows in enumerate(pages, start=1):
        written = page(manifest, seq, prev, after, rows, final=final and seq == len(pages))
        after = written.end.last
        if spoil and seq in spoil:
            written = spoil[seq](written)
        files.append(stored(written.text()))
        prev = sha256_hex(files[-1])
    return manifest_bytes, files


def numbered(files: list[bytes], first: int = 1) -> Iterator[tuple[int, list[bytes]]]:
    for seq, data in enumerate(files, start=first):
        yield seq, [data]


def with_rows(index: int, rows: bytes) -> Callable[[Page], Page]:
    def spoiled(written: Page) -> Page:
        blocks = list(written.blocks)
        blocks[index] = (blocks[index][0], rows)
        return replace(written, blocks=tuple(blocks))

    return spoiled


def with_header(**changes: object) -> Callable[[Page], Page]:
    return lambda written: replace(written, header=replace(written.header, **changes))  # type: ignore[arg-type]


def with_end(**changes: object) -> Callable[[Page], Page]:
    return lambda written: replace(written, end=replace(written.end, **changes))  # type: ignore[arg-type]
