"""A small deployment driven through the command line, and its answers with everything random masked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from handlers.cli import run
from tests.worlds import SHOP_TABLES, rows

APPLICATION = f"""
{SHOP_TABLES}INSERT INTO app.orders (customer, placed_at)
SELECT 'customer ' || n, timestamptz '2020-01-01 00:00:00+00' + n * interval '1 hour'
FROM generate_series(1, 45) AS n;
INSERT INTO app.line SELECT id, number, id * number FROM app.orders, generate_series(1, 2) AS number;
"""

KINDS = """
[kinds.orders]
root = "app.orders"
time = "placed_at"
related = ["app.line"]
after = "400d"
every = "24h"
batch = 20

[scan]
every = "168h"

[kinds.nothing]
root = "app.nothing"
time = "at"
"""

# What is masked keeps its width, so that lists stay as people see them. Sizes vary by a few bytes, since
# random ids do not compress alike.
MASKS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>"),
    (r"\b[0-9a-f]{64}\b", "<sha256>"),
    (r"\b[0-9a-f]{32}\b", "<storage id, 32 hexadecimal digits>"[:32]),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
    (r"20[2-9]\d-\d\d-\d\d \d\d:\d\d:\d\d", "<day and UTC  time>"),
    (r"(?<![:0-9] )\b[0-9a-f]{8}\b", "<8 hex.>"),
    (r'"(seconds|oldest_due_seconds)": [0-9.]+', r'"\1": "<seconds>"'),
    (r'"(prepare|schedule|claim|read|do|verify|settle)": [0-9.]+', r'"\1": "<seconds>"'),
    (
        r'"(behind|next_run|last_tick|drain)_seconds": [-0-9.]+|"roots_per_second": [0-9.]+',
        lambda match: re.sub(": .*", ': "<number>"', match[0]),
    ),
    (r'"(bytes|used_bytes|volume_used_bytes|(job|volume)_bytes_left)": [0-9]+', r'"\1": "<bytes>"'),
    (r"\b[0-9.]+ s ago\b", "<seconds> ago"),
    (r"\b[0-9.]+ roots a second$", "<pace>"),
    (r"\b[0-9]+\.[0-9] d$", "<days>"),
    (r"\b[0-9.]+ s$", "<seconds>"),
    (r"\b[0-9.]+ (B|KiB)\b", lambda match: re.sub("[0-9]", "0", match[0])),
)


@dataclass(frozen=True)
class Answered:
    """What one command answered."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.out)
        return found


@dataclass
class Shell:
    """Runs commands in this process, and remembers what to mask in their answers."""

    capture: pytest.CaptureFixture[str]
    masked: dict[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str) -> Answered:
        self.capture.readouterr()
        code = run(arguments)
        captured = self.capture.readouterr()
        return Answered(code, captured.out, captured.err)

    def mask(self, text: str) -> str:
        for value, name in self.masked.items():
            text = text.replace(value, name)
        for pattern, with_ in MASKS:
            text = re.sub(pattern, with_, text, flags=re.MULTILINE)
        return re.sub(r" +$", "", text, flags=re.MULTILINE)


def deployed(shell: Shell, database: str, root: Path, setenv: Callable[[str, str], None]) -> Path:
    """Set a deployment up: an application's tables, a kinds file, a volume; return the kinds file."""
    rows(database, APPLICATION)
    kinds = root.parent / "kinds.toml"
    kinds.write_text(KINDS)
    setenv("TALLYSTICK_DATABASE_URL", database)
    setenv("TALLYSTICK_KINDS_FILE", str(kinds))
    setenv("TALLYSTICK_HOME", str(root.parent / "home"))
    setenv("COLUMNS", "80")
    storage_id = shell("volume", "init", "--root", str(root), "--json").json()["storage_id"]
    setenv("TALLYSTICK_ARCHIVE_ROOT", str(root))
    setenv("TALLYSTICK_ARCHIVE_STORAGE_ID", str(storage_id))
    shell.masked[str(root.parent)] = "<directory>"
    return kinds
