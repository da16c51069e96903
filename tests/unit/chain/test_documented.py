"""The written specification and the code say the same, down to the bytes of its example."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from shared.chain.batch import PREAMBLE
from shared.chain.canonical import sha256_hex
from shared.chain.frame import decompressed
from shared.chain.verdict import Reason, Verdict
from shared.chain.verify import verify_chain
from tests.unit.chain.scribe import numbered

PAGE = (Path(__file__).parents[3] / "docs" / "format.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


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
