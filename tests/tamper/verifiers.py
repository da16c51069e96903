"""Two verifiers that share nothing: ours, and the shell script of the format's description."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from shared.chain.verdict import Reason
from shared.volume.directory import verified
from tests.tamper.mutations import Said

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")
(SCRIPT,) = re.findall(r"```sh\n(#!/bin/sh\n.*?)```", PAGE, re.DOTALL)


def safe(name: str) -> str:
    """Spell a name as the script does: what could not be shown everywhere is a question mark."""
    return "".join(
        chr(byte) if re.match(rb"[A-Za-z0-9._-]", bytes([byte])) else "?"
        for byte in name.encode("utf-8", "surrogateescape")
    )


def ours(directory: Path, expected: str | None) -> tuple[Said, Reason | None]:
    """Return what we say, and the reason."""
    report = verified(directory, expected)
    params = report.params
    file: object = None
    if report.reason is not None:
        file = params.get("file", params.get("entry", "manifest.json"))
    elif report.unrecorded:
        file = f"{report.unrecorded[0]:06d}.sql.zst"
    return (str(report.verdict), None if file is None else str(file)), report.reason


def theirs(
    directory: Path, expected: str | None, script: str = SCRIPT, shell: str = "sh"
) -> tuple[Said, int]:
    """Return what the script says, and its exit code."""
    command = [shell, "-c", script, "verify.sh", str(directory), *([expected] if expected else [])]
    done = subprocess.run(command, capture_output=True, check=False, timeout=600)
    assert done.stderr == b"", done.stderr
    verdict, _, file = done.stdout.decode("ascii").removesuffix("\n").partition(" ")
    return (verdict, file or None), done.returncode
