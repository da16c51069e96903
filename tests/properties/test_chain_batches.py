"""What the writer's side builds the verifier accepts, and nothing else for the same tail."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.chain import frame
from shared.chain.canonical import canonical_json, parse_json, sha256_hex
from shared.chain.manifest import (
    Column,
    Manifest,
    Table,
    encode_manifest,
    parse_manifest,
)
from shared.chain.verdict import Verdict
from shared.chain.verify import ChainReport, Position, verify_chain
from tests.unit.chain.scribe import MANIFEST, chain

ESCAPES = {
    ord(char): f"\\{letter}" for char, letter in zip("\\\b\f\n\r\t\v", "\\bfnrtv", strict=True)
}

names = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=6
)
values = st.one_of(
    st.none(),
    st.sampled_from(["", "\\", "\\.", "\\N", "\n\\.\n", "\t", "--", "-- end {}", "\\\\.\\"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8),
)
json_values: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)


@dataclass(frozen=True)
class Sample:
    """A chain with the numbers that must come out of it."""

    manifest: bytes
    files: list[bytes]
    roots: int
    rows: int

    @property
    def tail(self) -> str:
        return sha256_hex(self.files[-1])


@st.composite
def columns(draw: st.DrawFn, *, at_least: int) -> tuple[Column, ...]:
    chosen = draw(st.lists(names, min_size=at_least, max_size=4, unique=True))
    return tuple(
        Column(
            name=name,
            type=draw(names),
            not_null=draw(st.booleans()),
            generated=draw(st.none() | st.text(st.characters(codec="utf-8")))
            if index > 1
            else None,
            identity=draw(st.sampled_from(["", "a", "d"])),
            collation=draw(st.none() | names),
            labels=draw(st.none() | st.lists(names, max_size=2).map(tuple)),
        )
        for index, name in enumerate(chosen)
    )


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    root = draw(columns(at_least=2))
    key, time = root[0].name, root[1].name
    labels = draw(st.lists(st.tuples(names, names), min_size=1, max_size=3, unique=True))
    tables = [Table(*labels[0], None, (), (), root)]
    for schema, name in labels[1:]:
        own = draw(columns(at_least=1))
        if draw(st.booleans()):
            own = tuple(replace(column, generated="1") for column in own)
        tables.append(Table(schema, name, 0, (own[0].name,), (key,), own))
    definition: dict[str, object] = draw(st.dictionaries(names, json_values, max_size=2))
    return replace(MANIFEST, tables=tuple(tables), key=(key,), time=time, definition=definition)


def line(fields: list[str | None]) -> bytes:
    texts = ("\\N" if value is None else value.translate(ESCAPES) for value in fields)
    return "\t".join(texts).encode() + b"\n"


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    manifest = draw(manifests())
    pages, roots, rows = [], 0, 0
    for _ in range(draw(st.integers(1, 3))):
        blocks = []
        for index, table in enumerate(manifest.tables):
            count = draw(st.integers(0, 3))
            block = b""
            for _ in range(count):
                fields = [draw(values) for _ in table.copied]
                if index == 0:
                    roots += 1
                    fields[:2] = [f"{roots}{draw(values) or ''}", draw(values) or ""]
                block += line(fields)
            rows += count
            blocks.append(block)
        pages.append(tuple(blocks))
    manifest_bytes, files = chain(manifest, tuple(pages))
    return Sample(manifest_bytes, files, roots, rows)


def judged(
    sample: Sample, files: list[bytes], *, step: int = 1 << 20, tail: str | None = None
) -> ChainReport:
    batches = (
        (seq, [data[at : at + step] for at in range(0, len(data), step)])
        for seq, data in enumerate(files, start=1)
    )
    return verify_chain(sample.manifest, batches, expected_sha256=tail)


@given(samples(), st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_the_writer_builds_is_sound_however_it_is_cut_up(
    sample: Sample, step: int, piece: int
) -> None:
    whole = judged(sample, sample.files, tail=sample.tail)
    with patch.object(frame, "PIECE_BYTES", piece):
        in_pieces = judged(sample, sample.files, step=step, tail=sample.tail)
    assert whole.verdict is Verdict.SOUND
    assert whole == in_pieces
    assert whole.position is not None
    assert (whole.position.roots, whole.position.rows) == (sample.roots, sample.rows)
    assert Position.from_json(json.loads(json.dumps(whole.position.to_json()))) == whole.position


@given(samples(), st.data())
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_no_other_byte_in_any_file_is_accepted_for_the_same_tail(
    sample: Sample, data: st.DataObject
) -> None:
    stored = [sample.manifest, *sample.files]
    which = data.draw(st.integers(0, len(stored) - 1))
    at = data.draw(st.integers(0, len(stored[which]) - 1))
    spoiled = bytearray(stored[which])
    spoiled[at] ^= data.draw(st.integers(1, 255))
    stored[which] = bytes(spoiled)
    report = judged(replace(sample, manifest=stored[0]), stored[1:], tail=sample.tail)
    assert report.verdict is Verdict.BROKEN


@given(samples(), st.data())
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_no_other_text_in_any_batch_is_accepted_for_the_same_tail(
    sample: Sample, data: st.DataObject
) -> None:
    which = data.draw(st.integers(0, len(sample.files) - 1))
    text = bytearray(b"".join(frame.decompressed([sample.files[which]])))
    text[data.draw(st.integers(0, len(text) - 1))] ^= data.draw(st.integers(1, 255))
    packed = frame.compressor()
    files = list(sample.files)
    files[which] = packed.compress(bytes(text)) + packed.flush()
    report = judged(sample, files, tail=sample.tail)
    assert report.verdict is Verdict.BROKEN


@given(samples(), st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_no_other_row_of_files_is_accepted_for_the_same_tail(
    sample: Sample, data: st.DataObject
) -> None:
    files = data.draw(st.lists(st.sampled_from(sample.files), max_size=4))
    report = judged(sample, files, tail=sample.tail)
    assert (report.verdict is Verdict.SOUND) == (files == sample.files)
    assert report.verdict in {Verdict.SOUND, Verdict.BROKEN}


@given(manifests())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_manifest_survives_its_file(manifest: Manifest) -> None:
    data = encode_manifest(manifest)
    assert parse_manifest(data) == manifest
    assert encode_manifest(parse_manifest(data)) == data


@given(json_values)
def test_canonical_json_is_read_back_and_spelled_the_same(value: object) -> None:
    data = canonical_json(value)
    assert parse_json(data) == value
    assert canonical_json(parse_json(data)) == data
    assert all(0x20 <= byte < 0x7F for byte in data)


@given(st.dictionaries(names, json_values, min_size=2))
def test_canonical_json_does_not_depend_on_the_order_of_members(value: dict[str, object]) -> None:
    assert canonical_json(value) == canonical_json(dict(reversed(value.items())))
