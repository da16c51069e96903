"""Another release of this program as a wheel, for remedies that install one."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from tests.remedies.scene import Scene, path

ROOT = Path(__file__).parents[2]
METADATA = "Metadata-Version: 2.1\nName: tallystick\nVersion: {}\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
SCRIPTS = "[console_scripts]\ntallystick = handlers.cli:main\n"
MIGRATIONS = "shared/db/migrations"


def release(scene: Scene, version: str, changed: dict[str, str]) -> dict[str, str]:
    """Build a wheel of our sources with other texts in it; return what lets pip find and install it.

    ``changed`` are texts by their path in the project; files that are not there are added. It is installed
    into a directory of the scene, whose programs are found first.
    """
    shelf, place = scene.directory / "wheels", scene.directory / "installed"
    shelf.mkdir()
    sources = {
        file.relative_to(ROOT).as_posix(): file.read_text("utf-8")
        for folder in ("handlers", "shared")
        for file in sorted((ROOT / folder).rglob("*"))
        if file.is_file() and file.suffix != ".pyc"
    }
    about = f"tallystick-{version}.dist-info"
    sources |= changed | {
        f"{about}/METADATA": METADATA.format(version),
        f"{about}/WHEEL": WHEEL,
        f"{about}/entry_points.txt": SCRIPTS,
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(shelf / f"tallystick-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in sources.items():
            wheel.writestr(name, text)
    return {
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_FIND_LINKS": str(shelf),
        "PIP_TARGET": str(place),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONPATH": str(place),
        "PATH": f"{place}/bin{os.pathsep}{path()}",
    }
