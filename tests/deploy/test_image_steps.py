"""The steps of the image file, carried out by hand: what a build would install is installed, and runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deploy import examples, image
from tests.deploy.deployment import AS_ANOTHER, AS_THE_FIRST, Deployment, composed
from tests.deploy.image import ROOT, Instruction

# They need a package index, as a build does, and util-linux.
pytestmark = pytest.mark.system

PLACES = re.compile(r"(?<!\w)/(?:build|opt/tallystick|archive)(?![\w.])")
# What only a root file system of its own can be given.
NEEDS_AN_IMAGE = ("groupadd", "useradd", "install -d")


class Build:
    """A build below a directory that stands for the root of the image."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.here = root
        self.steps: list[str] = []
        programs = root / "programs"
        programs.mkdir(parents=True)
        # The interpreter that made this environment stands for the one of the base image.
        (programs / "python").symlink_to(Path(getattr(sys, "_base_executable", sys.executable)))
        self.environment = os.environ | {"PATH": f"{programs}:{os.defpath}"}

    def place(self, text: str) -> str:
        """Return a text with the places of the image moved below the root."""
        return PLACES.sub(lambda found: f"{self.root}{found[0]}", text)

    def carry_out(self, instruction: Instruction) -> None:
        """Do what an instruction says; those that only describe the image do nothing here."""
        if instruction.name == "WORKDIR":
            self.here = Path(self.place(instruction.text))
            self.here.mkdir(parents=True)
        elif instruction.name == "COPY":
            self._copy(instruction.words)
        elif instruction.name == "RUN":
            for step in instruction.text.split(" && "):
                if not step.startswith(NEEDS_AN_IMAGE):
                    self._run(step)

    def _run(self, step: str) -> None:
        self.steps.append(step)
        ended = subprocess.run(
            ["sh", "-c", self.place(step)],
            cwd=self.here,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, (step, ended.stdout, ended.stderr)

    def _copy(self, words: list[str]) -> None:
        if words[0].startswith("--from="):
            # The same place in both stages: an environment cannot be moved.
            _, source, target = words
            assert source == target
            assert Path(self.place(source)).is_dir()
            # And nothing else of the first stage is left.
            shutil.rmtree(self.here)
            return
        *sources, target = words
        for source in sources:
            for path in image.context():
                if path == source:
                    # A file goes into a directory, under its own name.
                    assert target.endswith("/")
                    goal = self.here / target / Path(path).name
                elif path.startswith(f"{source}/"):
                    # Of a directory the contents are copied, not the directory.
                    goal = self.here / target / Path(path).relative_to(source)
                else:
                    continue
                goal.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, goal)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return the directory that the image finds its program in, after every step of the build."""
    build = Build(tmp_path / "image")
    for instruction in image.instructions():
        build.carry_out(instruction)
    assert len(build.steps) == 6
    return build.root / "opt" / "tallystick" / "bin"


def assert_installed(programs: Path) -> None:
    """Check that this version is there, and beside it only what the lock names."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    said = subprocess.run(
        [programs / "tallystick", "--version"], capture_output=True, text=True, check=True
    )
    assert said.stdout == f"tallystick {version}\n"
    listing = "import importlib.metadata as m; print(*(d.name for d in m.distributions()))"
    found = subprocess.run(
        [programs / "python", "-c", listing], capture_output=True, text=True, check=True
    ).stdout.split()
    locked = (ROOT / "requirements" / "run.txt").read_text()
    names = {re.sub("[._]", "-", name.lower()) for name in found}
    assert {"tallystick", "psycopg"} <= names
    assert [name for name in names - {"tallystick"} if f"{name}==" not in locked] == []


# One test, for one build; what it takes depends on the index.
@pytest.mark.timeout(900)
def test_what_the_build_installs_is_what_is_locked_and_runs_as_a_user_without_a_name(
    programs: Path, empty_database: str, volume_root: Path
) -> None:
    assert_installed(programs)
    kinds = examples.INFRA / "compose" / "kinds.toml"
    for within in (AS_ANOTHER, AS_THE_FIRST):
        here = Deployment(programs, empty_database, volume_root, kinds, within)
        loop, given = composed(here)
        here.plan(given)
        here.ticks_until("finished" if within is AS_ANOTHER else "idle", loop, given)
