"""Trouble with reading archives: damaged, unknown, or asked in a way that has no answer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from shared.errors import Code
from tests.remedies.scene import Scene, Variables, remedy
from tests.worlds import one

DEVICES = (
    "CREATE SCHEMA app",
    (
        "CREATE TABLE app.device (id integer PRIMARY KEY, at timestamptz NOT NULL, name text,"
        ' "Name" text, size integer GENERATED ALWAYS AS (length(name)) STORED)'
    ),
    "INSERT INTO app.device VALUES (7, '2020-01-01Z', 'lamp', 'Lamp'), (8, '2020-01-01Z', 'saw', 'Saw')",
)
# Fine for DuckDB.
TOOLS = (
    "CREATE SCHEMA app",
    "CREATE TABLE app.tool (id integer PRIMARY KEY, at timestamptz NOT NULL, name text)",
    "INSERT INTO app.tool VALUES (7, '2020-01-01Z', 'saw'), (8, '2020-01-01Z', 'file')",
)


@remedy(Code.ROOT_NOT_FOUND, 1)
def the_key_is_written_otherwise(scene: Scene) -> Iterator[Variables]:
    archive = scene.exported("app.tool", *TOOLS)
    scene.setenv(HOME=scene.directory / "home")
    scene.monkeypatch.setenv("XDG_CACHE_HOME", str(scene.directory / "cache"))
    scene.ask("archive", "find", archive, "007", code=1)
    columns = {"TABLE": "app.tool", "COLUMNS": "id,name", "PART": "saw"}
    yield {"ARCHIVE": archive, "KEY": "7", **columns}
    scene.ask("archive", "find", archive, "7", "--no-index", code=0)


@remedy(Code.ROOT_NOT_FOUND, 2)
def the_root_is_in_another_job(scene: Scene) -> Iterator[Variables]:
    scene.archived()
    scene.sql("INSERT INTO app.orders (customer, placed_at) VALUES ('new', '2024-06-01')")
    scene.time_passes()
    job = str(scene.finishes()["id"])
    scene.ask("archive", "find", job, "7", code=1)
    yield {"KIND": "orders", "KEY": "7"}
    assert len(scene.ask("archive", "find", "orders", "7", code=0)["places"]) == 1


@remedy(Code.ROOT_NOT_FOUND, 3)
def the_root_is_not_old_enough(scene: Scene) -> Iterator[Variables]:
    scene.archived()
    scene.sql("INSERT INTO app.orders (customer, placed_at) VALUES ('new', now())")
    scene.ask("archive", "find", "orders", "46", code=1)
    yield {"SOURCE": scene.database, "TABLE": "app.orders", "COLUMN": "id", "KEY": "46"}
    assert one(scene.database, "SELECT customer FROM app.orders WHERE id = 46") == "new"


def spoilt(scene: Scene, job: str) -> bytes:
    """Cut the second batch of a job short; return what was in it."""
    file = scene.directory_of(job) / "000002.sql.zst"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    scene.ask("archive", "cat", job, "--table", "app.line", code=1)
    return content


@remedy(Code.ARCHIVE_BROKEN, 1)
def a_file_is_cut_off_and_there_is_a_copy(scene: Scene) -> Iterator[Variables]:
    job = scene.archived()
    content = spoilt(scene, job)
    copy = scene.directory / "copy"
    copy.mkdir()
    (copy / "000002.sql.zst").write_bytes(content)
    directory = str(scene.directory_of(job))
    yield {"COPY": str(copy), "FILE": "000002.sql.zst", "DIRECTORY": directory}
    assert scene.shell("archive", "cat", job, "--table", "app.line").code == 0


@remedy(Code.ARCHIVE_BROKEN, 2)
def the_job_before_is_missing(scene: Scene) -> Iterator[Variables]:
    first = scene.archived()
    scene.sql("INSERT INTO app.orders (customer, placed_at) VALUES ('new', '2024-06-01')")
    scene.time_passes()
    scene.finishes()
    directory = scene.directory_of(first)
    copy = scene.directory / "copy"
    copy.mkdir()
    directory.rename(copy / directory.name)
    told = scene.ask("archive", "cat", str(scene.root), "--table", "app.line", code=1)
    assert told["params"]["cause"] == "previous-missing"
    yield {"COPY": str(copy), "JOB_DIRECTORY": directory.name, "ROOT": str(scene.root)}
    assert scene.shell("archive", "cat", str(scene.root), "--table", "app.line").code == 0


@remedy(Code.ARCHIVE_BROKEN, 3)
def the_rows_are_still_in_the_source(scene: Scene) -> Iterator[Variables]:
    job = scene.archived()
    spoilt(scene, job)
    yield {"KIND": "orders"}
    again = scene.newest()
    assert (again["state"], again["roots"]) == ("SUCCEEDED", 45)
    assert again["id"] != job
    assert scene.shell("archive", "cat", again["id"], "--table", "app.line").code == 0


@remedy(Code.ARCHIVE_BROKEN, 4)
def only_this_archive_has_the_rows(scene: Scene) -> Iterator[Variables]:
    job = scene.archived()
    spoilt(scene, job)
    scene.sql("DELETE FROM app.line")
    scene.sql("DELETE FROM app.orders")
    directory = str(scene.directory_of(job))
    yield {"DIRECTORY": directory, "BEFORE": "000001.sql.zst", "TARGET": scene.database}
    assert one(scene.database, "SELECT count(*) FROM app.orders") == 20


@remedy(Code.ARCHIVE_UNKNOWN, 1)
def a_kind_was_misspelt(scene: Scene) -> Iterator[Variables]:
    scene.archived()
    scene.ask("archive", "find", "ordres", "7", code=2)
    yield {"KIND": "orders", "KEY": "7"}
    scene.ask("archive", "find", "orders", "7", code=0)


@remedy(Code.ARCHIVE_UNKNOWN, 2)
def a_directory_holds_no_archive(scene: Scene) -> Iterator[Variables]:
    job = scene.archived()
    at = scene.root / ".evidence"
    told = scene.ask("archive", "cat", str(at), "--table", "app.line", code=2)
    assert told["params"]["cause"] == "no-archive"
    directory = scene.directory_of(job).name
    yield {"ROOT": str(scene.root), "DIRECTORY": directory, "TABLE": "app.line"}


@remedy(Code.ARCHIVE_UNKNOWN, 3)
def another_namespace_has_the_kind(scene: Scene) -> Iterator[Variables]:
    scene.archived()
    scene.do("namespaces", "create", "branch")
    told = scene.ask("archive", "find", "orders", "7", "--namespace", "branch", code=2)
    assert told["params"]["cause"] == "other-namespace"
    yield {"KIND": "orders", "KEY": "7", "NAMESPACE": "default"}


LARGE = (
    "CREATE SCHEMA app",
    "CREATE TABLE app.film (id integer PRIMARY KEY, at timestamptz NOT NULL, body text)",
    "INSERT INTO app.film VALUES (1, '2020-01-01Z', repeat('x', 3 * 1024 * 1024))",
)


@remedy(Code.ROW_TOO_LARGE, 1)
def rows_are_larger_than_is_held(scene: Scene) -> Iterator[Variables]:
    archive = scene.exported("app.film", *LARGE)
    scene.setenv(ROW_MAX_BYTES=1024 * 1024)
    scene.ask("archive", "find", archive, "1", "--no-index", code=2)
    yield {"ARCHIVE": archive, "TABLE": "app.film", "LARGER": "4194304"}


@remedy(Code.ROW_TOO_LARGE, 2)
def all_rows_are_wanted(scene: Scene) -> Iterator[Variables]:
    archive = scene.exported("app.film", *LARGE)
    scene.setenv(ROW_MAX_BYTES=1024 * 1024)
    scene.ask("archive", "find", archive, "1", "--no-index", code=2)
    scene.sql("DROP TABLE app.film")
    yield {"ARCHIVE": archive, "SCRATCH_DATABASE": scene.database}
    assert one(scene.database, "SELECT count(*) FROM app.film") == 1


@remedy(Code.ARCHIVE_TABLE_UNKNOWN, 1)
def a_table_was_misspelt(scene: Scene) -> Iterator[Variables]:
    archive = scene.exported("app.tool", *TOOLS)
    scene.ask("archive", "cat", archive, "--table", "app.tools", code=2)
    yield {"ARCHIVE": archive, "SCHEMA": "app", "TABLE": "tool"}


@remedy(Code.ARCHIVE_TABLE_UNKNOWN, 2)
def another_kind_has_the_table(scene: Scene) -> Iterator[Variables]:
    scene.archived()
    archive = scene.exported("app.tool", *TOOLS[1:])
    scene.ask("archive", "cat", archive, "--table", "app.line", code=2)
    yield {"KIND": "orders", "SCHEMA": "app", "TABLE": "line"}


@remedy(Code.ARCHIVE_COLUMN_UNKNOWN, 1)
def a_column_was_misspelt(scene: Scene) -> Iterator[Variables]:
    archive = scene.exported("app.tool", *TOOLS)
    asked = ("archive", "cat", archive, "--table", "app.tool", "--columns")
    scene.ask(*asked, "id,nam", code=2)
    yield {"ARCHIVE": archive, "TABLE": "app.tool", "COLUMNS": "id,name"}
    assert scene.shell(*asked, "id,name").out == "id,name\n7,saw\n8,file\n"


@remedy(Code.ARCHIVE_COLUMN_UNKNOWN, 2)
def a_column_is_generated(scene: Scene) -> Iterator[Variables]:
    archive = scene.exported("app.device", *DEVICES)
    asked = ("archive", "cat", archive, "--table", "app.device", "--columns", "size")
    assert scene.ask(*asked, code=2)["params"]["cause"] == "generated"
    with scene.another_database() as target:
        yield {"ARCHIVE": archive, "TARGET": target, "SCHEMA": "old"}
        assert one(target, "SELECT sum(size) FROM old.device") == 7


@remedy(Code.DIRECTORY_UNREADABLE, 1)
def the_path_is_wrong(scene: Scene) -> Iterator[Variables]:
    job = scene.archived()
    directory = scene.directory_of(job)
    told = scene.ask("archive", "verify", f"{directory}x", code=2)
    assert told["params"]["cause"] == "ENOENT"
    yield {"ROOT": str(scene.root), "DIRECTORY": directory.name}


@remedy(Code.DIRECTORY_UNREADABLE, 2)
def the_path_is_a_link(scene: Scene) -> Iterator[Variables]:
    archive = scene.exported("app.tool", *TOOLS)
    link = scene.directory / "link"
    link.symlink_to(archive)
    assert scene.ask("archive", "verify", str(link), code=2)["params"]["cause"] == "ELOOP"
    yield {"LINK": str(link)}


@remedy(Code.DIRECTORY_UNREADABLE, 3)
def the_directory_of_a_job_is_gone(scene: Scene) -> Iterator[Variables]:
    job = scene.archived()
    directory = scene.directory_of(job)
    copy = scene.directory / "copy"
    copy.mkdir()
    shutil.move(directory, copy)
    scene.ask("archive", "verify", job, code=2)
    yield {"COPY": str(copy), "DIRECTORY": directory.name, "ROOT": str(scene.root), "JOB": job}
    assert scene.ask("archive", "verify", "--all", code=0)["items"][0]["verdict"] == "SOUND"


@remedy(Code.INDEX_UNUSABLE, 1)
def something_else_lies_in_place_of_the_index(scene: Scene) -> Iterator[Variables]:
    archive = no_index(scene)
    elsewhere = scene.directory / "elsewhere"
    yield {"ARCHIVE": archive, "KEY": "7", "ELSEWHERE": str(elsewhere)}
    assert list(elsewhere.glob("*.sqlite"))


@remedy(Code.INDEX_UNUSABLE, 2)
def no_index_is_kept(scene: Scene) -> Iterator[Variables]:
    archive = no_index(scene)
    yield {"ARCHIVE": archive, "KEY": "7"}


def no_index(scene: Scene) -> str:
    """Put a file where the indexes should be kept, and return an archive that has none for that."""
    archive = scene.exported("app.tool", *TOOLS)
    cache = scene.directory / "cache"
    cache.write_text("a file")
    scene.monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    scene.ask("archive", "find", archive, "7", code=2)
    return archive
