"""The command that the pages print for restoring with stock tools, as it is printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/explanation/psql-scripts.md", "docs/format.md")


def recipe(page: str) -> str:
    """Return the command on a page, from verifying to psql."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    (block,) = (each for each in blocks if "tallystick_end" in each and "#!" not in each)
    found = re.search(r"^.*verify.* && \(\n(?s:.*)", block, re.MULTILINE)
    assert found is not None
    return found[0]


def printed(
    directory: Path, url: str, tail: str, command: str | None = None, shell: str = "sh"
) -> subprocess.CompletedProcess[str]:
    """Run the command of the README in a directory, or another one in its place."""
    tools = str(Path(sys.executable).parent)
    return subprocess.run(
        [shell, "-c", command or recipe("README.md")],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env={
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "TAIL": tail,
            "SCRATCH_DATABASE": url,
        },
    )
