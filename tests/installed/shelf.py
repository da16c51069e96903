"""Wheels for installing without an index: ours as it is built, and what is installed here packed again."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
EXTRAS = ("embedded", "query", "metrics", "aws")


def built(place: Path) -> Path:
    """Build our wheel from the tree, with what builds it at hand, and return it."""
    build = ("-m", "hatchling", "build", "--target", "wheel", "--directory", place)
    quiet = os.environ | {"HATCH_QUIET": "1"}
    subprocess.run([sys.executable, *build], cwd=ROOT, env=quiet, check=True)
    (wheel,) = place.glob("*.whl")
    return wheel


def stocked(place: Path) -> Path:
    """Pack everything that we need, with any extra, as wheels into a directory, and return it."""
    for name in needed("tallystick", *EXTRAS):
        _packed(metadata.distribution(name), place)
    return place


def needed(name: str, *extras: str) -> set[str]:
    """Return the names of all that a package needs, of what is installed here."""
    found: set[str] = set()
    waiting = list(_asked(name, *extras))
    while waiting:
        requirement = waiting.pop()
        key = canonicalize_name(requirement.name)
        if key not in found:
            found.add(key)
            waiting += _asked(key, *requirement.extras)
    return found


def _asked(name: str, *extras: str) -> Iterator[Requirement]:
    for text in metadata.requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)
        ):
            yield requirement


def _packed(found: metadata.Distribution, place: Path) -> None:
    text = found.read_text("WHEEL") or ""
    told = {line.partition(" ")[2] for line in text.splitlines() if line.startswith("Tag: ")}
    tag = next(str(tag) for tag in sys_tags() if str(tag) in told)
    name = found.metadata["Name"].replace("-", "_")
    with zipfile.ZipFile(place / f"{name}-{found.version}-{tag}.whl", "w") as wheel:
        for file in found.files or ():
            if file.suffix != ".pyc" and ".." not in file.parts:
                wheel.write(str(file.locate()), str(file))
