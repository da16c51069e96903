"""What `make package` makes: the same bytes every time, only what functions need, ready to run."""

from __future__ import annotations

import _imp
import hashlib
import json
import platform
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra import packaging
from tests.golden.scenario import Shell
from tests.runtime.package import Workshop, variables

pytestmark = pytest.mark.timeout(300)

PACKED_MAX_BYTES = 20 * 1000 * 1000
UNCHECKED_HASH = 0b01
# Of an ELF header: which machine its code is for.
MACHINES = {62: "x86_64", 183: "aarch64"}

CONTENTS = {
    *("handlers", "shared", "annotated_types", "aws_lambda_powertools", "backports", "dotenv"),
    *("boto3", "botocore", "dateutil", "s3transfer", "six.py", "urllib3"),
    *("jmespath", "psycopg", "psycopg_binary", "psycopg_binary.libs", "pydantic", "pydantic_core"),
    *("pydantic_settings", "typing_extensions.py", "typing_inspection", "__pycache__"),
}

START = """
import sys
sys.path.insert(0, sys.argv[1])
"""
TICK = (
    START
    + """
import json
from handlers import archive

class Context:
    def get_remaining_time_in_millis(self):
        return 60000

print("ANSWER", json.dumps(archive.handler({}, Context())))
"""
)


def alone(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter that has nothing but its standard library and one folder."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, folder],
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.fixture
def without_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip use what was fetched beforehand, where something was."""
    for name, value in variables(sys.executable).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(
    params=[
        "local",
        *(pytest.param(name, marks=pytest.mark.system) for name in ("arm64", "x86_64")),
    ]
)
def target(request: pytest.FixtureRequest) -> packaging.Target:
    """Every target; those of the platform need its Python here, and an index."""
    interpreter = packaging.found(None)
    made = packaging.targets(interpreter or "")[request.param]
    if made.machine and interpreter is None:
        pytest.skip("there is no Python 3.13 here to compile for the platform")
    return made


@pytest.mark.system
@pytest.mark.parametrize("name", ["local", "arm64"])
def test_two_builds_are_the_same_bytes(workshop: Workshop, name: str) -> None:
    if name != "local" and packaging.found(None) is None:
        pytest.skip("there is no Python 3.13 here to compile for the platform")
    first, second = workshop.package(name), workshop.package(name, times=2)
    assert first != second
    assert first.read_bytes() == second.read_bytes()


def test_a_package_holds_what_functions_need_and_nothing_else(
    target: packaging.Target, workshop: Workshop
) -> None:
    zipped = workshop.package(target.name)
    assert zipped.stat().st_size <= PACKED_MAX_BYTES
    with zipfile.ZipFile(zipped) as file:
        names = file.namelist()
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == CONTENTS
    ours = [name for name in names if name.startswith(("handlers/", "shared/"))]
    assert [name for name in ours if "cli" in name.split("/") or "embedded" in name] == []
    assert [name for name in names if name.endswith(("/RECORD", "/INSTALLER"))] == []
    described = {name.split("/")[2] for name in names if re.match("botocore/data/[^/]+/", name)}
    assert described == packaging.SERVICES


def test_compiled_code_of_a_package_is_for_its_machine_and_release(
    target: packaging.Target, workshop: Workshop
) -> None:
    machines = set()
    with zipfile.ZipFile(workshop.package(target.name)) as file:
        for name in file.namelist():
            start = file.read(name)[:20]
            if start.startswith(b"\x7fELF"):
                machines.add(MACHINES[struct.unpack("<H", start[18:20])[0]])
        extensions = [name for name in file.namelist() if ".cpython-" in name and ".so" in name]
    assert machines == {target.machine or platform.machine()}
    minor = 13 if target.machine else sys.version_info[1]
    assert extensions
    assert [name for name in extensions if f".cpython-3{minor}-" not in name] == []


def test_every_module_has_bytecode_that_is_believed_without_a_look_at_times(
    target: packaging.Target, workshop: Workshop
) -> None:
    magic = subprocess.run(
        [target.interpreter, "-c", "import importlib.util as u; print(u.MAGIC_NUMBER.hex())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    tag = "313" if target.machine else f"3{sys.version_info[1]}"
    with zipfile.ZipFile(workshop.package(target.name)) as file:
        sources = [name for name in file.namelist() if name.endswith(".py")]
        for name in sources:
            folder, _, module = name.rpartition("/")
            compiled = f"{folder}/__pycache__/{module[:-3]}.cpython-{tag}.pyc".lstrip("/")
            header = file.read(compiled)[:16]
            assert header[:4].hex() == magic
            assert struct.unpack("<I", header[4:8])[0] == UNCHECKED_HASH
            # Hashed as that release does it, which need not be this one.
            hashed = _imp.source_hash(int.from_bytes(header[:4], "little"), file.read(name))
            assert header[8:] == hashed
    assert "handlers/archive.py" in sources


def test_what_is_told_of_a_package_are_its_sizes_and_its_digest(workshop: Workshop) -> None:
    zipped = workshop.package("local")
    name, *sizes, unpacked, digest = packaging.line(zipped).split()
    assert (name, unpacked) == (zipped.name, "unpacked")
    assert digest == hashlib.sha256(zipped.read_bytes()).hexdigest()
    packed = zipped.stat().st_size / 1e6
    whole = sum(
        each.stat().st_size for each in workshop.unpacked("local").rglob("*") if each.is_file()
    )
    assert sizes == [f"{packed:.1f}", "MB,", f"{whole / 1e6:.1f}"]


def test_a_package_ticks_from_its_own_folder(shell: Shell, workshop: Workshop) -> None:
    folder = workshop.unpacked("local")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    done = alone(TICK, folder)
    (answer,) = (line for line in done.stdout.splitlines() if line.startswith("ANSWER"))
    told = json.loads(answer.removeprefix("ANSWER"))
    assert (told["outcome"], told["roots"]) == ("progressed", 20)
    # The platform has this folder read-only: what it lacked would be made anew at every start.
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize("name", ["archive", "migrate", "operate", "prune", "scan"])
def test_a_handler_starts_without_what_it_may_never_need(name: str, workshop: Workshop) -> None:
    program = f"{START}\nimport handlers.{name}\nprint(*sys.modules)"
    loaded = set(alone(program, workshop.unpacked("local")).stdout.split())
    assert f"handlers.{name}" in loaded
    assert not loaded & {"boto3", "botocore", "httpx", "fastapi", "typer", "rich"}
    others = {"archive", "prune", "scan"} - {name}
    assert not loaded & {f"shared.operations.{other}" for other in others}


def test_every_service_that_functions_may_call_has_its_client(workshop: Workshop) -> None:
    program = f"""{START}
import boto3
account = {{"region_name": "eu-central-1", "aws_access_key_id": "x", "aws_secret_access_key": "x"}}
for name in {sorted(packaging.SERVICES)}:
    print(boto3.client(name, **account).meta.service_model.service_name)
signed = boto3.client("rds", **account).generate_db_auth_token("db.example", 5432, "archivist")
print(signed.partition("?")[0])
"""
    told = alone(program, workshop.unpacked("local")).stdout.split()
    assert told == [*sorted(packaging.SERVICES), "db.example:5432/"]


@pytest.mark.system  # it packs once more
def test_a_kinds_file_and_certificates_go_along(tmp_path: Path, without_index: None) -> None:
    kinds = tmp_path / "mine.toml"
    kinds.write_text("[kinds.a]\n")
    interpreter = packaging.Target("local", sys.executable)
    along = {"kinds.toml": kinds, "certificates.pem": kinds}
    with zipfile.ZipFile(packaging.pack(interpreter, along, tmp_path)) as file:
        assert {name: file.read(name) for name in along} == dict.fromkeys(along, kinds.read_bytes())


def test_a_wheel_that_is_not_what_was_locked_is_refused(
    tmp_path: Path,
    without_index: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(re.sub("(?<=sha256:).{4}", "0000", packaging.LOCK.read_text()))
    monkeypatch.setattr(packaging, "LOCK", lock)
    with pytest.raises(subprocess.CalledProcessError):
        packaging.pack(packaging.Target("local", sys.executable), {}, tmp_path / "zips")
    assert "DO NOT MATCH THE HASHES" in capfd.readouterr().err
    assert not (tmp_path / "zips").exists()


def test_without_the_platforms_python_nothing_is_packed_and_the_way_out_is_named(
    tmp_path: Path,
) -> None:
    asked = ("-m", "infra.packaging", "arm64", "--interpreter", "/nowhere", "--to", tmp_path)
    done = subprocess.run(
        [sys.executable, *asked], cwd=packaging.ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "--interpreter /path/to/python3.13" in done.stderr
    assert list(tmp_path.iterdir()) == []
