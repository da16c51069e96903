"""The image file as it is read here: its instructions, and the files that the build gets to see."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTAINERFILE = ROOT / "infra" / "container" / "Containerfile"
IGNORED = ROOT / "infra" / "container" / "Containerfile.dockerignore"


@dataclass(frozen=True)
class Instruction:
    """One instruction of the file, its continued lines joined."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """Return the arguments, of the exec form too: ``["a", "b"]`` gives a and b."""
        if self.text.startswith("["):
            return [str(word) for word in re.findall(r'"([^"]*)"', self.text)]
        return shlex.split(self.text)


def instructions() -> list[Instruction]:
    """Return the instructions in their order."""
    lines = [line for line in CONTAINERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [Instruction(name, " ".join(text.split())) for name, _, text in found]


def final() -> dict[str, Instruction]:
    """Return the last instruction of each name in the last stage: what the image is run with."""
    every = instructions()
    start = max(place for place, each in enumerate(every) if each.name == "FROM")
    return {each.name: each for each in every[start:]}


def environment() -> dict[str, str]:
    """Return the variables the image sets, those of its own file as written there."""
    return dict(word.split("=", 1) for word in final()["ENV"].words)


@cache
def context() -> tuple[str, ...]:
    """Return the paths of the checkout that the build is given, as the ignore file decides."""
    lines = [line.strip() for line in IGNORED.read_text().splitlines()]
    rules = [
        (re.compile(_pattern(line.lstrip("!"))), line.startswith("!"))
        for line in lines
        if line and line[0] != "#"
    ]
    named = [line[1:] for line in lines if line.startswith("!")]

    def given(path: Path) -> bool:
        # A rule speaks of a path or of anything above it; the last that speaks decides.
        names = [each.as_posix() for each in (path, *path.parents)]
        spoken = [kept for rule, kept in rules if any(rule.fullmatch(name) for name in names)]
        return not spoken or spoken[-1]

    found = []
    for folder, folders, names in os.walk(ROOT):
        here = Path(folder).relative_to(ROOT)
        folders[:] = [
            name
            for name in folders
            if given(here / name)
            or any(each.startswith(f"{(here / name).as_posix()}/") for each in named)
        ]
        found += [(here / name).as_posix() for name in names if given(here / name)]
    return tuple(sorted(found))


def _pattern(rule: str) -> str:
    translated = re.escape(rule).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
    return translated.replace(r"\[", "[").replace(r"\]", "]")
