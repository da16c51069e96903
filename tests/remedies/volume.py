"""Trouble with volumes that are not there yet, not set, or there already."""

from __future__ import annotations

from collections.abc import Iterator

from shared.errors import Code
from tests.golden.scenario import KINDS, deployed
from tests.remedies.scene import SIGNED, Scene, Variables, remedy


def prepared(scene: Scene) -> None:
    """Set up tables, kinds and a volume; there is no policy and no plan yet."""
    deployed(scene.shell, scene.database, scene.root, scene.monkeypatch.setenv)
    scene.kinds.write_text(KINDS)
    scene.setenv(KINDS_FILE=scene.kinds)


@remedy(Code.VOLUME_UNKNOWN, 1)
def a_plan_is_made_for_a_new_volume(scene: Scene) -> Iterator[Variables]:
    prepared(scene)
    scene.do("policy", "set", "orders", "--after", "365d")
    scene.ask("volume", "adopt", *SIGNED, code=2)
    yield {"KIND": "orders"}
    assert scene.finishes()["roots"] == 45


@remedy(Code.VOLUME_UNKNOWN, 2)
def a_volume_is_adopted_before_it_was_used(scene: Scene) -> Iterator[Variables]:
    prepared(scene)
    scene.ask("volume", "adopt", *SIGNED, code=2)
    yield {}
    assert len(scene.ask("volume", "show", code=0)["items"]) == 1
    scene.do("volume", "adopt")


@remedy(Code.VOLUME_NOT_CONFIGURED, 1)
def a_node_lacks_the_settings_of_its_volume(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.setenv(ARCHIVE_ROOT=None, ARCHIVE_STORAGE_ID=None)
    assert scene.ask("tick", code=0)["note"]["code"] == "VOLUME_NOT_CONFIGURED"
    scene.ask("archive", "verify", "--all", code=2)
    yield {"ROOT": str(scene.root)}
    scene.finishes(job)


@remedy(Code.VOLUME_NOT_CONFIGURED, 2)
def there_is_no_volume_yet(scene: Scene) -> Iterator[Variables]:
    prepared(scene)
    scene.do("policy", "set", "orders", "--after", "365d")
    scene.setenv(ARCHIVE_ROOT=None, ARCHIVE_STORAGE_ID=None)
    scene.ask("plan", "set", "orders", *SIGNED, code=2)
    scene.root_at = scene.directory / "new"
    yield {"ROOT": str(scene.root)}
    scene.do("plan", "set", "orders", "--enable")
    assert scene.finishes()["roots"] == 45


@remedy(Code.VOLUME_NOT_CONFIGURED, 3)
def an_archive_is_read_without_a_volume(scene: Scene) -> Iterator[Variables]:
    job = scene.archived()
    directory = str(scene.directory_of(job))
    scene.setenv(ARCHIVE_ROOT=None, ARCHIVE_STORAGE_ID=None)
    scene.ask("archive", "verify", job, code=2)
    yield {"DIRECTORY": directory}


@remedy(Code.VOLUME_EXISTS, 1)
def a_node_starts_with_the_volume_there(scene: Scene) -> Iterator[Variables]:
    job = scene.in_mid_job()
    scene.setenv(ARCHIVE_ROOT=None, ARCHIVE_STORAGE_ID=None)
    root = ("volume", "init", "--root", str(scene.root))
    scene.ask(*root, code=2)
    other = scene.ask(*root, "--storage-id", "0" * 32, code=2)
    assert other["params"]["cause"] == "other"
    yield {"ROOT": str(scene.root)}
    scene.finishes(job)


@remedy(Code.VOLUME_EXISTS, 2)
def the_directory_is_in_use(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    used, new = scene.directory / "used", scene.directory / "new"
    used.mkdir(mode=0o700)
    (used / "letter.txt").write_text("Dear Sir")
    told = scene.ask("volume", "init", "--root", str(used), code=2)
    assert told["params"]["cause"] == "not-empty"
    yield {"NEW": str(new)}
    assert scene.ask("volume", "show", code=0)["root"] == str(new)
    assert [each.name for each in used.iterdir()] == ["letter.txt"]
