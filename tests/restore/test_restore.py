"""What comes back is what went in; what cannot come back is refused before anything is written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shared.errors import Code, Refused, Trouble
from shared.restore.restoration import Step
from tests.operations.stage import batch_files, copied, execute, only_job
from tests.restore.shelf import SHOP, TABLES, archived, assert_equal, brought
from tests.worlds import one

COUNTS = {"shop.orders": (45, 0), "shop.line": (90, 0), "shop.part": (180, 0)}
RECORDS = "SELECT count(*) FROM tallystick_restore.batch"


def emptied(url: str, *more: str) -> str:
    """Make the shop's tables without a row, then run more statements."""
    execute(url, *SHOP[:-3], *more)
    return url


def test_rows_come_back_byte_for_byte_into_tables_made_from_the_manifest(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    account = brought(here, empty_database, create_tables=True)
    assert account.rows == COUNTS
    assert account.created == list(TABLES)
    assert (account.batches_restored, account.batches_skipped) == (5, 0)
    assert_equal(database, empty_database, *TABLES)
    kinds = (
        "SELECT string_agg(contype::text, '' ORDER BY contype) FROM pg_constraint"
        " WHERE conrelid = %s::regclass AND contype <> 'n'"
    )
    assert [one(empty_database, kinds, table) for table in TABLES] == ["p", "fu", "f"]


def test_rows_come_back_into_tables_that_are_there(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    account = brought(here, emptied(empty_database))
    assert (account.rows, account.created) == (COUNTS, [])
    assert_equal(database, empty_database, *TABLES)


def test_a_restore_is_safe_to_run_again(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    brought(here, emptied(empty_database))
    account = brought(here, empty_database)
    assert (account.batches_restored, account.batches_skipped) == (0, 5)
    assert set(account.rows.values()) == {(0, 0)}
    assert_equal(database, empty_database, *TABLES)


def test_two_restores_at_once_bring_every_batch_once(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    with ThreadPoolExecutor(2) as both:
        twice = [both.submit(brought, here, empty_database, create_tables=True) for _ in range(2)]
        accounts = [each.result() for each in twice]
    assert sum(account.batches_restored for account in accounts) == 5
    assert sum(account.batches_skipped for account in accounts) == 5
    assert sorted(len(account.created) for account in accounts) == [0, 3]
    assert_equal(database, empty_database, *TABLES)


def test_sequences_go_past_what_came_in_and_never_backwards(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    emptied(empty_database, "SELECT setval('shop.line_number_seq', 1000)")
    account = brought(here, empty_database)
    assert account.sequences == [{"sequence": "shop.orders_id_seq", "value": 45}]
    new = "INSERT INTO shop.orders (customer, placed_at) VALUES ('new', now()) RETURNING id"
    assert one(empty_database, new) == 46
    assert one(empty_database, "SELECT nextval('shop.line_number_seq')") == 1001


def test_a_sequence_that_was_never_asked_does_not_give_a_value_that_came_in(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(
        database,
        volume_root,
        *SHOP[:-3],
        "INSERT INTO shop.orders (customer, placed_at) VALUES ('only', '2020-01-01Z')",
    )
    account = brought(here, emptied(empty_database))
    assert account.sequences == [{"sequence": "shop.orders_id_seq", "value": 1}]
    new = "INSERT INTO shop.orders (customer, placed_at) VALUES ('new', now()) RETURNING id"
    assert one(empty_database, new) == 2


def test_a_falling_sequence_goes_below_what_came_in(
    database: str, volume_root: Path, empty_database: str
) -> None:
    down = (
        "ALTER SEQUENCE shop.orders_id_seq INCREMENT -1 MINVALUE -1000 MAXVALUE -1 START -1 RESTART"
    )
    here = archived(
        database,
        volume_root,
        *SHOP[:-3],
        down,
        "INSERT INTO shop.orders (customer, placed_at)"
        " SELECT 'x', '2020-01-01Z' FROM generate_series(1, 3)",
    )
    account = brought(here, emptied(empty_database, down))
    assert account.sequences == [{"sequence": "shop.orders_id_seq", "value": -3}]


def test_tables_can_go_elsewhere(database: str, volume_root: Path) -> None:
    here = archived(database, volume_root)
    execute(database, "CREATE SCHEMA old")
    from shared.restore.tables import table_map

    account = brought(
        here,
        database,
        create_tables=True,
        to_schema="Back again",
        table_map=table_map(['shop.part="old"."bits=pieces"']),
    )
    assert account.created == ['"Back again".orders', '"Back again".line', 'old."bits=pieces"']
    for table, target in zip(TABLES, account.created, strict=True):
        assert copied(database, f"SELECT * FROM {target}") == copied(
            database, f"SELECT * FROM {table}"
        )
    # The same batches for other tables are other restores.
    account = brought(here, database, create_tables=True, to_schema="third")
    assert account.batches_restored == 5


def test_skip_leaves_rows_that_are_there_and_counts_them(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    emptied(
        empty_database,
        "INSERT INTO shop.orders (id, customer, placed_at) OVERRIDING SYSTEM VALUE"
        " VALUES (7, 'mine', '2021-01-01Z')",
        "INSERT INTO shop.line VALUES (7, 2, 1)",
    )
    account = brought(here, empty_database, skip=True)
    assert account.rows == {
        "shop.orders": (44, 1),
        "shop.line": (89, 1),
        "shop.part": (180, 0),
    }
    assert one(empty_database, "SELECT customer FROM shop.orders WHERE id = 7") == "mine"
    assert [str(each.code) for each in account.warnings if each.params["table"] == "shop.part"] == [
        "RESTORE_NOTHING_UNIQUE"
    ]


def test_a_row_that_is_there_stops_its_batch_and_keeps_those_before(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    emptied(
        empty_database,
        "INSERT INTO shop.orders (id, customer, placed_at) OVERRIDING SYSTEM VALUE"
        " VALUES (25, 'mine', '2021-01-01Z')",
    )
    with pytest.raises(Trouble) as caught:
        brought(here, empty_database)
    assert caught.value.code == Code.RESTORE_CONFLICT
    params = caught.value.params
    assert (
        params["cause"],
        params["file"],
        params["table"],
        params["constraint"],
        params["row"],
    ) == (
        *("unique", "000003.sql.zst", "shop.orders"),
        *("orders_pkey", 5),
    )
    assert "mine" not in str(params)
    counts = [one(empty_database, f"SELECT count(*) FROM {table}") for table in TABLES]
    assert counts == [21, 40, 80]
    assert one(empty_database, RECORDS) == 2
    execute(empty_database, "DELETE FROM shop.orders WHERE id = 25")
    assert brought(here, empty_database).batches_skipped == 2
    assert_equal(database, empty_database, *TABLES)


def test_a_dry_run_says_what_would_come_and_leaves_nothing(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    account = brought(here, empty_database, create_tables=True, dry_run=True)
    assert (account.rows, account.created) == (COUNTS, list(TABLES))
    there = "SELECT count(*) FROM pg_namespace WHERE nspname IN ('shop', 'tallystick_restore')"
    assert one(empty_database, there) == 0


def test_progress_tells_batches_and_rows(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    steps: list[Step] = []
    brought(here, empty_database, steps.append, create_tables=True)
    assert [(step.doing, step.done, step.batches) for step in steps[4:7]] == [
        ("verify", 5, 0),
        ("restore", 1, 5),
        ("restore", 2, 5),
    ]
    assert steps[-1].rows == 45 + 90 + 180


DAMAGE = {
    "cut": lambda data: data[:-20],
    "flipped": lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
    "appended": lambda data: data + b"x",
}


@pytest.mark.parametrize("how", DAMAGE)
def test_nothing_comes_out_of_a_broken_archive(
    database: str, volume_root: Path, empty_database: str, how: str
) -> None:
    here = archived(database, volume_root)
    file = batch_files(here, only_job(here))[-1]
    file.write_bytes(DAMAGE[how](file.read_bytes()))
    with pytest.raises(Trouble, match="ARCHIVE_BROKEN") as caught:
        brought(here, emptied(empty_database))
    assert caught.value.params["file"] == "000005.sql.zst"
    assert one(empty_database, "SELECT count(*) FROM shop.orders") == 0


def test_a_file_that_changes_after_it_verified_is_not_committed(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    files = batch_files(here, only_job(here))

    def swap(step: Step) -> None:
        if step.doing == "restore" and step.done == 2:
            files[2].write_bytes(files[3].read_bytes())

    with pytest.raises(Trouble, match="ARCHIVE_BROKEN") as caught:
        brought(here, emptied(empty_database), swap)
    assert (caught.value.params["cause"], caught.value.params["file"]) == (
        "changed",
        "000003.sql.zst",
    )
    assert one(empty_database, "SELECT count(*) FROM shop.orders") == 20


def test_files_past_the_expected_tail_are_left_out(
    database: str, volume_root: Path, empty_database: str
) -> None:
    from shared.restore.archives import place
    from shared.restore.restoration import Request, restore
    from tests.operations.stage import directory, units

    here = archived(database, volume_root)
    job = only_job(here)
    tail = units(here, job)[2]["sha256"]
    account = restore([place(directory(here, job), tail)], emptied(empty_database), Request())
    assert account.archives[0].unrecorded == (4, 5)
    assert account.archives[0].tail == tail
    assert account.rows["shop.orders"] == (30, 0)


def test_a_cut_off_end_is_told_from_the_expected_tail(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    batch_files(here, only_job(here))[-1].unlink()
    with pytest.raises(Trouble) as caught:
        brought(here, emptied(empty_database))
    assert caught.value.params["cause"] == "TAIL_NOT_FOUND"


def test_another_content_under_a_recorded_batch_is_refused(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    brought(here, emptied(empty_database))
    execute(empty_database, "UPDATE tallystick_restore.batch SET sha256 = 'other' WHERE seq = 2")
    with pytest.raises(Refused) as caught:
        brought(here, empty_database)
    assert [each["problem"] for each in caught.value.params["problems"]] == ["record_differs"]  # type: ignore[attr-defined]
    assert one(empty_database, "SELECT count(*) FROM shop.orders") == 45
