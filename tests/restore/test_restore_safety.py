"""What a target can do to whoever restores into it: hand over rights, hide rows, let broken ones in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from shared.errors import Code, Refused, Verdict
from tests.operations.stage import Stage, execute
from tests.restore.shelf import SHOP, TABLES, archived, assert_equal, brought
from tests.worlds import one

TABLES_ONLY = SHOP[:-3]
RECORDS = (
    "CREATE SCHEMA tallystick_restore",
    (
        "CREATE TABLE tallystick_restore.batch (job uuid NOT NULL, seq integer NOT NULL,"
        " sha256 text NOT NULL, target text NOT NULL,"
        " restored_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (job, seq, target))"
    ),
)
FORGET = "DELETE FROM tallystick_restore.batch"


def problems(here: Stage, url: str, **wanted: Any) -> list[tuple[object, object]]:  # noqa: ANN401 - the members of a request
    """Restore, and return what it is refused for: problem and table."""
    with pytest.raises(Refused) as caught:
        brought(here, url, **wanted)
    assert caught.value.code in {Code.RESTORE_UNSAFE, Code.RESTORE_REFUSED}
    found = caught.value.params["problems"]
    assert isinstance(found, list)
    return [(each["problem"], each["table"]) for each in found]


def named(url: str) -> str:
    """Return the name of the database at a URL."""
    return urlsplit(url).path.removeprefix("/")


@pytest.fixture
def stranger(empty_database: str) -> Iterator[tuple[str, str]]:
    """Give a role that may create schemas in the target, and its URL."""
    role = "restore_stranger"
    execute(
        empty_database,
        f"DROP ROLE IF EXISTS {role}",
        f"CREATE ROLE {role} LOGIN",
        f'GRANT CREATE ON DATABASE "{named(empty_database)}" TO {role}',
    )
    yield role, empty_database.replace("//postgres@", f"//{role}@")
    execute(empty_database, f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def test_a_trigger_that_a_stranger_put_on_the_records_never_runs(
    database: str, volume_root: Path, empty_database: str, stranger: tuple[str, str]
) -> None:
    here = archived(database, volume_root)
    role, theirs = stranger
    execute(empty_database, *TABLES_ONLY)
    execute(
        theirs,
        *RECORDS,
        "CREATE FUNCTION tallystick_restore.take() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$BEGIN EXECUTE 'ALTER ROLE {role} SUPERUSER'; RETURN new; END$$",
        "CREATE TRIGGER take BEFORE INSERT ON tallystick_restore.batch"
        " FOR EACH ROW EXECUTE FUNCTION tallystick_restore.take()",
    )
    found = problems(here, empty_database)
    assert ("records_owner", "tallystick_restore.batch") in found
    assert ("records_changed", "tallystick_restore.batch") in found
    assert one(empty_database, f"SELECT rolsuper FROM pg_roles WHERE rolname = '{role}'") is False
    assert one(empty_database, "SELECT count(*) FROM shop.orders") == 0


def test_records_that_a_stranger_filled_hide_no_batch(
    database: str, volume_root: Path, empty_database: str, stranger: tuple[str, str]
) -> None:
    here = archived(database, volume_root)
    execute(empty_database, *TABLES_ONLY)
    execute(stranger[1], *RECORDS)
    assert problems(here, empty_database) == [("records_owner", "tallystick_restore.batch")]
    assert problems(here, empty_database, dry_run=True) == [
        ("records_owner", "tallystick_restore.batch")
    ]
    assert problems(here, empty_database, create_tables=True) == [
        ("records_owner", "tallystick_restore.batch")
    ]


def test_a_schema_of_a_stranger_is_refused_before_a_table_is_made_in_it(
    database: str, volume_root: Path, empty_database: str, stranger: tuple[str, str]
) -> None:
    here = archived(database, volume_root)
    execute(stranger[1], RECORDS[0])
    assert problems(here, empty_database, create_tables=True) == [
        ("records_owner", "tallystick_restore.batch")
    ]
    assert one(empty_database, "SELECT to_regclass('tallystick_restore.batch')") is None
    assert one(empty_database, "SELECT to_regclass('shop.orders')") is None


CHANGED: dict[str, tuple[str, ...]] = {
    "a trigger by grant": (
        "CREATE FUNCTION public.seen() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END'",
        (
            "CREATE TRIGGER seen AFTER INSERT ON tallystick_restore.batch"
            " FOR EACH ROW EXECUTE FUNCTION public.seen()"
        ),
    ),
    "a trigger that is disabled": (
        "CREATE FUNCTION public.seen() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END'",
        (
            "CREATE TRIGGER seen AFTER INSERT ON tallystick_restore.batch"
            " FOR EACH ROW EXECUTE FUNCTION public.seen()"
        ),
        "ALTER TABLE tallystick_restore.batch DISABLE TRIGGER seen",
    ),
    "a rule": ("CREATE RULE quiet AS ON INSERT TO tallystick_restore.batch DO INSTEAD NOTHING",),
    "a policy": ("CREATE POLICY few ON tallystick_restore.batch USING (false)",),
    "a column": ("ALTER TABLE tallystick_restore.batch ADD more text",),
    "a type": ("ALTER TABLE tallystick_restore.batch ALTER sha256 TYPE varchar(10)",),
}


@pytest.mark.parametrize("change", CHANGED)
def test_records_are_believed_only_as_they_were_made(
    database: str, volume_root: Path, empty_database: str, change: str
) -> None:
    here = archived(database, volume_root)
    execute(empty_database, *TABLES_ONLY, *RECORDS, *CHANGED[change])
    assert problems(here, empty_database) == [("records_changed", "tallystick_restore.batch")]


def test_a_view_or_a_parent_in_the_place_of_the_records_is_refused(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    execute(
        empty_database,
        *TABLES_ONLY,
        *RECORDS,
        "CREATE TABLE public.more () INHERITS (tallystick_restore.batch)",
    )
    assert problems(here, empty_database) == [("records_kind", "tallystick_restore.batch")]


def test_records_of_another_superuser_are_believed(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    execute(
        empty_database,
        *TABLES_ONLY,
        *RECORDS,
        "DROP ROLE IF EXISTS restore_admin",
        "CREATE ROLE restore_admin SUPERUSER",
        "ALTER SCHEMA tallystick_restore OWNER TO restore_admin",
        "ALTER TABLE tallystick_restore.batch OWNER TO restore_admin",
    )
    try:
        assert brought(here, empty_database).batches_restored == 5
    finally:
        execute(empty_database, "DROP OWNED BY restore_admin CASCADE", "DROP ROLE restore_admin")


def test_a_schema_that_was_made_for_the_role_is_enough(
    database: str, volume_root: Path, empty_database: str, stranger: tuple[str, str]
) -> None:
    here = archived(database, volume_root)
    role, theirs = stranger
    execute(
        empty_database,
        *TABLES_ONLY,
        f'REVOKE CREATE ON DATABASE "{named(empty_database)}" FROM {role}',
        f"CREATE SCHEMA tallystick_restore AUTHORIZATION {role}",
        f"GRANT USAGE ON SCHEMA shop TO {role}",
        f"GRANT INSERT, SELECT ON ALL TABLES IN SCHEMA shop TO {role}",
        f"GRANT SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA shop TO {role}",
    )
    assert brought(here, theirs).batches_restored == 5


def test_a_session_that_skips_foreign_keys_is_refused_by_name(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    name = named(empty_database)
    execute(empty_database, *TABLES_ONLY)
    execute(empty_database, f'ALTER DATABASE "{name}" SET session_replication_role = replica')
    assert problems(here, empty_database) == [("session_replica", "")]
    assert problems(here, empty_database, dry_run=True) == [("session_replica", "")]
    execute(empty_database, f'ALTER DATABASE "{name}" RESET session_replication_role')
    assert brought(here, empty_database).batches_restored == 5


def test_a_foreign_key_whose_triggers_are_disabled_is_refused_by_name(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    execute(empty_database, *TABLES_ONLY, "ALTER TABLE shop.line DISABLE TRIGGER ALL")
    assert problems(here, empty_database) == [("key_not_enforced", "shop.line")]
    execute(empty_database, "ALTER TABLE shop.line ENABLE TRIGGER ALL")
    assert brought(here, empty_database).batches_restored == 5


EMPTIED: dict[str, Callable[[str], str]] = {
    "dropped": lambda table: f"DROP TABLE {table} CASCADE",
    "truncated": lambda table: f"TRUNCATE {table} CASCADE",
    "deleted": lambda table: f"DELETE FROM {table}",
}


@pytest.mark.parametrize("how", EMPTIED)
def test_records_of_rows_that_are_gone_do_not_pass_for_a_restore(
    database: str, volume_root: Path, empty_database: str, how: str
) -> None:
    here = archived(database, volume_root)
    execute(empty_database, *TABLES_ONLY)
    assert brought(here, empty_database).batches_restored == 5
    gone = [EMPTIED[how](table) for table in reversed(TABLES)]
    execute(empty_database, *gone)
    expected = [("records_stale", table) for table in TABLES]
    assert problems(here, empty_database, create_tables=True, dry_run=True) == expected
    assert problems(here, empty_database, create_tables=True) == expected
    execute(empty_database, FORGET)
    assert brought(here, empty_database, create_tables=True).batches_restored == 5
    assert_equal(database, empty_database, *TABLES)


def test_one_table_that_lost_its_rows_is_named(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    execute(empty_database, *TABLES_ONLY)
    brought(here, empty_database)
    execute(empty_database, "TRUNCATE shop.part")
    assert problems(here, empty_database) == [("records_stale", "shop.part")]


def test_a_chosen_root_that_was_removed_since_is_not_passed_over(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    execute(empty_database, *TABLES_ONLY)
    assert brought(here, empty_database, keys=("7",)).rows["shop.orders"] == (1, 0)
    assert brought(here, empty_database, keys=("7",)).rows["shop.orders"] == (0, 0)
    execute(empty_database, "TRUNCATE shop.orders CASCADE")
    assert problems(here, empty_database, keys=("7",)) == [("records_stale", "shop.orders")]


SWALLOW = (
    (
        "CREATE FUNCTION shop.no() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RETURN CASE WHEN new.id % 2 = 0 THEN new END; END'"
    ),
    "CREATE TRIGGER closed BEFORE INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.no()",
)


def test_with_skip_a_row_that_a_trigger_dropped_does_not_count_as_one_that_was_there(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    execute(empty_database, *TABLES_ONLY)
    brought(here, empty_database, keys=("2",))
    execute(empty_database, *SWALLOW)
    with pytest.raises(Verdict) as caught:
        brought(here, empty_database, skip=True)
    params = caught.value.params
    assert params["cause"] == "rows-vanished"
    assert (params["sent"], params["copied"], params["left"]) == (10, 4, 1)
    assert one(empty_database, "SELECT count(*) FROM shop.orders") == 1
    execute(empty_database, "DROP TRIGGER closed ON shop.orders")
    assert brought(here, empty_database, skip=True).rows["shop.orders"] == (44, 1)
    assert_equal(database, empty_database, "shop.orders", "shop.line")


def test_with_skip_a_table_whose_rules_decide_is_refused(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    rule = "CREATE RULE quiet AS ON INSERT TO shop.orders DO INSTEAD NOTHING"
    execute(empty_database, *TABLES_ONLY, rule)
    assert problems(here, empty_database, skip=True) == [("rules", "shop.orders")]
    execute(empty_database, "ALTER TABLE shop.orders DISABLE RULE quiet")
    assert brought(here, empty_database, skip=True).rows["shop.orders"] == (45, 0)


def test_rows_come_in_by_a_way_that_rules_have_no_say_in(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    rule = "CREATE RULE quiet AS ON INSERT TO shop.orders DO INSTEAD NOTHING"
    execute(empty_database, *TABLES_ONLY, rule)
    brought(here, empty_database)
    assert_equal(database, empty_database, *TABLES)


def test_with_skip_rows_of_a_partitioned_table_are_counted_the_same(
    database: str, volume_root: Path, empty_database: str
) -> None:
    here = archived(database, volume_root)
    execute(
        empty_database,
        *TABLES_ONLY[:2],
        (
            "CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer text, placed_at timestamptz,"
            " mood shop.mood, note text, size integer GENERATED ALWAYS AS (length(customer) * 2) STORED)"
            " PARTITION BY RANGE (id)"
        ),
        "CREATE TABLE shop.low PARTITION OF shop.orders FOR VALUES FROM (0) TO (20)",
        "CREATE TABLE shop.high PARTITION OF shop.orders FOR VALUES FROM (20) TO (100)",
        *TABLES_ONLY[4:],
    )
    brought(here, empty_database, keys=("7", "30"))
    assert brought(here, empty_database, skip=True).rows["shop.orders"] == (43, 2)
