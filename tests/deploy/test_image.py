"""The image file against the checkout; the steps of its build are in test_image_steps."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.deploy import examples, image
from tests.deploy.image import ROOT

# What the wheel must hold is what a checkout holds, but for what Python leaves behind.
LEFT_BEHIND = {"__pycache__"}


def copied() -> list[tuple[str, str]]:
    """Return source and target of every file or directory that is copied out of the checkout."""
    found = []
    for each in image.instructions():
        if each.name == "COPY" and not each.text.startswith("--from"):
            *sources, target = each.words
            found += [(source, target) for source in sources]
    return found


def test_everything_that_is_copied_is_there_and_nothing_else_is_given_to_the_build() -> None:
    given = set(image.context())
    sources = {source for source, _ in copied()}
    assert sources
    for source in sources:
        inside = {path for path in given if path == source or path.startswith(f"{source}/")}
        assert inside, f"{source} is not there, or ignored"
        given -= inside
    assert given == set()


def test_what_is_given_to_the_build_holds_no_bytecode_and_no_secret() -> None:
    names = {Path(path).name for path in image.context()}
    assert "settings.py" in names
    assert [name for name in names if name.endswith(".pyc") or name.startswith(".env")] == []


def test_the_wheel_holds_every_file_of_the_program(tmp_path: Path) -> None:
    for path in image.context():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes((ROOT / path).read_bytes())
    building = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    subprocess.run(building, cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {
        path.relative_to(ROOT).as_posix()
        for folder in ("handlers", "shared")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not LEFT_BEHIND & set(path.parts)
    }
    assert {".py", ".sql", ".toml"} <= {Path(name).suffix for name in expected}
    assert held == expected


def test_the_image_is_built_on_one_base_that_is_pinned() -> None:
    bases = {each.words[0] for each in image.instructions() if each.name == "FROM"}
    assert len(bases) == 1
    base = bases.pop()
    assert re.fullmatch(r"python:3\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", base)
    minor = int(base.split("-")[0].split(".")[1])
    declared = (ROOT / "pyproject.toml").read_text()
    assert f'"Programming Language :: Python :: 3.{minor}"' in declared


def test_every_install_is_from_a_lock_by_hash_or_from_no_index_at_all() -> None:
    runs = " && ".join(each.text for each in image.instructions() if each.name == "RUN")
    installs = [step for step in runs.split(" && ") if " install " in step and "pip" in step]
    assert len(installs) == 3
    for step in installs:
        locked = "--require-hashes" in step and "--only-binary=:all:" in step
        assert locked or ("--no-index" in step and "--no-deps" in step), step


def test_the_image_runs_the_loop_without_a_shell_and_without_root() -> None:
    final = image.final()
    assert final["ENTRYPOINT"].text == '["tallystick"]'
    assert final["CMD"].text == '["run"]'
    assert final["STOPSIGNAL"].text == "SIGTERM"
    assert final["USER"].text == "65532:65532"
    assert image.environment()["PATH"] == "/opt/tallystick/bin:$PATH"


def test_the_volume_is_at_one_place_that_only_its_user_can_enter() -> None:
    final = image.final()
    (place,) = final["VOLUME"].words
    user = final["USER"].text.split(":")[0]
    assert f"install -d -m 0700 -o {user} -g {user} {place}" in final["RUN"].text
    loop = examples.compose()["services"]["loop"]
    assert loop["volumes"] == [f"archive:{place}"]
    assert loop["environment"]["TALLYSTICK_ARCHIVE_ROOT"] == place
    for name in examples.AT_WORK:
        for manifest in examples.manifests(name):
            pod = examples.job_spec(manifest)["template"]["spec"]
            assert str(pod["securityContext"]["runAsUser"]) == user
            archive = [
                mount["mountPath"]
                for container in examples.containers(manifest)
                for mount in container.get("volumeMounts", [])
                if mount["name"] == "archive"
            ]
            assert archive == [place]
