"""A batch file as docs/format.md describes it, read without any of the program's code."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COPY = re.compile(rb'COPY ("(?:[^"]|"")+"\."(?:[^"]|"")+") \(.*\) FROM stdin;')
HEADER, END = b"-- tallystick ", b"-- end "


class Unreadable(Exception):
    """A file that is not what the format says."""


@dataclass(frozen=True)
class BatchFile:
    """One batch file: the digest of its bytes, what its first and last line say, and its rows by table."""

    name: str
    sha256: str
    header: Mapping[str, Any]
    end: Mapping[str, Any]
    rows: Mapping[str, tuple[bytes, ...]]


def parsed(name: str, stored: bytes) -> BatchFile:
    """Parse a file as it is stored; raises ``Unreadable``."""
    done = subprocess.run(["zstd", "-dc"], input=stored, capture_output=True, check=False)
    if done.returncode != 0:
        raise Unreadable(f"{name} does not decompress")
    lines = done.stdout.split(b"\n")
    if lines[-1] != b"" or not lines[0].startswith(HEADER) or not lines[-2].startswith(END):
        raise Unreadable(f"{name} has no first or last line of ours")
    end = json.loads(lines[-2][len(END) :])
    rows: dict[str, tuple[bytes, ...]] = {}
    at = 1
    while at < len(lines) - 2:
        if match := COPY.fullmatch(lines[at]):
            closed = lines.index(rb"\.", at)
            rows[_plain(match[1])] = tuple(lines[at + 1 : closed])
            at = closed
        at += 1
    counted = {table: len(found) for table, found in rows.items() if found}
    said = {table: count for table, count in end["rows"].items() if count}
    if counted != said:
        raise Unreadable(f"{name} says {said} and has {counted}")
    return BatchFile(
        name, hashlib.sha256(stored).hexdigest(), json.loads(lines[0][len(HEADER) :]), end, rows
    )


def _plain(quoted: bytes) -> str:
    schema, table = re.findall(r'"((?:[^"]|"")+)"', quoted.decode())
    return f"{schema}.{table}".replace('""', '"')
