"""Trouble with an export: the directory it is to go to."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from shared.errors import Code
from tests.remedies.scene import Scene, Variables, remedy
from tests.remedies.source import NOWHERE
from tests.remedies.storage import BULKY, small_disk

UNTIL = ("--until", "2021-01-01")


def export(scene: Scene, directory: Path, *options: str) -> tuple[str, ...]:
    """Return the command that exports the orders."""
    return ("archive", "export", "orders", *UNTIL, "--directory", str(directory), *options)


def variables(directory: Path) -> Variables:
    return {"KIND": "orders", "UNTIL": UNTIL[1], "DIRECTORY": str(directory)}


@remedy(Code.EXPORT_DIRECTORY, 1)
def something_else_is_in_the_directory(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    there, new = scene.directory / "there", scene.directory / "new"
    there.mkdir(mode=0o700)
    (there / "letter.txt").write_text("Dear Sir")
    assert scene.ask(*export(scene, there), code=2)["params"]["cause"] == "not-empty"
    yield {**variables(there), "NEW": str(new)}
    assert [each.name for each in there.iterdir()] == ["letter.txt"]
    scene.ask("archive", "verify", str(new), "--require-final", code=0)


@remedy(Code.EXPORT_DIRECTORY, 2)
def the_directory_is_open_to_others(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    there = scene.directory / "there"
    there.mkdir()
    there.chmod(0o755)
    assert scene.ask(*export(scene, there), code=2)["params"]["cause"] == "mode"
    yield variables(there)
    scene.ask("archive", "verify", str(there), "--require-final", code=0)


@remedy(Code.EXPORT_STOPPED, 1)
def the_disk_of_the_export_is_full(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.sql(BULKY)
    with small_disk(scene.directory / "disk") as (disk, films):
        there = disk / "there"
        command = export(scene, there, "--batch-size", "20")
        assert scene.ask(*command, code=1)["params"]["cause"] == "ENOSPC"
        yield {**variables(there), "DISPENSABLE": str(films)}
        scene.ask("archive", "verify", str(there), "--require-final", code=0)


@remedy(Code.EXPORT_STOPPED, 2)
def a_file_of_an_unfinished_export_is_damaged(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    there, copy = scene.directory / "there", scene.directory / "copy"
    scene.ask(*export(scene, there, "--batch-size", "20"), code=0)
    subprocess.run(["cp", "-r", there, copy], check=True)
    # As if it had been interrupted before its last batch.
    (there / "000003.sql.zst").unlink()
    spoilt = there / "000001.sql.zst"
    spoilt.write_bytes(spoilt.read_bytes()[:-1])
    scene.ask(*export(scene, there), code=1)
    yield {**variables(there), "COPY": str(copy), "FILE": spoilt.name}
    scene.ask("archive", "verify", str(there), "--require-final", code=0)


@remedy(Code.SOURCE_FAILED, 1)
def the_url_of_the_source_leads_nowhere(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    there = scene.directory / "there"
    scene.setenv(SOURCE_URL=NOWHERE)
    assert scene.ask(*export(scene, there), code=1)["params"]["cause"] == "unreachable"
    yield {"SOURCE": scene.database, **variables(there)}
    scene.ask("archive", "verify", str(there), "--require-final", code=0)


@remedy(Code.SOURCE_FAILED, 2)
def the_user_of_the_source_may_not_read(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    there = scene.directory / "there"
    with scene.role() as role:
        scene.sql(f"GRANT USAGE ON SCHEMA app TO {role}")
        scene.sql(f"GRANT SELECT ON app.orders TO {role}")
        scene.setenv(SOURCE_URL=scene.url(role=role))
        scene.ask(*export(scene, there), code=1)
        grant = {"OWNER": scene.database, "TABLE": "app.line", "ROLE": role}
        yield {**grant, **variables(there)}
        scene.ask("archive", "verify", str(there), "--require-final", code=0)


@remedy(Code.SOURCE_FAILED, 3)
def the_table_was_altered_since_the_export_began(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    there, new = scene.directory / "there", scene.directory / "new"
    scene.ask(*export(scene, there, "--batch-size", "20"), code=0)
    # As if it had been interrupted before its last batch.
    (there / "000003.sql.zst").unlink()
    scene.sql("ALTER TABLE app.orders ADD COLUMN paid boolean")
    assert scene.ask(*export(scene, there), code=1)["params"]["cause"] == "manifest"
    yield {**variables(there), "NEW": str(new)}
    scene.ask("archive", "verify", str(new), "--require-final", code=0)
    scene.ask("archive", "verify", str(there), code=0)
