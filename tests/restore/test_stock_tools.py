"""The very files through zstd and psql: the same rows, or nothing at all."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shared.chain.batch import Header, header_line
from shared.chain.canonical import sha256_hex
from tests.operations.stage import Stage, batch_files, copied, execute, only_job
from tests.restore import every_type
from tests.restore.recipe import printed
from tests.restore.shelf import SHOP, TABLES, archived, assert_equal, brought
from tests.worlds import one

pytestmark = pytest.mark.system


def replayed(here: Stage, url: str) -> subprocess.CompletedProcess[str]:
    """Run the documented command."""
    files = batch_files(here, only_job(here))
    return printed(files[0].parent, url, sha256_hex(files[-1].read_bytes()))


def emptied(here: Stage, url: str) -> None:
    """Make the tables and bring no row."""
    account = brought(here, url, create_tables=True, keys=("-1",))
    assert account.batches_restored == 0


def test_psql_brings_every_type_back_byte_for_byte(
    database: str, volume_root: Path, empty_database: str
) -> None:
    every_type.declare(database)
    every_type.declare(empty_database)
    types = every_type.columns(database)
    every_type.create(database, types)
    every_type.fill(database, every_type.edges(types))
    kinds = every_type.KINDS.format("there")
    here = archived(database, volume_root, "SELECT", kinds=kinds, kind="there")
    emptied(here, empty_database)
    done = replayed(here, empty_database)
    assert done.returncode == 0, done.stderr
    assert_equal(database, empty_database, "every.type")


def test_psql_brings_related_rows_back(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    emptied(here, empty_database)
    assert replayed(here, empty_database).returncode == 0
    assert_equal(database, empty_database, *TABLES)


UNFIT = {
    "a table is missing": ("DROP TABLE shop.part",),
    "a column is missing": ("ALTER TABLE shop.part DROP name",),
    "a row is there already": (
        (
            "INSERT INTO shop.orders (id, customer, placed_at) OVERRIDING SYSTEM VALUE"
            " VALUES (45, 'mine', '2021-01-01Z')"
        ),
    ),
    "text that would be a command": (
        "ALTER TABLE shop.part DROP name",
        "CREATE TABLE shop.victim ()",
    ),
}


@pytest.mark.parametrize("how", UNFIT)
def test_psql_stops_at_a_target_that_does_not_fit_and_leaves_nothing(
    database: str, volume_root: Path, empty_database: str, how: str
) -> None:
    spiked = (
        *SHOP[:-1],
        (
            "INSERT INTO shop.part SELECT order_id, number,"
            r" E'\n\\.\nDROP TABLE shop.victim;\n\\! touch victim\n\\q\nCOMMIT;\n' FROM shop.line"
        ),
    )
    here = archived(database, volume_root, *spiked)
    execute(empty_database, *SHOP[:-3], *UNFIT[how])
    tables = ["shop.orders", "shop.line"]
    before = [copied(empty_database, f"SELECT * FROM {table}") for table in tables]
    done = replayed(here, empty_database)
    assert done.returncode != 0
    assert done.stderr
    assert [copied(empty_database, f"SELECT * FROM {table}") for table in tables] == before
    if how == "text that would be a command":
        assert one(empty_database, "SELECT to_regclass('shop.victim')") is not None
        assert not Path("victim").exists()


def test_a_raw_line_end_in_a_header_would_end_the_comment_and_be_obeyed(
    tmp_path: Path, database: str
) -> None:
    """psql takes a carriage return for the end of a comment: what follows it is no comment any more."""
    line = header_line(Header("job", 1, "0" * 64, ("\rSELECT 'obeyed'; --", "1"), "test"))
    raw = line.replace(b"\\r", b"\r")
    assert raw != line

    def said(header: bytes) -> str:
        script = tmp_path / "batch.sql"
        script.write_bytes(header)
        command = ["psql", "-X", "-q", "-f", str(script), database]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return str(done.stdout)

    assert said(line) == ""
    assert "obeyed" in said(raw)
