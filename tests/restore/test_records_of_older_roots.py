"""What the records say of batches whose older roots were left out: neither brought, nor gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.errors import Code, Verdict
from shared.restore.archives import Place
from shared.restore.restoration import Request, restore
from tests.operations.stage import Stage, execute, jobs
from tests.restore.shelf import SHOP, TABLES, again, archived, assert_equal, place
from tests.worlds import one

TABLES_ONLY = SHOP[:-3]
COUNT = "SELECT count(*) FROM shop.orders"


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    """Two archives of everything, the second one with another note in each root."""
    made = archived(database, volume_root, scope="all")
    execute(database, "UPDATE shop.orders SET note = 'newer'")
    again(made)
    return made


def both(here: Stage) -> list[Place]:
    return [place(here, job) for job in jobs(here)]


def test_a_restore_of_repeated_roots_may_be_run_again(
    here: Stage, database: str, empty_database: str
) -> None:
    execute(empty_database, *TABLES_ONLY)
    assert restore(both(here), empty_database, Request()).batches_restored == 10
    assert_equal(database, empty_database, *TABLES)
    assert restore(both(here), empty_database, Request()).batches_skipped == 10
    assert_equal(database, empty_database, *TABLES)


def test_a_table_that_only_older_roots_had_rows_of_is_not_taken_for_emptied(
    here: Stage, database: str, empty_database: str
) -> None:
    execute(database, "DELETE FROM shop.part")
    again(here)
    execute(empty_database, *TABLES_ONLY)
    restore(both(here), empty_database, Request())
    assert one(empty_database, "SELECT count(*) FROM shop.part") == 0
    assert restore(both(here), empty_database, Request()).batches_skipped == 15


def test_an_archive_whose_roots_were_left_out_is_not_taken_for_restored(
    here: Stage, empty_database: str
) -> None:
    execute(empty_database, *TABLES_ONLY, "ALTER TABLE shop.orders ADD CHECK (note <> 'newer')")
    with pytest.raises(Verdict) as caught:
        restore(both(here), empty_database, Request())
    assert caught.value.code is Code.RESTORE_CONFLICT
    assert one(empty_database, COUNT) == 0
    assert restore(both(here)[:1], empty_database, Request()).batches_restored == 5
    assert one(empty_database, COUNT) == 45
