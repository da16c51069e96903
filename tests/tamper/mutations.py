"""The one table of mutations: what is done to an archive, and the most that may be said of it then.

``anchored`` is what must be said with the trusted tail, ``alone`` what must be said without any: a verdict,
and the file where there is one to name. Every verifier is held against both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from shared.chain.batch import PREAMBLE, begin_lines, commit_line, done_line
from shared.chain.canonical import canonical_json, parse_json
from shared.chain.manifest import MANIFEST_NAME, Table
from tests.tamper.shelf import (
    OPEN,
    WHOLE,
    Change,
    Entries,
    Hard,
    Link,
    Odd,
    batch,
    entries,
    relinked,
    tail,
    text,
)
from tests.unit.chain.scribe import (
    JOB,
    MANIFEST,
    OTHER_JOB,
    PAGES,
    Page,
    chain,
    column,
    framed,
    page,
    stored,
    with_end,
    with_header,
    with_rows,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ONE, TWO, THREE, FOUR = (f"00000{number}.sql.zst" for number in range(1, 5))
Said = tuple[str, str | None]
SOUND: Said = ("SOUND", None)
CONSISTENT: Said = ("CONSISTENT", None)
UNFINISHED: Said = ("UNFINISHED", None)


@dataclass(frozen=True)
class Mutation:
    """One thing done to an archive, and what is to be said about it."""

    name: str
    change: Change
    anchored: Said
    alone: Said
    archive: Entries = field(default_factory=lambda: WHOLE)

    @property
    def result(self) -> Entries:
        return self.change(self.archive)

    @property
    def trusted(self) -> str:
        return tail(self.archive)


def broken(file: str) -> Said:
    return ("BROKEN", file)


def both(name: str, file: str, change: Change, archive: Entries = WHOLE) -> Mutation:
    """Return a mutation that shows without any tail."""
    return Mutation(name, change, broken(file), broken(file), archive)


# Files


def dropped(*names: str) -> Change:
    return lambda old: {name: entry for name, entry in old.items() if name not in names}


def put(name: str, entry: bytes | Link | Hard | Odd) -> Change:
    return lambda old: {**old, name: entry}


def swapped(one: str, other: str) -> Change:
    return lambda old: {**old, one: old[other], other: old[one]}


def copied(name: str, to: str) -> Change:
    return lambda old: {**old, to: old[name]}


def renamed(name: str, to: str) -> Change:
    return lambda old: {(to if each == name else each): entry for each, entry in old.items()}


def linked(name: str) -> Change:
    return lambda old: {**old, name: Link(batch(old, name))}


OTHER = entries(*chain(replace(MANIFEST, job=OTHER_JOB)))
NAMES = (
    *("README", ".hidden", "..hidden", "-rf", "000002.sql", "000002.sql.zst~", "000002.SQL.ZST"),
    *("2.sql.zst", "0000002.sql.zst", "000000.sql.zst", "00000a.sql.zst", "+00002.sql.zst", " "),
    *(
        "٠٠٠٠٠٢.sql.zst",
        "000002.sql.zst\n",
        "\x1b[2J",
        "manifest.json ",
        "Manifest.json",
        "*",
        "\\",
    ),
    *("\udcff.sql.zst", "a\nb", "[0-9]", "000002.sql.zst.000002.sql.zst", ".sql.zst", "x" * 255),
)
HARMLESS = (
    *(
        ".DS_Store",
        "._manifest.json",
        ".nfs0000000004c51f2e",
        ".fuse_hidden00aF",
        "@eaDir",
        "#recycle",
    ),
    *("lost+found", ".Trash-1000", "$RECYCLE.BIN", "System Volume Information", "Thumbs.db"),
)
NOT_HARMLESS = (".nfs", ".nfs0x", ".Trash-", ".Trash-a", ".fuse_hidden", ".fuse_hidden-1", "#", "$")
FILES = (
    Mutation("nothing", dict, SOUND, CONSISTENT),
    *(
        Mutation(f"harmless {name!r}", put(name, b""), SOUND, CONSISTENT)
        for name in (*HARMLESS, "._x\ny", "._")
    ),
    *(both(f"not harmless {name!r}", name, put(name, b"")) for name in NOT_HARMLESS),
    Mutation("nothing, unfinished", dict, UNFINISHED, UNFINISHED, OPEN),
    both("manifest dropped", MANIFEST_NAME, dropped(MANIFEST_NAME)),
    both("all dropped", MANIFEST_NAME, lambda _: {}),
    both("first dropped", ONE, dropped(ONE)),
    both("middle dropped", TWO, dropped(TWO)),
    both("first two dropped", ONE, dropped(ONE, TWO)),
    Mutation("rolled back by 1", dropped(THREE), broken(TWO), UNFINISHED),
    Mutation("rolled back by 2", dropped(TWO, THREE), broken(ONE), UNFINISHED),
    Mutation("rolled back by 3", dropped(ONE, TWO, THREE), broken(MANIFEST_NAME), UNFINISHED),
    Mutation("unfinished, rolled back by 1", dropped(THREE), broken(TWO), UNFINISHED, OPEN),
    Mutation("unfinished, rolled back by 2", dropped(TWO, THREE), broken(ONE), UNFINISHED, OPEN),
    both("first two swapped", ONE, swapped(ONE, TWO)),
    both("last two swapped", TWO, swapped(TWO, THREE)),
    both("manifest and batch swapped", MANIFEST_NAME, swapped(MANIFEST_NAME, ONE)),
    both("last repeated", FOUR, copied(THREE, FOUR)),
    both("first repeated at the end", FOUR, copied(ONE, FOUR), OPEN),
    both("last repeated, unfinished", FOUR, copied(THREE, FOUR), OPEN),
    both("first over the middle", TWO, copied(ONE, TWO)),
    both("middle over the last", THREE, copied(TWO, THREE)),
    both("manifest over a batch", TWO, copied(MANIFEST_NAME, TWO)),
    both("manifest as a batch at the end", FOUR, copied(MANIFEST_NAME, FOUR)),
    both("batch over the manifest", MANIFEST_NAME, copied(ONE, MANIFEST_NAME)),
    both("middle renamed past the end", TWO, renamed(TWO, FOUR)),
    both("last renamed past a gap", THREE, renamed(THREE, FOUR)),
    both("a batch far away", "1000000.sql.zst", copied(THREE, "1000000.sql.zst")),
    both("a batch far away, unfinished", FOUR, copied(THREE, "1000000.sql.zst"), OPEN),
    both("last emptied", THREE, put(THREE, b"")),
    both("manifest emptied", MANIFEST_NAME, put(MANIFEST_NAME, b"")),
    both("nothing but a line break in the manifest", MANIFEST_NAME, put(MANIFEST_NAME, b"\n")),
    both("an empty batch added", FOUR, put(FOUR, b""), OPEN),
    *(both(f"added {name!r}", name, put(name, b"x")) for name in NAMES),
    *(both(f"renamed to {name!r}", name, renamed(THREE, name)) for name in NAMES),
    *(both(f"link at {name}", name, linked(name)) for name in (ONE, THREE, MANIFEST_NAME)),
    both("a link at the end", FOUR, put(FOUR, Link(batch(WHOLE, THREE)))),
    both("a link of another name", "x", put("x", Link(b""))),
    both("last has another name", FOUR, put(FOUR, Hard(THREE))),
    *(
        both(f"{what} at {name}", name, put(name, Odd(what)))
        for what in ("pipe", "socket", "directory", "device")
        for name in (TWO, FOUR, MANIFEST_NAME)
    ),
    both("one of another job", TWO, put(TWO, OTHER[TWO])),
    both("last of another job", THREE, put(THREE, OTHER[THREE])),
    both("added from another job", FOUR, put(FOUR, OTHER[THREE]), OPEN),
    both("batches of another job", ONE, lambda old: {**OTHER, MANIFEST_NAME: old[MANIFEST_NAME]}),
    both("manifest of another job", ONE, put(MANIFEST_NAME, OTHER[MANIFEST_NAME])),
    Mutation("another job", lambda _: OTHER, broken(THREE), CONSISTENT),
)


# Frames


def packed(name: str, pack: Callable[[bytes], bytes]) -> Change:
    return lambda old: {**old, name: pack(text(batch(old, name)))}


def stuffed(name: str, stuff: Callable[[bytes], bytes]) -> Change:
    return lambda old: {**old, name: stuff(batch(old, name))}


def halves(data: bytes) -> bytes:
    return framed(data[:500]) + framed(data[500:])


def with_flag(flag: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:4] + bytes([data[4] | flag]) + data[5:]


SKIPPABLE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00note"
REPACKED: dict[str, Callable[[bytes], bytes]] = {
    "another level": lambda data: framed(data, compression_level=19),
    "size declared": lambda data: framed(data, declare_size=True),
    "another window": lambda data: framed(data, window_log=12),
    "the largest window": lambda data: framed(data, window_log=23),
    "a block for each byte": lambda data: blocks(data, 1),
    "stored": lambda data: blocks(data, 600),
}
REFUSED: dict[str, Callable[[bytes], bytes]] = {
    "no checksum": lambda data: framed(data, checksum_flag=0),
    "too large a window": lambda data: framed(data, window_log=24),
    "a huge window": lambda data: framed(data, window_log=31),
    "two frames": halves,
    "not compressed": lambda data: data,
    "an old magic number": lambda data: b"\x27" + stored(data)[1:],
    "a dictionary named": lambda data: (
        framed(data)[:4] + b"\x05" + framed(data)[5:6] + b"\x01" + framed(data)[6:]
    ),
    "a dictionary used": lambda data: zstd.compress(
        data,
        zstd_dict=zstd.train_dict([data[at:] for at in range(200)], 512),
        options={zstd.CompressionParameter.checksum_flag: 1},
    ),
}
STUFFED: dict[str, Callable[[bytes], bytes]] = {
    "a byte after": lambda data: data + b"\0",
    "a line break after": lambda data: data + b"\n",
    "a frame after": lambda data: data + framed(b""),
    "itself after": lambda data: data + data,
    "a skippable frame after": lambda data: data + SKIPPABLE,
    "a skippable frame before": lambda data: SKIPPABLE + data,
    "a frame before": lambda data: framed(b"") + data,
    "a byte before": lambda data: b"\0" + data,
    "the unused bit": with_flag(0x10),
    "the reserved bit": with_flag(0x08),
    "half": lambda data: data[: len(data) // 2],
    "checksum cut off": lambda data: data[:-4],
    "zeros": lambda data: bytes(len(data)),
}


def blocks(data: bytes, size: int) -> bytes:
    """Return a frame of stored blocks, as no compressor would write it."""
    checksum = framed(data)[-4:]
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    written = b"".join(
        (len(piece) << 3 | (number == len(pieces))).to_bytes(3, "little") + piece
        for number, piece in enumerate(pieces, start=1)
    )
    return b"\x28\xb5\x2f\xfd\x04\x58" + written + checksum


FRAMES = (
    *(both(f"{how}, middle", THREE, packed(TWO, pack)) for how, pack in REPACKED.items()),
    *(
        Mutation(f"{how}, last", packed(THREE, pack), broken(THREE), CONSISTENT)
        for how, pack in REPACKED.items()
    ),
    *(both(f"{how}, middle", TWO, packed(TWO, pack)) for how, pack in REFUSED.items()),
    *(both(f"{how}, last", THREE, packed(THREE, pack)) for how, pack in REFUSED.items()),
    *(both(f"{how}, middle", TWO, stuffed(TWO, stuff)) for how, stuff in STUFFED.items()),
    *(both(f"{how}, last", THREE, stuffed(THREE, stuff)) for how, stuff in STUFFED.items()),
)


# Chains written anew, every digest right


def rewritten(
    *, spoil: dict[int, Callable[[Page], Page]] | None = None, final: bool = True
) -> Change:
    return lambda _: entries(*chain(spoil=spoil, final=final))


def paged(*pages: tuple[bytes, ...], final: bool = True) -> Change:
    return lambda _: entries(*chain(pages=pages, final=final))


def continued(*, final: bool) -> Change:
    """Add a batch that fits after the last of an unfinished archive."""
    after = ("2026-01-02 10:00:00+00", "3")
    rows = (b"4\tadded\t2026-01-02 11:00:00+00\n", b"")
    return lambda old: {
        **old,
        FOUR: stored(page(MANIFEST, 4, tail(old), after, rows, final=final).text()),
    }


EDITED = (PAGES[0][0].replace(b"first", b"f1rst"), PAGES[0][1])
NO_ROOTS_FIRST = ((b"", b""), *PAGES)
CONSISTENTLY = (
    Mutation("a value edited", paged(EDITED, *PAGES[1:]), broken(THREE), CONSISTENT),
    Mutation("a row removed", paged((PAGES[0][0], b""), *PAGES[1:]), broken(THREE), CONSISTENT),
    Mutation("a batch put in", paged(*NO_ROOTS_FIRST), broken(FOUR), CONSISTENT),
    Mutation("a batch taken out", paged(PAGES[0], PAGES[2]), broken(TWO), CONSISTENT),
    Mutation("no longer final", rewritten(final=False), broken(THREE), UNFINISHED),
    Mutation("final too early", paged(*PAGES[:2]), broken(TWO), CONSISTENT),
    Mutation("final from the first", paged(PAGES[0]), broken(ONE), CONSISTENT),
    Mutation("closed by another", rewritten(), broken(THREE), CONSISTENT, OPEN),
    Mutation(
        "another writer", rewritten(spoil={3: with_header(writer="x")}), broken(THREE), CONSISTENT
    ),
    Mutation("added to", continued(final=False), ("UNRECORDED", FOUR), UNFINISHED, OPEN),
    Mutation("added to and closed", continued(final=True), ("UNRECORDED", FOUR), CONSISTENT, OPEN),
    both("added to after the end", FOUR, continued(final=False)),
)


# Batches that say what is not so, every digest right


def line_of(old: bytes, new: bytes, seq: int) -> Change:
    """Exchange some bytes of a batch's text, and link what follows."""

    def change(archive: Entries) -> Entries:
        name = f"{seq:06d}.sql.zst"
        before = text(batch(archive, name))
        assert before.count(old) >= 1
        return relinked({**archive, name: stored(before.replace(old, new, 1))}, seq + 1)

    return change


def spoiled(how: str, seq: int, spoil: Callable[[Page], Page]) -> Mutation:
    return both(f"{how} in {seq}", f"{seq:06d}.sql.zst", rewritten(spoil={seq: spoil}))


ROWS: dict[str, tuple[int, bytes]] = {
    "a field too many": (1, b"1\tok\n2\tok\textra\n"),
    "a field too few": (1, b"1\tok\n2\n"),
    "fields moved": (1, b"1\tok\textra\n2\n"),
    "an empty row": (1, b"1\tok\n\n"),
    "a carriage return": (1, b"1\tok\r\n"),
    "a NUL": (1, b"1\to\0k\n"),
    "an escaped line break": (1, b"1\tok\\\n"),
    "an escaped tab": (1, b"1\\\tok\n"),
    "three backslashes": (1, b"1\tok\\\\\\\n"),
    "an escaped dot": (1, b"1\tok\\.\n"),
    "an early end": (1, b"1\tok\n\\.\n2\tok\n"),
    "a command": (1, b"1\tok\n\\.\nDROP TABLE app.tasks;\n"),
    "no line break": (1, b"1\tok"),
    "a row more": (1, PAGES[0][1] + b"9\tok\n"),
    "no rows": (1, b""),
    "a longer value": (1, PAGES[0][1].replace(b"ok", b"okay", 1)),
    "a root more": (0, PAGES[0][0] + PAGES[0][0]),
    "no roots": (0, b""),
    "roots in another order": (0, b"".join(reversed(PAGES[0][0].splitlines(keepends=True)))),
}
ENDS: dict[str, dict[str, object]] = {
    "roots miscounted": {"roots": 3},
    "roots no number": {"roots": "2"},
    "roots true": {"roots": True},
    "a table left out": {"rows": (("app.tasks", 2),)},
    "a table too many": {"rows": (("app.tasks", 2), ('app."Task attempts"', 3), ("x", 0))},
    "rows miscounted": {"rows": (("app.tasks", 2), ('app."Task attempts"', 4))},
    "rows below nothing": {"rows": (("app.tasks", 2), ('app."Task attempts"', -1))},
    "bytes miscounted": {"raw_bytes": 1},
    "no cursor": {"last": None},
    "a short cursor": {"last": ("2026-01-01 09:30:00+00",)},
    "a long cursor": {"last": ("2026-01-01 09:30:00+00", "2", "2")},
    "another key": {"last": ("2026-01-01 09:30:00+00", "9")},
    "another time": {"last": ("2026-01-01 09:00:00+00", "2")},
    "a cursor of numbers": {"last": ("2026-01-01 09:30:00+00", 2)},
    "a NUL in the cursor": {"last": ("2026-01-01 09:30:00+00", "2\0")},
    "an escape spelled out": {"last": ("2026-01-01 09:30:00+00", "\\2")},
    "final no truth": {"final": 1},
    "final null": {"final": None},
}
GUARDS: dict[str, Callable[[Page], Page]] = {
    "no guard": lambda it: replace(it, guard=b""),
    "guard of the next batch": lambda it: replace(it, guard=begin_lines(JOB, it.header.seq + 1)),
    "guard of another job": lambda it: replace(it, guard=begin_lines(OTHER_JOB, it.header.seq)),
    "a guard without a savepoint": lambda it: replace(
        it, guard=it.guard.replace(b"SAVEPOINT tallystick;\n", b"", 1)
    ),
    "a command in the guard": lambda it: replace(it, guard=it.guard + b"\\! id\n"),
    "no lines after the tables": lambda it: replace(it, done=b"", commit=b""),
    "lines after the tables twice": lambda it: replace(it, done=it.done + it.commit + it.done),
    "no word on committing": lambda it: replace(it, commit=b""),
    "the wrong word on committing": lambda it: replace(
        it, commit=commit_line(final=not it.end.final)
    ),
    "done as if final were otherwise": lambda it: replace(
        it,
        done=done_line(JOB, it.header.seq, final=not it.end.final),
        commit=commit_line(final=not it.end.final),
    ),
    "a command instead of committing": lambda it: replace(
        it, commit=b"\\set tallystick_end `id`\n"
    ),
}
HEADERS: dict[str, dict[str, object]] = {
    "another job": {"job": OTHER_JOB},
    "another number": {"seq": 7},
    "a number as text": {"seq": "1"},
    "another digest before": {"prev": "0" * 64},
    "another beginning": {"after": ("2026-01-01 00:00:00+00", "0")},
    "a beginning without key": {"after": ()},
    "no writer": {"writer": None},
}
TEXTS: dict[str, tuple[bytes, bytes]] = {
    "another mark": (b"-- tallystick ", b"-- tallystack "),
    "another end mark": (b"-- end ", b"-- End "),
    "a format of the future": (b'"format":1', b'"format":2'),
    "format true": (b'"format":1', b'"format":true'),
    "format 1.0": (b'"format":1', b'"format":1.0'),
    "format 1e0": (b'"format":1', b'"format":1e0'),
    "a space": (b'"format":1', b'"format": 1'),
    "a member twice": (b'"format":1', b'"format":1,"format":1'),
    "a member more": (b'"format":1', b'"fond":1,"format":1'),
    "members in another order": (b'"final":', b'"zinal":'),
    "an escape not needed": (b'"writer":"t', b'"writer":"\\u0074'),
    "a slash escaped": (b'"writer":"t', b'"writer":"\\/'),
    "raw letters beyond ASCII": (b'"writer":"t', '"writer":"é'.encode()),
    "an escape in capitals": (b'"writer":"t', b'"writer":"\\u00E9'),
    "half a pair": (b'"writer":"t', b'"writer":"\\ud800'),
    "a raw DEL": (b'"writer":"t', b'"writer":"\x7f'),
    "bytes that are no UTF-8": (b'"writer":"t', b'"writer":"\xff'),
    "a carriage return in the header": (b'"writer":"t', b'"writer":"\r'),
    "a NUL in the header": (b'"writer":"t', b'"writer":"\0'),
    "two values in the header": (b"}\n\\set", b"}{}\n\\set"),
    "a brace more": (b"}\n\\set", b"}}\n\\set"),
    "CRLF after the header": (b"}\n\\set", b"}\r\n\\set"),
    "an array for a header": (b'-- tallystick {"', b'-- tallystick [{"'),
    "not a number": (b'"raw_bytes":', b'"raw_bytes":NaN,"x":'),
    "a byte order mark": (b"-- tallystick {", b"-- tallystick \xef\xbb\xbf{"),
    "another preamble": (b"row_security = off", b"row_security = on"),
    "a command after the preamble": (b"content;\n", b"content;\nCOMMIT;\n"),
    "a line of the preamble missing": (b"SET row_security = off;\n", b""),
    "another table": (b'COPY "app"."tasks"', b'COPY "app"."users"'),
    "columns in another order": (b'("id", "note", ', b'("note", "id", '),
    "a program": (b" FROM stdin;", b" FROM PROGRAM 'id';"),
    "no space": (b", ", b","),
}


def after_end(addition: bytes | None) -> Change:
    def change(archive: Entries) -> Entries:
        before = text(batch(archive, ONE))
        after = before[:-1] if addition is None else before + addition
        return relinked({**archive, ONE: stored(after)}, 2)

    return change


def cut_text(mark: bytes, seq: int) -> Change:
    """End the text of a batch before a mark."""
    name = f"{seq:06d}.sql.zst"
    return lambda old: {**old, name: stored(text(batch(old, name)).partition(mark)[0])}


ALL_GENERATED = Table(
    "app", "Nothing", 0, ("task_id",), ("id",), (column("task_id", generated="1"),)
)


def without_columns(rows: bytes) -> Entries:
    """Write an archive with a table of which nothing is copied."""
    manifest = replace(MANIFEST, tables=(*MANIFEST.tables, ALL_GENERATED))
    return entries(*chain(manifest, ((*PAGES[0], rows), (b"", b"", b""))))


UNTRUE = (
    *(
        both(
            f"{rows!r} in a table without columns",
            ONE,
            lambda _, rows=rows: without_columns(rows),  # type: ignore[misc]
            without_columns(b"\n\n"),
        )
        for rows in (b"x\n", b"\\N\n", b"\t\n", b"\n \n")
    ),
    *(spoiled(how, 1, with_rows(index, rows)) for how, (index, rows) in ROWS.items()),
    *(spoiled(how, 1, with_end(**change)) for how, change in ENDS.items()),
    *(spoiled(how, 1, with_header(**change)) for how, change in HEADERS.items()),
    *(both(how, ONE, line_of(old, new, 1)) for how, (old, new) in TEXTS.items()),
    both("content after the end line", ONE, after_end(b"SELECT 1;\n")),
    both("a line break after the end line", ONE, after_end(b"\n")),
    both("a second end line", ONE, after_end(b"-- end {}\n")),
    both("no line break at the end", ONE, after_end(None)),
    spoiled(
        "a beginning before the end before", 2, with_header(after=("2026-01-01 09:00:00+00", "1"))
    ),
    spoiled("a cursor moved without roots", 3, with_end(last=("2026-01-02 10:00:00+00", "4"))),
    spoiled("a cursor gone without roots", 3, with_end(last=None)),
    spoiled("a cursor that stands still", 2, with_end(last=("2026-01-01 09:30:00+00", "2"))),
    spoiled("a block too many", 1, lambda it: replace(it, blocks=(*it.blocks, it.blocks[1]))),
    spoiled("a block left out", 1, lambda it: replace(it, blocks=it.blocks[:1])),
    spoiled("blocks swapped", 1, lambda it: replace(it, blocks=it.blocks[::-1])),
    spoiled("preamble twice", 1, lambda it: replace(it, preamble=PREAMBLE * 2)),
    spoiled("no preamble", 1, lambda it: replace(it, preamble=b"")),
    *(
        spoiled(f"{how} in {seq}", seq, change)
        for seq in (1, 2, 3)
        for how, change in GUARDS.items()
    ),
    *(
        both(f"ends before {mark!r} in {seq}", f"{seq:06d}.sql.zst", cut_text(mark, seq))
        for seq in (1, 3)
        for mark in (b"-- tallystick", b"\\set", b"COPY", b"\\.\n", b"-- end", b"}\n")
    ),
)


# Manifests


def manifest_with(path: list[str | int], value: object) -> Change:
    """Edit the manifest where ``path`` leads, and link everything to it."""

    def change(archive: Entries) -> Entries:
        document = parse_json(batch(archive, MANIFEST_NAME).strip())
        place: object = document
        for step in path[:-1]:
            place = place[step]  # type: ignore[index]
        if value is GONE:
            del place[path[-1]]  # type: ignore[attr-defined]
        else:
            place[path[-1]] = value  # type: ignore[index]
        return relinked({**archive, MANIFEST_NAME: canonical_json(document) + b"\n"})

    return change


def manifest_spelled(old: bytes, new: bytes) -> Change:
    def change(archive: Entries) -> Entries:
        data = batch(archive, MANIFEST_NAME)
        assert old in data
        return relinked({**archive, MANIFEST_NAME: data.replace(old, new, 1)})

    return change


def nested(depth: int) -> list[object]:
    made: list[object] = []
    for _ in range(depth - 1):
        made = [made]
    return made


GONE = object()
SHAPES: tuple[tuple[list[str | int], object], ...] = (
    (["job"], "0B2F1C9E-8A8B-4D6F-9C57-1F2E3D4C5B6A"),
    (["job"], "0b2f1c9e-8a8b-4d6f-9c57-1f2e3d4c5b6a\n"),
    (["job"], None),
    (["format"], True),
    (["format"], 2),
    (["format"], "1"),
    (["format"], GONE),
    (["extra"], 1),
    (["kind"], ""),
    (["kind"], "a\nb"),
    (["kind"], "a\x1b[2Jb"),
    (["namespace", "id"], "x"),
    (["namespace", "name"], "\x7f"),
    (["namespace"], []),
    (["definition"], []),
    (["window"], None),
    (["window", "after"], ["2026-01-01"]),
    (["window", "after"], ["2026-01-01", None]),
    (["window", "after"], ["2026-01-01", "\0"]),
    (["window", "cutoff"], 5),
    (["window", "margin_seconds"], -1),
    (["window", "margin_seconds"], "10"),
    (["window", "margin_seconds"], GONE),
    (["policy"], {}),
    (["policy", "revision"], True),
    (["policy", "after_days"], -1),
    (["batch_size"], 0),
    (["batch_size"], "2"),
    (["source", "encoding"], GONE),
    (["tables"], []),
    (["tables"], {}),
    (["tables", 0, "parent"], 0),
    (["tables", 0, "foreign_key"], ["id"]),
    (["tables", 1, "parent"], None),
    (["tables", 1, "parent"], 1),
    (["tables", 1, "parent"], -1),
    (["tables", 1, "foreign_key"], []),
    (["tables", 1, "references"], ["id", "note"]),
    (["tables", 1, "foreign_key"], ["nope"]),
    (["tables", 1, "references"], ["nope"]),
    (["tables", 1, "name"], "a\rb"),
    (["tables", 1, "name"], "tasks"),
    (["tables", 1, "columns", 1, "name"], "task_id"),
    (["tables", 0, "columns", 0, "identity"], "x"),
    (["tables", 0, "columns", 0, "identity"], False),
    (["tables", 0, "columns", 0, "not_null"], 0),
    (["tables", 0, "columns", 0, "labels"], "x"),
    (["tables", 0, "columns", 0, "labels"], [1]),
    (["tables", 0, "columns", 0, "generated"], 1),
    (["tables", 0, "columns", 0, "collation"], ""),
    (["tables", 0, "columns", 0, "type"], GONE),
    (["tables", 0, "columns"], None),
    (["key"], []),
    (["key"], ["id", "id"]),
    (["key"], ["nope"]),
    (["time"], "nope"),
    (["previous"], {"job": OTHER_JOB, "tail": "AB" * 32}),
    (["previous"], {"job": OTHER_JOB}),
    (["definition", "deep"], nested(63)),
)
SPELLINGS: dict[str, tuple[bytes, bytes]] = {
    "a space in the manifest": (b",", b", "),
    "a tab in the manifest": (b",", b",\t"),
    "a line break in the manifest": (b",", b",\n"),
    "a member of the manifest twice": (b'"format":1', b'"format":1,"format":1'),
    "a fraction in the manifest": (b'"batch":2', b'"batch":2.5'),
    "a whole fraction in the manifest": (b'"batch":2', b'"batch":2.0'),
    "an exponent in the manifest": (b'"batch":2', b'"batch":2e1'),
    "minus zero in the manifest": (b'"batch":2', b'"batch":-0'),
    "a plus in the manifest": (b'"batch":2', b'"batch":+2'),
    "a leading zero in the manifest": (b'"batch":2', b'"batch":02'),
    "infinity in the manifest": (b'"batch":2', b'"batch":1e999'),
    "not a number in the manifest": (b'"batch":2', b'"batch":NaN'),
    "nan in the manifest": (b'"batch":2', b'"batch":nan'),
    "an escape in the manifest": (b'"kind"', b'"\\u006bind"'),
    "another letter in the manifest": (b'"shop"', '"shöp"'.encode()),
    "a raw NUL in the manifest": (b'"shop"', b'"sh\0p"'),
    "a raw tab in the manifest": (b'"shop"', b'"sh\tp"'),
    "no UTF-8 in the manifest": (b'"shop"', b'"sh\xffp"'),
    "half a pair in the manifest": (b'"shop"', b'"sh\\udc00p"'),
    "no line break after the manifest": (b"}\n", b"}"),
    "two line breaks after the manifest": (b"}\n", b"}\n\n"),
    "a carriage return after the manifest": (b"}\n", b"}\r\n"),
    "another value after the manifest": (b"}\n", b"}\n{}\n"),
    "a NUL after the manifest": (b"}\n", b"}\n\0"),
    "a comma too many in the manifest": (b"}\n", b",}\n"),
    "a comment in the manifest": (b"}\n", b"}#\n"),
    "a mark before the manifest": (b'{"batch_size"', b'\xef\xbb\xbf{"batch_size"'),
    "UTF-16": (b'{"batch_size"', b'\xff\xfe{"batch_size"'),
}
MANIFESTS = (
    both(
        "manifest edited",
        ONE,
        stuffed(MANIFEST_NAME, lambda data: data.replace(b'"shop"', b'"shup"')),
    ),
    Mutation(
        "manifest edited, batches linked to it",
        manifest_with(["source", "database"], "shup"),
        broken(THREE),
        CONSISTENT,
    ),
    Mutation(
        "window moved", manifest_with(["window", "cutoff"], "2027-01-01"), broken(THREE), CONSISTENT
    ),
    both("window begins elsewhere", ONE, manifest_with(["window", "after"], ["2025-01-01", "0"])),
    both("another root in the manifest", ONE, manifest_with(["tables", 0, "name"], "users")),
    both("a column generated", ONE, manifest_with(["tables", 0, "columns", 1, "generated"], "1")),
    both("key made longer", ONE, manifest_with(["key"], ["id", "note"])),
    *(
        both(
            f"manifest with {'.'.join(map(str, path))} {number}",
            MANIFEST_NAME,
            manifest_with(path, value),
        )
        for number, (path, value) in enumerate(SHAPES)
    ),
    *(both(how, MANIFEST_NAME, manifest_spelled(*change)) for how, change in SPELLINGS.items()),
)

MUTATIONS = {each.name: each for each in (*FILES, *FRAMES, *CONSISTENTLY, *UNTRUE, *MANIFESTS)}
