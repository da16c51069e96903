"""Write the example of the format's description anew: ``python -m tests.unit.chain.example``."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from shared.chain.batch import (
    HEADER_MARK,
    PREAMBLE,
    Header,
    begin_lines,
    commit_line,
    done_line,
    header_line,
)
from shared.chain.canonical import parse_json, sha256_hex
from shared.chain.manifest import parse_manifest
from tests.unit.chain.scribe import stored

PAGE = Path(__file__).parents[3] / "docs" / "format.md"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def written_anew(page: str) -> str:
    """Keep manifest, headers, rows and end lines of the example, and write everything else."""
    manifest = blocks(page, "json")[0].encode()
    job, prev = parse_manifest(manifest).job, sha256_hex(manifest)
    preamble, *texts = blocks(page, "text")
    size = 0
    for seq, (text, packed) in enumerate(zip(texts, blocks(page, "base64"), strict=True), 1):
        header = parse_json(text.partition("\n")[0].encode()[len(HEADER_MARK) :])
        assert isinstance(header, dict)
        rows = text[text.index("COPY ") : text.rindex("\\.\n") + 3]
        final = seq == len(texts)
        made = b"".join(
            (
                header_line(Header(job, seq, prev, header["after"], header["writer"])),
                PREAMBLE + begin_lines(job, seq) + rows.encode(),
                done_line(job, seq, final=final) + commit_line(final=final),
                text[text.index("-- end ") :].encode(),
            )
        )
        file = stored(made)
        lines = re.findall(".{1,76}", base64.b64encode(file).decode())
        page = page.replace(packed, "\n".join(lines) + "\n").replace(text, made.decode())
        page = page.replace(sha256_hex(base64.b64decode(packed)), sha256_hex(file))
        prev = sha256_hex(file)
        size += len(file)
    # The script of the second verifier has the same lines once more.
    page = page.replace(preamble, PREAMBLE.decode())
    return re.sub(r"\d+ stored bytes", f"{size} stored bytes", page)


if __name__ == "__main__":
    PAGE.write_text(written_anew(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
