"""A very large value, and tables of a real shop."""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests.operations.stage import copied
from tests.restore.shelf import archived, assert_equal, brought
from tests.worlds import one, rows

BIG = '[kinds.big]\nroot = "public.big"\ntime = "at"\n'
MEGABYTES = 50

INVOICES = """
[kinds.invoices]
root = "public.invoice"
time = "invoice_date"
related = ["public.invoice_line"]
"""


def test_a_value_of_50_megabytes_comes_back(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(
        database,
        volume_root,
        "CREATE TABLE big (id integer PRIMARY KEY, at date, said text, data bytea)",
        "INSERT INTO big SELECT 1, '2020-01-01', repeat(E'ab\\t\\\\\\n\\U0001f40d', n), NULL"
        f" FROM (SELECT {MEGABYTES} * 100000) AS size (n)",
        "INSERT INTO big SELECT 2, '2020-01-01', NULL, string_agg(sha512(i::text::bytea), '')"
        f" FROM generate_series(1, {MEGABYTES} * 1000000 / 128) AS i",
        kinds=BIG,
        kind="big",
    )
    brought(here, empty_database, create_tables=True)
    whole = "SELECT md5(string_agg(coalesce(said, ''), '')), md5(string_agg(data, '')) FROM big"
    assert rows(empty_database, whole) == rows(database, whole)
    assert one(empty_database, "SELECT max(length(data::text)) FROM big") > MEGABYTES * 990000


def test_the_rows_of_a_real_shop_come_back_without_the_rest_of_it(
    database: str, volume_root: Path, empty_database: str, test_data: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute((test_data / "chinook.sql").read_bytes())
    here = archived(
        *(database, volume_root, "SELECT"),
        kinds=INVOICES,
        kind="invoices",
        batch_size=100,
        days=0,
    )
    account = brought(here, empty_database, create_tables=True)
    assert account.created == ["public.invoice", "public.invoice_line"]
    assert account.rows == {"public.invoice": (412, 0), "public.invoice_line": (2240, 0)}
    assert_equal(database, empty_database, "invoice", "invoice_line")
    # The only foreign key is the one inside the kind: customers and tracks are not there.
    keys = rows(
        empty_database,
        "SELECT conrelid::regclass::text AS child, confrelid::regclass::text AS parent"
        " FROM pg_constraint WHERE contype = 'f'",
    )
    assert keys == [{"child": "invoice_line", "parent": "invoice"}]
    one_customer = "customer_id=17"
    account = brought(
        here, empty_database, create_tables=True, to_schema="seventeen", where=(one_customer,)
    )
    ids = "SELECT invoice_id FROM invoice WHERE customer_id = 17"
    for table in ("invoice", "invoice_line"):
        expected = copied(database, f"SELECT * FROM {table} WHERE invoice_id IN ({ids})")
        assert expected
        assert copied(empty_database, f"SELECT * FROM seventeen.{table}") == expected
