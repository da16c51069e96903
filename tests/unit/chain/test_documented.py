"""The written specification and the code say the same, down to the bytes of its example.

With UPDATE_GOLDEN=1 the example is written anew from its manifest, its rows and the preamble of the code.
"""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path

import pytest

from shared.chain.batch import PREAMBLE
from shared.chain.canonical import sha256_hex
from shared.chain.frame import decompressed
from shared.chain.verdict import Reason, Verdict
from shared.chain.verify import verify_chain
from tests.unit.chain.scribe import numbered, stored

FORMAT = Path(__file__).parents[3] / "docs" / "format.md"
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))


def blocks_of(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def updated(page: str) -> str:
    """Return the page with an example that follows from its manifest, its rows and the code's preamble."""
    old_preamble, *texts = blocks_of(page, "text")
    digests = re.findall(r"digest `([0-9a-f]{64})`", page)
    renamed = dict(zip(digests, [sha256_hex(blocks_of(page, "json")[0].encode())], strict=False))
    size = 0
    for text, digest, packed in zip(texts, digests[1:], blocks_of(page, "base64"), strict=True):
        header, rest = text.removesuffix("\n").split("\n", 1)
        for before, after in renamed.items():
            header = header.replace(before, after)
        rows = rest.removeprefix(old_preamble) + "\n"
        written = f"{header}\n{PREAMBLE.decode()}{rows}"
        data = stored(written.encode())
        size += len(data)
        renamed[digest] = sha256_hex(data)
        page = page.replace(text, written).replace(packed, base64.encodebytes(data).decode())
    page = page.replace(f"```text\n{old_preamble}```", f"```text\n{PREAMBLE.decode()}```")
    for before, after in renamed.items():
        page = page.replace(before, after)
    return re.sub(r"\d+ stored bytes", f"{size} stored bytes", page)


if UPDATE:
    FORMAT.write_text(updated(FORMAT.read_text("utf-8")), "utf-8")
PAGE = FORMAT.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return blocks_of(PAGE, language)


MANIFEST = blocks("json")[0].encode()
FILES = [base64.b64decode(block) for block in blocks("base64")]


def test_the_documented_example_is_sound_with_the_documented_tail() -> None:
    digests = re.findall(r"digest `([0-9a-f]{64})`", PAGE)
    assert digests == [sha256_hex(data) for data in (MANIFEST, *FILES)]
    report = verify_chain(MANIFEST, numbered(FILES), expected_sha256=digests[-1])
    assert report.verdict is Verdict.SOUND
    assert report.position is not None
    position = report.position
    counted = f"{position.roots} roots, {position.rows} rows, {position.bytes} stored bytes"
    assert counted in PAGE
    recorded = verify_chain(MANIFEST, numbered(FILES), expected_sha256=digests[1])
    assert (recorded.verdict, recorded.unrecorded) == (Verdict.UNRECORDED, (2,))


def test_the_documented_texts_are_what_the_files_hold() -> None:
    preamble, *texts = blocks("text")
    assert preamble.encode() == PREAMBLE
    assert [text.encode() for text in texts] == [b"".join(decompressed([data])) for data in FILES]


@pytest.mark.parametrize("code", [*Verdict, *Reason])
def test_every_verdict_and_reason_is_documented(code: str) -> None:
    assert f"| `{code}` |" in PAGE
