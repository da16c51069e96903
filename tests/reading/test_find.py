"""``archive find``: one root with its whole tree, quickly, from an index that is never believed."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from shared.restore import index as indexes
from tests.operations import stage as stages
from tests.reading.scene import NOTE, Scene, again

KEY = ("b,c", "12")


def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "tallystick" / "index"


def indexed(tmp_path: Path) -> list[Path]:
    return sorted(folder(tmp_path).iterdir())


def change(file: Path, statement: str) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("key", [("b,c", "12"), ('"b,c",12',)])
def test_a_root_is_shown_with_its_whole_tree(shop: Scene, key: tuple[str, ...]) -> None:
    answered = shop("archive", "find", "tickets", *key, "--json")
    assert answered.code == 0
    (place,) = answered.json()["places"]
    first = stages.jobs(shop.stage)[0]
    unit = stages.units(shop.stage, first)[1]
    assert (place["job"], place["file"], place["sha256"]) == (
        str(first.id), "000002.sql.zst", unit["sha256"],
    )  # fmt: skip
    assert place["anchored"] is True
    (ticket,) = place["rows"]["app.ticket"]
    assert (ticket["shop"], ticket["number"]) == KEY
    notes = place["rows"][NOTE]
    assert sorted(note["id"] for note in notes) == ["121", "122"]
    assert all(note["padded"] == "ab   " and note["ok"] == "t" for note in notes)
    assert len(place["rows"]["app.tag"]) == 8
    assert {tag["note_id"] for tag in place["rows"]["app.tag"]} == {"121", "122"}
    assert {tag["word"] for tag in place["rows"]["app.tag"]} == {"", "\\.", "x", None}


def test_a_key_is_found_by_its_value_however_it_is_escaped(shop: Scene) -> None:
    answered = shop("archive", "find", shop.directories[0], 'a\tb\\"c', "7", "--json")
    (place,) = answered.json()["places"]
    assert place["rows"]["app.ticket"][0]["number"] == "7"
    assert place["anchored"] is False


def test_people_see_every_value_on_one_line(shop: Scene) -> None:
    text = shop("archive", "find", shop.directories[0], 'a\tb\\"c', "13").raw.decode()
    assert '  shop       a\\tb\\"c' in text
    assert "app.tag: 8 rows" in text
    assert "NULL" in text
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize("options", [(), ("--no-index",)])
def test_a_root_that_is_nowhere_is_told_with_the_columns_of_the_key(
    shop: Scene, options: tuple[str, ...]
) -> None:
    answered = shop("archive", "find", "tickets", "b,c", "13", *options)
    assert (answered.code, answered.raw) == (1, b"")
    assert "shop, number" in answered.err
    short = shop("archive", "find", "tickets", "b", *options)
    assert short.code == 2


@pytest.mark.parametrize("options", [(), ("--no-index",)])
def test_a_key_that_is_no_text_is_refused(shop: Scene, options: tuple[str, ...]) -> None:
    found = shop("archive", "find", "tickets", "b,c", "\udcff", *options)
    assert (found.code, found.raw) == (2, b"")
    assert r"\udcff" in found.err


def test_a_root_in_several_archives_is_shown_from_all_of_them_newest_first(shop: Scene) -> None:
    stages.plan(shop.stage, "tickets", batch_size=20, scope="all")
    again(shop.stage)
    jobs = [str(job.id) for job in stages.jobs(shop.stage)]
    for options in ((), ("--no-index",)):
        found = shop("archive", "find", "tickets", *KEY, "--json", *options).json()["places"]
        assert [place["job"] for place in found] == [jobs[2], jobs[0]]
        assert found[0]["rows"]["app.ticket"] == found[1]["rows"]["app.ticket"]


def lost_entries(file: Path) -> None:
    change(file, "DELETE FROM entry")


def wrong_batches(file: Path) -> None:
    change(file, "UPDATE OR REPLACE entry SET seq = 1 + seq % 5")


def wrong_digests(file: Path) -> None:
    change(file, f"UPDATE batch SET sha256 = '{'0' * 64}' WHERE seq = 2")


def wrong_positions(file: Path) -> None:
    change(file, "UPDATE batch SET after = '{}' WHERE seq = 1")


def missing_batches(file: Path) -> None:
    change(file, "DELETE FROM batch WHERE seq = 1")


def no_tables(file: Path) -> None:
    change(file, "ALTER TABLE entry RENAME TO other")


def garbage(file: Path) -> None:
    file.write_bytes(b"this is no database" * 1000)


def torn(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:4096] + b"\0" * (len(content) - 4096))


def gone(file: Path) -> None:
    file.unlink()


CHANGES = [
    *(lost_entries, wrong_batches, wrong_digests, wrong_positions, missing_batches, no_tables),
    *(garbage, torn, gone),
]


def test_an_index_that_is_wrong_is_built_again(shop: Scene, tmp_path: Path) -> None:
    command = ("archive", "find", shop.directories[0], *KEY, "--json")
    good = shop(*command).json()
    (file,) = indexed(tmp_path)
    for spoil in CHANGES:
        spoil(file)
        assert shop(*command).json() == good, spoil
        with sqlite3.connect(file) as connection:
            assert connection.execute("SELECT count(*) FROM entry").fetchone() == (40,)
        connection.close()


def test_an_index_that_is_right_is_not_built_again(shop: Scene, tmp_path: Path) -> None:
    command = ("archive", "find", shop.directories[0], *KEY)
    assert shop(*command).code == 0
    (file,) = indexed(tmp_path)
    before = file.stat()
    assert shop(*command).code == 0
    after = file.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_keys_with_the_same_hash_are_told_apart_by_the_rows(
    shop: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "hash_of", lambda _key: 1)
    for number in ("12", "38"):
        (place,) = shop("archive", "find", "tickets", "b,c", number, "--json").json()["places"]
        assert place["rows"]["app.ticket"][0]["number"] == number


def test_an_index_grows_with_its_archive_and_is_built_again_when_that_is_rolled_back(
    shop: Scene, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(shop.directories[0], copy)
    files = sorted(copy.glob("*.zst"))
    for file in files[3:]:
        file.rename(tmp_path / file.name)
    assert shop("archive", "find", copy, "b,c", "38").code == 1
    for file in files[3:]:
        (tmp_path / file.name).rename(file)
    assert shop("archive", "find", copy, "b,c", "38").code == 0
    for file in files[3:]:
        file.unlink()
    assert shop("archive", "find", copy, "b,c", "38").code == 1
    assert shop("archive", "find", copy, *KEY).code == 0


@pytest.mark.parametrize("before", [True, False])
def test_nothing_is_shown_of_a_file_that_was_changed(shop: Scene, before: bool) -> None:
    if before:
        assert shop("archive", "find", shop.directories[0], *KEY).code == 0
    file = stages.batch_files(shop.stage, stages.jobs(shop.stage)[0])[1]
    content = file.read_bytes()
    file.write_bytes(content[:-3] + b"\0\0\0")
    for options in ((), ("--no-index",)):
        found = shop("archive", "find", shop.directories[0], *KEY, *options)
        assert (found.code, found.raw) == (1, b"")
        assert "000002.sql.zst" in found.err or "000003.sql.zst" in found.err
    file.write_bytes(content)
    assert shop("archive", "find", shop.directories[0], *KEY).code == 0


def test_a_tail_that_is_not_in_the_archive_shows_nothing(shop: Scene) -> None:
    files = stages.batch_files(shop.stage, stages.jobs(shop.stage)[0])
    assert shop("archive", "find", "tickets", *KEY).code == 0
    files[-1].unlink()
    for options in ((), ("--no-index",)):
        found = shop("archive", "find", "tickets", *KEY, *options)
        assert (found.code, found.raw) == (1, b"")


def test_an_index_that_cannot_be_kept_is_said(shop: Scene, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    found = shop("archive", "find", shop.directories[0], *KEY, "--index", blocked)
    assert (found.code, found.raw) == (2, b"")
    assert "--no-index" in found.err


def test_indexes_of_a_deployment_are_kept_in_its_home(shop: Scene, tmp_path: Path) -> None:
    assert shop("archive", "find", "tickets", *KEY).code == 0
    made = list((tmp_path / "home" / "index").iterdir())
    assert len(made) == 2
    assert (tmp_path / "home" / "index").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in made} == {0o600}
