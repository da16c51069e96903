"""Trouble with queries: what DuckDB is for, and what it will not do."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from shared.errors import Code
from tests.remedies.bare import installing, without
from tests.remedies.reading import DEVICES, TOOLS
from tests.remedies.scene import Scene, Variables, remedy
from tests.remedies.storage import small_disk

TALLYSTICK = (sys.executable, "-m", "handlers.cli")
COUNT = "SELECT count(*) FROM app.tool"
NAMES = "SELECT name FROM app.tool ORDER BY id"


def asked(scene: Scene, query: str, code: int = 2) -> str:
    """Ask an archive, which must refuse, and return it."""
    archive = scene.exported("app.tool", *TOOLS)
    scene.ask("archive", "query", archive, query, code=code)
    return archive


@remedy(Code.QUERY_REFUSED, 1)
def a_query_wants_to_write(scene: Scene) -> Iterator[Variables]:
    archive = asked(scene, "DELETE FROM app.tool")
    yield {"ARCHIVE": archive, "SELECT": NAMES}
    assert scene.ask("archive", "query", archive, NAMES, code=0)["items"] == [
        {"name": "saw"},
        {"name": "file"},
    ]


@remedy(Code.QUERY_REFUSED, 2)
def two_columns_differ_in_case_alone(scene: Scene) -> Iterator[Variables]:
    archive = scene.exported("app.device", *DEVICES)
    told = scene.ask("archive", "query", archive, "SELECT 1 FROM app.device", code=2)
    assert told["params"]["cause"] == "case"
    yield {"ARCHIVE": archive, "TABLE": "app.device", "COLUMNS": "id,Name"}


@remedy(Code.QUERY_FAILED, 1)
def a_query_names_a_column_that_is_not_there(scene: Scene) -> Iterator[Variables]:
    archive = asked(scene, "SELECT nam FROM app.tool")
    yield {"ARCHIVE": archive, "TABLE": "app.tool", "QUERY": NAMES}
    scene.ask("archive", "query", archive, NAMES, code=0)


@remedy(Code.QUERY_FAILED, 2)
def a_query_asks_for_another_file(scene: Scene) -> Iterator[Variables]:
    archive = asked(scene, "SELECT * FROM app.tool JOIN '/etc/passwd' ON true")
    yield {"ARCHIVE": archive, "TABLE": "app.tool"}


@remedy(Code.OUTPUT_REFUSED, 1)
def a_file_lies_where_the_directory_should_be(scene: Scene) -> Iterator[Variables]:
    archive = scene.exported("app.tool", *TOOLS)
    place = scene.directory / "place"
    place.write_text("a file")
    scene.ask("archive", "query", archive, "--to-parquet", str(place), code=2)
    elsewhere = scene.directory / "elsewhere"
    yield {"ARCHIVE": archive, "ELSEWHERE": str(elsewhere)}
    assert (elsewhere / "app.tool.parquet").exists()


@remedy(Code.OUTPUT_REFUSED, 2)
def the_files_are_there_from_before(scene: Scene) -> Iterator[Variables]:
    archive = scene.exported("app.tool", *TOOLS)
    directory = scene.directory / "parquet"
    scene.ask("archive", "query", archive, "--to-parquet", str(directory), code=0)
    told = scene.ask("archive", "query", archive, "--to-parquet", str(directory), code=2)
    assert told["params"]["cause"] == "exists"
    yield {"ARCHIVE": archive, "DIRECTORY": str(directory)}
    assert (directory / "app.tool.parquet").exists()
    assert (scene.directory / "parquet.earlier" / "app.tool.parquet").exists()


@remedy(Code.QUERY_EXTRA_MISSING, 1)
def duckdb_is_not_installed(scene: Scene) -> Iterator[Variables]:
    archive = scene.exported("app.tool", *TOOLS)
    programs = without(scene, "duckdb")
    scene.elsewhere(f"{programs}/tallystick", "archive", "query", archive, NAMES, "--json", code=2)
    pip = installing(scene, "duckdb", programs)
    yield {"ARCHIVE": archive, "QUERY": NAMES, **pip}
    shutil.rmtree(programs.parent)


@remedy(Code.QUERY_EXTRA_MISSING, 2)
def duckdb_is_not_wanted(scene: Scene) -> Iterator[Variables]:
    archive = scene.exported("app.tool", *TOOLS)
    programs = without(scene, "duckdb")
    scene.elsewhere(f"{programs}/tallystick", "archive", "query", archive, NAMES, "--json", code=2)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    yield {"ARCHIVE": archive, "TABLE": "app.tool", "PART": "saw", "PATH": path}


BULK = "INSERT INTO app.tool SELECT i, '2020-01-01Z', repeat('x', 1000) FROM generate_series(9, 4000) AS i"


def too_much_for(scene: Scene, disk: Path) -> dict[str, str]:
    """Ask for more rows than a disk has room for; return what the remedy needs to ask again."""
    archive = scene.exported("app.tool", *TOOLS, BULK)
    asked = (*TALLYSTICK, "archive", "query", archive, COUNT, "--json")
    told = scene.elsewhere(*asked, code=2, env={"TMPDIR": str(disk)})
    assert told["error"]["params"]["cause"] == "ENOSPC"
    assert [each.name for each in disk.iterdir()] == ["films"]
    return {"ARCHIVE": archive, "QUERY": COUNT, "TMPDIR": str(disk)}


@remedy(Code.TEMPORARY_UNUSABLE, 1)
def another_disk_has_room(scene: Scene) -> Iterator[Variables]:
    roomy = scene.directory / "roomy"
    roomy.mkdir()
    with small_disk(scene.directory / "disk") as (disk, _):
        yield {**too_much_for(scene, disk), "ROOMY": str(roomy)}


@remedy(Code.TEMPORARY_UNUSABLE, 2)
def room_is_made_on_the_disk(scene: Scene) -> Iterator[Variables]:
    with small_disk(scene.directory / "disk") as (disk, films):
        yield {**too_much_for(scene, disk), "DISPENSABLE": str(films)}
