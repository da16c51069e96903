"""One root with its whole tree comes back without the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.errors import Code, Refused
from tests.operations.stage import copied, execute
from tests.restore.shelf import SHOP, TABLES, archived, brought
from tests.worlds import one

OF = {
    "shop.orders": "SELECT * FROM shop.orders WHERE id IN ({})",
    "shop.line": "SELECT * FROM shop.line WHERE order_id IN ({})",
    "shop.part": "SELECT * FROM shop.part WHERE order_id IN ({})",
}


def assert_only(source: str, target: str, ids: str) -> None:
    """Check that the target holds exactly the trees of these orders, and them whole."""
    for table in TABLES:
        expected = copied(source, OF[table].format(ids))
        assert expected
        assert copied(target, f"SELECT * FROM {table}") == expected


def test_roots_come_back_by_key_with_everything_below_them(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    account = brought(here, empty_database, create_tables=True, keys=("7", "31", "99"))
    assert account.rows == {
        "shop.orders": (2, 0),
        "shop.line": (4, 0),
        "shop.part": (8, 0),
    }
    assert (account.batches_restored, account.keys_missing) == (2, ["99"])
    assert_only(database, empty_database, "7, 31")


def test_a_customers_rows_come_back_by_condition(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    where = ("customer=customer 3", "mood=so, so")
    dry = brought(here, empty_database, create_tables=True, where=where, dry_run=True)
    account = brought(here, empty_database, create_tables=True, where=where)
    assert account.rows == dry.rows
    assert account.batches_restored == dry.batches_restored
    ids = "SELECT id FROM shop.orders WHERE customer = 'customer 3' AND mood = 'so, so'"
    assert_only(database, empty_database, ids)


def test_a_condition_can_ask_for_null(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    brought(here, empty_database, create_tables=True, where=(r"note=\N",))
    assert_only(database, empty_database, "SELECT id FROM shop.orders WHERE note IS NULL")


def test_what_was_chosen_before_is_no_obstacle_for_the_rest(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    execute(empty_database, *SHOP[:-3])
    execute(empty_database, "CREATE UNIQUE INDEX ON shop.part (order_id, number, name)")
    brought(here, empty_database, keys=("7",))
    again = brought(here, empty_database, keys=("7",))
    assert (again.batches_restored, again.batches_skipped, again.keys_missing) == (0, 1, [])
    account = brought(here, empty_database, skip=True)
    assert account.rows["shop.orders"] == (44, 1)
    for table in TABLES:
        assert copied(empty_database, f"SELECT * FROM {table}") == copied(
            database, f"SELECT * FROM {table}"
        )


ODD = """
[kinds.orders]
root = "shop.orders"
time = "at"
[[kinds.orders.related]]
table = "shop.line"
foreign_key = ["code", "amount"]
references = "shop.orders"
"""


def test_keys_of_several_columns_and_joins_of_other_types_are_found(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(
        database,
        volume_root,
        "CREATE SCHEMA shop",
        'CREATE TABLE shop.orders (code character(5), amount numeric, at date, "a=b" text,'
        " PRIMARY KEY (code, amount))",
        "CREATE TABLE shop.line (code varchar(9), amount bigint, name text)",
        "INSERT INTO shop.orders VALUES ('a,b', 1.00, '2020-01-01', 'x=y'),"
        " ('a,b', 2, '2020-01-01', NULL), ('c', 1.00, '2020-01-01', E'tab\\t\\\\.')",
        "INSERT INTO shop.line VALUES ('a,b', 1, 'one'), ('a,b', 2, 'two'), ('c', 1, 'three'),"
        " (NULL, 1, 'none')",
        kinds=ODD,
    )
    execute(
        empty_database,
        "CREATE SCHEMA shop",
        'CREATE TABLE shop.orders (code character(5), amount numeric, at date, "a=b" text)',
        "CREATE TABLE shop.line (code varchar(9), amount bigint, name text)",
    )
    names = "SELECT string_agg(name, ',' ORDER BY name) FROM shop.line"
    brought(here, empty_database, keys=('"a,b",1.00',))
    assert one(empty_database, names) == "one"
    brought(here, empty_database, where=("a=b=x=y", "code=a,b"))
    assert one(empty_database, names) == "one,one"
    brought(here, empty_database, where=("a=b=tab\t\\.",))
    assert one(empty_database, names) == "one,one,three"


@pytest.mark.parametrize("condition", ["nothing=1", "size=1", "customer"])
def test_a_condition_on_no_archived_column_is_refused(
    database: str, volume_root: Path, empty_database: str, condition: str
) -> None:
    here = archived(database, volume_root)
    with pytest.raises(Refused) as caught:
        brought(here, empty_database, create_tables=True, where=(condition,))
    assert (caught.value.code, caught.value.params["cause"]) == (
        Code.CHOICE_INVALID,
        "column-unknown",
    )
    assert one(empty_database, "SELECT to_regnamespace('shop')") is None


def test_a_key_with_too_few_columns_is_refused(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(
        database,
        volume_root,
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.orders (a integer, b text, at date, PRIMARY KEY (a, b))",
        kinds='[kinds.orders]\nroot = "shop.orders"\ntime = "at"\n',
    )
    with pytest.raises(Refused, match="key-length"):
        brought(here, empty_database, create_tables=True, keys=("7",))
