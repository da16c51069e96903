"""A target that changed is refused with every difference, before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared.errors import Code, Refused, Trouble
from tests.operations.stage import execute
from tests.restore.shelf import SHOP, TABLES, archived, assert_equal, brought
from tests.worlds import one

TABLES_ONLY = SHOP[:-3]


def refused(here: object, url: str, **wanted: object) -> list[dict[str, object]]:
    """Restore, and return the differences it is refused with; nothing may have been written."""
    with pytest.raises(Refused) as caught:
        brought(here, url, **wanted)  # type: ignore[arg-type]
    assert caught.value.code == Code.RESTORE_REFUSED
    assert one(url, "SELECT to_regclass('tallystick_restore.batch')") is None
    problems = caught.value.params["problems"]
    assert isinstance(problems, list)
    return problems


CHANGES: dict[str, tuple[str, dict[str, object]]] = {
    "type": (
        "ALTER TABLE shop.line ALTER price TYPE numeric(10, 1)",
        {"problem": "type", "archived": "numeric(10,2)", "now": "numeric(10,1)"},
    ),
    "column missing": (
        "ALTER TABLE shop.part DROP name",
        {"problem": "column_missing", "table": "shop.part", "column": "name"},
    ),
    "column extra": (
        "ALTER TABLE shop.part ADD extra text NOT NULL",
        {"problem": "column_extra", "table": "shop.part", "column": "extra"},
    ),
    "collation": (
        'ALTER TABLE shop.part ALTER name TYPE text COLLATE "C"',
        {"problem": "collation", "archived": "none", "now": 'pg_catalog."C"'},
    ),
    "label": (
        "ALTER TYPE shop.mood RENAME VALUE 'so, so' TO 'meh'",
        {"problem": "labels", "column": "mood", "labels": ["so, so"]},
    ),
    "generated": (
        (
            "ALTER TABLE shop.orders DROP size;"
            " ALTER TABLE shop.orders ADD size integer GENERATED ALWAYS AS (length(note)) STORED"
        ),
        {
            "problem": "generated",
            "archived": "(length(customer) * 2)",
            "now": "length(note)",
        },
    ),
    "generated is plain": (
        "ALTER TABLE shop.orders ALTER size DROP EXPRESSION",
        {"problem": "generated", "now": "none"},
    ),
    "missing": (
        "DROP TABLE shop.part",
        {"problem": "table_missing", "table": "shop.part"},
    ),
    "view": (
        "DROP TABLE shop.part; CREATE VIEW shop.part AS SELECT 1 AS order_id",
        {"problem": "not_a_table", "table": "shop.part"},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_target_is_refused_with_the_difference(
    database: str, volume_root: Path, empty_database: str, change: str
) -> None:
    here = archived(database, volume_root)
    statement, expected = CHANGES[change]
    execute(empty_database, *TABLES_ONLY, *statement.split(";"))
    (problem,) = refused(here, empty_database)
    assert problem.items() >= expected.items(), problem


def test_all_differences_of_all_tables_are_told_at_once(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    changes = [CHANGES[change][0] for change in ("type", "column missing", "label")]
    execute(empty_database, *TABLES_ONLY, *changes)
    found = {str(problem["problem"]) for problem in refused(here, empty_database)}
    assert found == {"type", "column_missing", "labels"}


def test_what_a_target_has_more_is_no_obstacle(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    execute(
        empty_database,
        *TABLES_ONLY,
        "ALTER TYPE shop.mood ADD VALUE 'new' BEFORE 'glad'",
        "ALTER TABLE shop.part ADD more text, ADD filled integer NOT NULL DEFAULT 7",
        "CREATE DOMAIN shop.seven AS integer DEFAULT 7 NOT NULL",
        "ALTER TABLE shop.part ADD domained shop.seven NOT NULL,"
        " ADD computed text NOT NULL GENERATED ALWAYS AS (coalesce(name, '')) STORED",
        "ALTER TABLE shop.line DROP price, ADD price numeric(10, 2)",
    )
    account = brought(here, empty_database)
    assert account.rows["shop.part"] == (180, 0)
    assert one(empty_database, "SELECT sum(filled + domained) FROM shop.part") == 180 * 14


def test_triggers_and_foreign_keys_outside_are_told_before(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    execute(
        empty_database,
        *TABLES_ONLY,
        "CREATE TABLE shop.customer (name text PRIMARY KEY)",
        "INSERT INTO shop.customer SELECT 'customer ' || n FROM generate_series(0, 6) AS n",
        "ALTER TABLE shop.orders ADD FOREIGN KEY (customer) REFERENCES shop.customer",
        "CREATE FUNCTION shop.seen() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END'",
        "CREATE TRIGGER watcher BEFORE INSERT ON shop.line FOR EACH ROW EXECUTE FUNCTION shop.seen()",
        "CREATE TRIGGER asleep BEFORE INSERT ON shop.line FOR EACH ROW EXECUTE FUNCTION shop.seen()",
        "ALTER TABLE shop.line DISABLE TRIGGER asleep",
    )
    account = brought(here, empty_database)
    told = [(str(each.code), each.params) for each in account.warnings]
    assert told == [
        (
            "RESTORE_FOREIGN_KEY",
            {
                "table": "shop.orders",
                "constraint": "orders_customer_fkey",
                "parent": "shop.customer",
            },
        ),
        ("RESTORE_GENERATED", {"table": "shop.orders", "columns": ["size"]}),
        ("RESTORE_TRIGGERS", {"table": "shop.line", "triggers": ["watcher"]}),
    ]
    assert_equal(database, empty_database, *TABLES)


CONFLICTS: dict[str, tuple[str, dict[str, object]]] = {
    "foreign key outside": (
        (
            "CREATE TABLE shop.customer (name text PRIMARY KEY);"
            "ALTER TABLE shop.orders ADD FOREIGN KEY (customer) REFERENCES shop.customer"
        ),
        {"cause": "foreign-key", "table": "shop.orders", "constraint": "orders_customer_fkey"},
    ),
    "deferred foreign key": (
        (
            "CREATE TABLE shop.customer (name text PRIMARY KEY);"
            "ALTER TABLE shop.orders ADD FOREIGN KEY (customer) REFERENCES shop.customer"
            " DEFERRABLE INITIALLY DEFERRED"
        ),
        {"cause": "foreign-key", "table": "shop.orders", "constraint": "orders_customer_fkey"},
    ),
    "check": (
        "ALTER TABLE shop.line ADD CONSTRAINT cheap CHECK (price < 20)",
        {"cause": "check", "table": "shop.line", "constraint": "cheap"},
    ),
    "not null": (
        "ALTER TABLE shop.orders ALTER note SET NOT NULL",
        {"cause": "not-null", "table": "shop.orders", "column": "note", "row": 3},
    ),
    "trigger raises": (
        (
            "CREATE FUNCTION shop.no() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN RAISE EXCEPTION ''closed %'', new.customer\\; END';"
            "CREATE TRIGGER closed BEFORE INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.no()"
        ),
        {"cause": "trigger", "function": "shop.no()"},
    ),
    "trigger swallows": (
        (
            "CREATE FUNCTION shop.no() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN RETURN CASE WHEN new.id % 2 = 0 THEN new END\\; END';"
            "CREATE TRIGGER closed BEFORE INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.no()"
        ),
        {"cause": "rows-vanished", "table": "shop.orders", "sent": 10, "copied": 5},
    ),
}


@pytest.mark.parametrize("conflict", CONFLICTS)
def test_a_conflict_is_named_and_leaves_nothing(
    database: str, volume_root: Path, empty_database: str, conflict: str
) -> None:
    here = archived(database, volume_root)
    text, expected = CONFLICTS[conflict]
    statements = [
        each.replace("\0", ";").replace("\\", "") for each in text.replace("\\;", "\0").split(";")
    ]
    execute(empty_database, *TABLES_ONLY, *statements)
    with pytest.raises(Trouble) as caught:
        brought(here, empty_database)
    assert caught.value.code == Code.RESTORE_CONFLICT
    assert caught.value.params.items() >= expected.items(), caught.value.params
    assert caught.value.params["file"] == "000001.sql.zst"
    assert "customer 1" not in str(caught.value.params)
    counts = [one(empty_database, f"SELECT count(*) FROM {table}") for table in TABLES]
    assert counts == [0, 0, 0]
    assert one(empty_database, "SELECT count(*) FROM tallystick_restore.batch") == 0


def test_who_may_not_insert_or_sees_only_some_rows_is_refused(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    role = "restorer_of_little"
    execute(
        empty_database,
        *TABLES_ONLY,
        f"DROP ROLE IF EXISTS {role}",
        f"CREATE ROLE {role} LOGIN",
        f"GRANT USAGE ON SCHEMA shop TO {role}",
        f"GRANT INSERT ON shop.orders, shop.line TO {role}",
        "ALTER TABLE shop.orders ENABLE ROW LEVEL SECURITY",
    )
    try:
        url = empty_database.replace("//postgres@", f"//{role}@")
        found = [(each["problem"], each["table"]) for each in refused(here, url)]
        assert found == [("row_security", "shop.orders"), ("not_writable", "shop.part")]
    finally:
        execute(empty_database, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_tables_that_cannot_be_made_are_refused_naming_what_is_missing(
    database: str, volume_root: Path, empty_database: str
) -> None:
    kinds = '[kinds.orders]\nroot = "shop.orders"\ntime = "at"\n'
    here = archived(
        database,
        volume_root,
        "CREATE SCHEMA shop",
        "CREATE TYPE shop.pair AS (a integer, b text)",
        "CREATE DOMAIN shop.short AS varchar(3)",
        "CREATE TYPE shop.mood AS ENUM ('a')",
        "CREATE COLLATION shop.mine (provider = 'libc', locale = 'C')",
        "CREATE TABLE shop.orders (id integer PRIMARY KEY, at date, p shop.pair, s shop.short[],"
        " m shop.mood, ms shop.mood[], c text COLLATE shop.mine)",
        "INSERT INTO shop.orders VALUES (1, '2020-01-01')",
        kinds=kinds,
    )
    found = refused(here, empty_database, create_tables=True)
    assert [(each["problem"], each["column"]) for each in found] == [
        ("type_missing", "p"),
        ("type_missing", "s"),
        ("collation_missing", "c"),
    ]
    assert one(empty_database, "SELECT to_regnamespace('shop')") is None


# An expression is followed by `) STORED`, which a forger has to put somewhere.
MORE = "more integer GENERATED ALWAYS AS (2"
FORGED: dict[str, tuple[str, dict[str, Any]]] = {
    "more statements": (
        "size",
        {
            "generated": "1) STORED); COMMIT; DROP TABLE public.victim;"
            f" CREATE TABLE public.thing ({MORE}"
        },
    ),
    "a column more": ("size", {"generated": f"1) STORED, {MORE}"}),
    "a check": ("size", {"generated": f"1) STORED CHECK (pg_backend_pid() > 0), {MORE}"}),
    "a default in a type": ("note", {"type": "text default current_user"}),
    "a key in a type": ("note", {"type": "text primary key"}),
    "a statement in a type": ("note", {"type": "text); DROP TABLE public.victim; --"}),
    "a statement in a collation": (
        "note",
        {"collation": 'pg_catalog."C"); DROP TABLE public.victim; --'},
    ),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_manifest_makes_no_table_and_runs_no_statement(
    database: str, volume_root: Path, empty_database: str, forgery: str
) -> None:
    from dataclasses import replace

    from shared.chain.manifest import encode_manifest
    from shared.restore import archives
    from shared.restore.restoration import Request, restore
    from tests.operations.stage import batch_files, directory, only_job

    here = archived(database, volume_root)
    job = only_job(here)
    for file in batch_files(here, job):
        file.unlink()
    path = directory(here, job)
    manifest = archives.place(path).manifest
    name, changes = FORGED[forgery]
    forged = [
        replace(column, **changes) if column.name == name else column
        for column in manifest.root.columns
    ]
    tables = (replace(manifest.root, columns=tuple(forged)), *manifest.tables[1:])
    (path / "manifest.json").write_bytes(encode_manifest(replace(manifest, tables=tables)))
    execute(empty_database, "CREATE TABLE public.victim ()")
    with pytest.raises(Refused, match="RESTORE_REFUSED"):
        restore([archives.place(path)], empty_database, Request(create_tables=True))
    assert one(empty_database, "SELECT to_regclass('public.victim')") is not None
    assert one(empty_database, "SELECT to_regnamespace('shop')") is None
