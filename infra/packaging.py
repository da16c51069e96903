"""Packs what the functions run into zip files, the same bytes every time: ``make package``."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements" / "functions.txt"
PLACE = ROOT / "build" / "package"

# Where the platform unpacks a function: tracebacks name files as they lie there.
TASK_ROOT = "/var/task"
PYTHON = (3, 13)
# The platform's system has a newer libc than any of these; pip knows a platform by its exact tag only.
WHEEL_TAGS = (*(f"manylinux_2_{minor}" for minor in range(28, 16, -1)), "manylinux2014")

# What of ours is for people at a shell: no function may start a database of its own or print tables.
LEFT_OUT = ("handlers/cli", "handlers/demo", "shared/db/embedded.py", "bin")
# The services that functions call: the descriptions of all others are half a package, and nobody reads them.
SERVICES = frozenset({"lambda", "rds", "secretsmanager"})
# What pip writes about its own work: none of it is read, some of it differs from run to run.
INSTALLED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")

QUIET = {"HATCH_QUIET": "1"}
MISSING = """\
make package: Python 3.13 is not here; it compiles what runs on the platform. Name one:
make package ARGS="--interpreter /path/to/python3.13\""""

# The earliest a zip file can tell, and readable by whatever user the platform chooses.
EPOCH = (1980, 1, 1, 0, 0, 0)
MODE = 0o100644
UNIX = 3


@dataclass(frozen=True)
class Target:
    """What a zip is for: an interpreter that compiles for it, and a machine if it is another one."""

    name: str
    interpreter: str
    machine: str | None = None


def targets(interpreter: str) -> dict[str, Target]:
    """Return all targets by name; ``interpreter`` is the one that compiles for the platform."""
    return {
        "local": Target("local", sys.executable),
        "arm64": Target("arm64", interpreter, "aarch64"),
        "x86_64": Target("x86_64", interpreter, "x86_64"),
    }


def pack(target: Target, along: Mapping[str, Path], place: Path) -> Path:
    """Make the zip of one target in ``place`` and return its path; ``along`` are files by their names in it.

    Raises ``CalledProcessError`` where a wheel cannot be had or does not have the digest it is locked to.
    """
    with tempfile.TemporaryDirectory(prefix="tallystick-package-") as name:
        tree = Path(name) / "tree"
        _install(target, "--require-hashes", "--requirement", LOCK, tree=tree)
        _install(target, "--no-index", _own_wheel(Path(name)), tree=tree)
        prune(tree)
        for within, file in along.items():
            shutil.copyfile(file, tree / within)
        _compile(target, tree)
        place.mkdir(parents=True, exist_ok=True)
        return _zipped(tree, place / f"tallystick-{target.name}.zip")


def prune(tree: Path) -> None:
    """Remove from an installed tree what no function needs."""
    for path in (tree / name for name in LEFT_OUT):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for service in (tree / "botocore" / "data").iterdir():
        if service.is_dir() and service.name not in SERVICES:
            shutil.rmtree(service)
    for about in tree.glob("*.dist-info"):
        for name in INSTALLED:
            (about / name).unlink(missing_ok=True)


def _own_wheel(place: Path) -> Path:
    build = ("-m", "hatchling", "build", "--target", "wheel", "--directory", place)
    subprocess.run([sys.executable, *build], cwd=ROOT, env=os.environ | QUIET, check=True)
    (wheel,) = place.glob("*.whl")
    return wheel


def _install(target: Target, *what: str | Path, tree: Path) -> None:
    tags = [f"{tag}_{target.machine}" for tag in WHEEL_TAGS] if target.machine else []
    # pip runs under the target's interpreter, since markers of a lock are judged by the one it runs under.
    pip = (sys.executable, "-m", "pip", "--python", target.interpreter, "install", "--quiet")
    # --upgrade, since both bring a folder of scripts, which goes.
    wheels_only = (
        "--upgrade",
        "--only-binary=:all:",
        "--no-deps",
        "--no-compile",
        "--target",
        tree,
    )
    platforms = [f"--platform={tag}" for tag in tags]
    subprocess.run([*pip, *wheels_only, *platforms, *what], check=True)


def _compile(target: Target, tree: Path) -> None:
    """Compile all of a tree, so that bytecode is believed without a look at the source.

    The platform has a read-only file system and times of its own: what depends on times is compiled anew
    at every start.
    """
    options = ("-q", "--invalidation-mode=unchecked-hash", "-s", tree, "-p", TASK_ROOT)
    subprocess.run(
        [target.interpreter, "-m", "compileall", *options, tree],
        env={"PYTHONHASHSEED": "0"},
        check=True,
    )


def _zipped(tree: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
        for file in sorted(tree.rglob("*")):
            if file.is_file():
                info = zipfile.ZipInfo(file.relative_to(tree).as_posix(), EPOCH)
                info.create_system, info.external_attr = UNIX, MODE << 16
                made.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return path


def line(path: Path) -> str:
    """Return what is told of a zip: its name, its size, what it unpacks to, its digest."""
    with zipfile.ZipFile(path) as made:
        unpacked = sum(each.file_size for each in made.infolist())
    packed, digest = path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{path.name:24} {packed / 1e6:5.1f} MB, {unpacked / 1e6:5.1f} unpacked  {digest}"


def found(named: str | None) -> str | None:
    """Return an interpreter of the platform's release: the one named, or whatever is at hand; else None."""
    release = ".".join(map(str, PYTHON))
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    at_hand = [f"python{release}", *map(str, sorted(home.glob(f"versions/{release}.*/bin/python")))]
    ask = f"import sys; sys.exit(sys.version_info[:2] != {PYTHON})"
    for candidate in [named] if named else at_hand:
        try:
            subprocess.run([candidate, "-c", ask], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    return None


def main() -> None:
    """Pack the targets asked for, all of them if none is, and print sizes and digests."""
    parser = argparse.ArgumentParser(prog="make package")
    parser.add_argument("names", nargs="*", metavar="TARGET", help=", ".join(targets("")))
    parser.add_argument("--interpreter", help="Python 3.13, which compiles for the platform")
    parser.add_argument("--kinds", type=Path, help="kinds file that goes along as kinds.toml")
    parser.add_argument("--certificates", type=Path, help="goes along as certificates.pem")
    parser.add_argument("--to", type=Path, default=PLACE, help="directory of the zips")
    asked = parser.parse_args()
    interpreter = found(asked.interpreter)
    known = targets(interpreter or "")
    wanted = [known[name] for name in asked.names or known]
    if interpreter is None and any(target.machine for target in wanted):
        sys.exit(MISSING)
    given = {"kinds.toml": asked.kinds, "certificates.pem": asked.certificates}
    along = {name: path for name, path in given.items() if path is not None}
    for target in wanted:
        print(line(pack(target, along, asked.to)), flush=True)


if __name__ == "__main__":
    main()
