"""This environment without one of its packages, and that package as a wheel, for remedies that install it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from importlib import metadata
from pathlib import Path

from tests.remedies.scene import Scene


def without(scene: Scene, part: str) -> Path:
    """Make an environment of all packages but those with ``part`` in their names; return its programs."""
    there = scene.directory / "environment-without"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", there], check=True)
    packages = next(there.glob("lib/python*/site-packages"))
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if part not in each.name:
            (packages / each.name).symlink_to(each)
    programs = there / "bin"
    program = programs / "tallystick"
    program.write_text(f'#!/bin/sh\nexec "{programs}/python" -m handlers.cli "$@"\n')
    program.chmod(0o700)
    return programs


def installing(scene: Scene, name: str, programs: Path) -> dict[str, str]:
    """Pack a package that is installed here into a wheel; return what makes pip find that alone."""
    shelf = scene.directory / "wheels"
    shelf.mkdir()
    found = metadata.distribution(name)
    text = found.read_text("WHEEL") or ""
    tag = next(line for line in text.splitlines() if line.startswith("Tag: ")).partition(" ")[2]
    file_name = f"{name.replace('-', '_')}-{found.version}-{tag}.whl"
    with zipfile.ZipFile(shelf / file_name, "w") as wheel:
        for file in found.files or ():
            if file.suffix != ".pyc" and ".." not in file.parts:
                wheel.write(str(file.locate()), str(file))
    return {
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_FIND_LINKS": str(shelf),
        "PIP_CONFIG_FILE": os.devnull,
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
    }
