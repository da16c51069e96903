"""What later releases of Postgres brought: keys that hold for a time, constraints that do not hold yet."""

from __future__ import annotations

import pytest

from shared.archive import kinds as kinds_file
from shared.archive.examine import Finding, Problem
from tests.kinds.drafts import execute, findings_of
from tests.worlds import one


@pytest.fixture
def newest(empty_database: str) -> str:
    """URL of an empty database of a server that has them."""
    if one(empty_database, "SELECT current_setting('server_version_num')::int") < 180000:
        pytest.skip("a later release of Postgres has this")
    return empty_database


def found(dsn: str, text: str) -> list[Finding]:
    (kind,) = kinds_file.parse(f"[kinds.it]\n{text}", "kinds.toml", "application")
    return [each for each in findings_of(dsn, kind) if each.refuses]


PERIODS = (
    (
        "CREATE TABLE lease (id integer, valid daterange, at timestamptz NOT NULL, n integer UNIQUE,"
        " PRIMARY KEY (id, valid WITHOUT OVERLAPS))"
    ),
    (
        "CREATE TABLE visit (id integer, valid daterange, n integer,"
        " FOREIGN KEY (id, PERIOD valid) REFERENCES lease (id, PERIOD valid))"
    ),
)
LEASES = 'root = "public.lease"\ntime = "at"\nkey = ["n"]\n'


def test_rows_are_not_joined_by_a_key_that_only_has_to_lie_within_its_parents(newest: str) -> None:
    execute(
        newest,
        "CREATE EXTENSION IF NOT EXISTS btree_gist",
        *PERIODS,
        "ALTER TABLE lease ALTER n SET NOT NULL",
    )
    for related in (
        'related = ["public.visit"]',
        'related = [{table = "public.visit", foreign_key = ["id", "valid"], references = "public.lease"}]',
    ):
        (finding,) = found(newest, LEASES + related)
        assert finding.problem is Problem.FOREIGN_KEY_PERIOD
        assert finding.params == {"table": "public.visit", "name": "visit_id_valid_fkey"}


def test_a_column_with_nulls_from_before_its_constraint_is_no_key(newest: str) -> None:
    execute(
        newest,
        "CREATE TABLE note (k integer UNIQUE, at timestamptz NOT NULL)",
        "INSERT INTO note VALUES (NULL, now())",
        "ALTER TABLE note ADD CONSTRAINT later NOT NULL k NOT VALID",
    )
    kind = 'root = "public.note"\ntime = "at"\nkey = ["k"]\n'
    assert [each.problem for each in found(newest, kind)] == [Problem.KEY_NULLABLE]
    execute(newest, "DELETE FROM note", "ALTER TABLE note VALIDATE CONSTRAINT later")
    assert found(newest, kind) == []
