"""Which tables a kind fits: what would lose rows is refused by name, what is merely slow is a warning."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shared.archive.examine import Problem
from tests.postgres.reading import execute, findings_of

ROOT = 'root = "public.note"\ntime = "at"\n'
NOTE = "CREATE TABLE note (id integer PRIMARY KEY, at timestamptz, code text)"

# The kind, the tables, and the one problem that must refuse it.
REFUSED: dict[str, tuple[str, Sequence[str], Problem]] = {
    "no table": (ROOT, [], Problem.TABLE_MISSING),
    "a view": (ROOT, ["CREATE VIEW note AS SELECT 1 AS id, now() AS at"], Problem.NOT_A_TABLE),
    "a materialised view": (
        ROOT,
        ["CREATE MATERIALIZED VIEW note AS SELECT 1 AS id, now() AS at"],
        Problem.NOT_A_TABLE,
    ),
    "a parent of plain inheritance": (
        ROOT,
        [NOTE, "CREATE TABLE heir () INHERITS (note)"],
        Problem.INHERITED,
    ),
    "no primary key": (
        ROOT,
        ["CREATE TABLE note (id integer NOT NULL UNIQUE, at date)"],
        Problem.KEY_MISSING,
    ),
    "a key that is not unique": (
        ROOT + 'key = ["code"]',
        [NOTE.replace("code text", "code text NOT NULL")],
        Problem.KEY_NOT_UNIQUE,
    ),
    "a key that may be null": (
        ROOT + 'key = ["code"]',
        [NOTE, "CREATE UNIQUE INDEX ON note (code)"],
        Problem.KEY_NULLABLE,
    ),
    "a unique index on some rows only": (
        ROOT + 'key = ["code"]',
        [
            NOTE.replace("code text", "code text NOT NULL"),
            "CREATE UNIQUE INDEX ON note (code) WHERE id > 5",
        ],
        Problem.KEY_NOT_UNIQUE,
    ),
    "a unique index on an expression": (
        ROOT + 'key = ["code"]',
        [
            NOTE.replace("code text", "code text NOT NULL"),
            "CREATE UNIQUE INDEX ON note (lower(code))",
        ],
        Problem.KEY_NOT_UNIQUE,
    ),
    "a unique index on more columns": (
        ROOT + 'key = ["code"]',
        [NOTE.replace("code text", "code text NOT NULL"), "CREATE UNIQUE INDEX ON note (code, id)"],
        Problem.KEY_NOT_UNIQUE,
    ),
    "a unique index that only includes the column": (
        ROOT + 'key = ["id", "code"]',
        [
            "CREATE TABLE note (id integer NOT NULL, at date, code text NOT NULL)",
            "CREATE UNIQUE INDEX ON note (id) INCLUDE (code)",
        ],
        Problem.KEY_NOT_UNIQUE,
    ),
    "a unique constraint that may be deferred": (
        ROOT + 'key = ["code"]',
        [
            NOTE.replace("code text", "code text NOT NULL"),
            "ALTER TABLE note ADD UNIQUE (code) DEFERRABLE INITIALLY DEFERRED",
        ],
        Problem.KEY_NOT_UNIQUE,
    ),
    "a unique index that was left invalid": (
        ROOT + 'key = ["code"]',
        [
            NOTE.replace("code text", "code text NOT NULL"),
            "CREATE UNIQUE INDEX broken ON note (code)",
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'broken'::regclass",
        ],
        Problem.KEY_NOT_UNIQUE,
    ),
    "a column that is not there": (
        'root = "public.note"\ntime = "when"',
        [NOTE],
        Problem.COLUMN_MISSING,
    ),
    "a generated time": (
        ROOT,
        ["CREATE TABLE note (id int PRIMARY KEY, t date, at date GENERATED ALWAYS AS (t) STORED)"],
        Problem.COLUMN_GENERATED,
    ),
    "a time that is text": (
        ROOT,
        ["CREATE TABLE note (id integer PRIMARY KEY, at text)"],
        Problem.TIME_TYPE,
    ),
    "an integer time without its unit": (
        ROOT,
        ["CREATE TABLE note (id integer PRIMARY KEY, at bigint)"],
        Problem.TIME_UNIT,
    ),
    "a unit for a time that is no number": (ROOT + 'time_unit = "s"', [NOTE], Problem.TIME_UNIT),
    "a key of a type that is not the server's own": (
        ROOT,
        [
            "CREATE TYPE pair AS (a integer, b integer)",
            "CREATE TABLE note (id pair PRIMARY KEY, at date)",
        ],
        Problem.COLUMN_TYPE,
    ),
    "a related table without a foreign key": (
        ROOT + 'related = ["public.line"]',
        [NOTE, "CREATE TABLE line (note_id integer)"],
        Problem.FOREIGN_KEY_MISSING,
    ),
    "two foreign keys to choose from": (
        ROOT + 'related = ["public.line"]',
        [NOTE, "CREATE TABLE line (a integer REFERENCES note, b integer REFERENCES note)"],
        Problem.FOREIGN_KEY_AMBIGUOUS,
    ),
    "a foreign key of another length": (
        ROOT + 'related = [{ table = "public.line", foreign_key = ["a", "b"] }]',
        [NOTE, "CREATE TABLE line (a integer, b integer)"],
        Problem.FOREIGN_KEY_LENGTH,
    ),
    "a parent that the kind does not have": (
        ROOT + 'related = [{ table = "public.line", references = "public.other" }]',
        [NOTE, "CREATE TABLE line (a integer)"],
        Problem.PARENT_OUTSIDE,
    ),
    "related tables that go in a circle": (
        ROOT
        + 'related = [{ table = "public.a", references = "public.b" },'
        + ' { table = "public.b", references = "public.a" }]',
        [
            NOTE,
            "CREATE TABLE a (id integer PRIMARY KEY, b integer)",
            "CREATE TABLE b (id integer PRIMARY KEY, a integer REFERENCES a)",
            "ALTER TABLE a ADD FOREIGN KEY (b) REFERENCES b",
        ],
        Problem.TABLES_IN_CIRCLE,
    ),
    "a column whose name no line can hold": (
        ROOT,
        ['CREATE TABLE note (id integer PRIMARY KEY, at date, "a\nb" text)'],
        Problem.NAME_UNPRINTABLE,
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_could_lose_rows_is_refused_by_name(database: str, what: str) -> None:
    kind, tables, problem = REFUSED[what]
    execute(database, *tables)
    shape, findings = findings_of(database, kind)
    assert shape is None
    assert problem in {finding.problem for finding in findings if finding.refuses}, findings


WARNED: dict[str, tuple[str, Sequence[str], Problem]] = {
    "no index in the order of time": (ROOT, [NOTE], Problem.NO_INDEX_FOR_ORDER),
    "no index on a foreign key": (
        ROOT + 'related = ["public.line"]',
        [NOTE, "CREATE TABLE line (note_id integer REFERENCES note)"],
        Problem.NO_INDEX_FOR_JOIN,
    ),
    "a table that refers to the root and stays": (
        ROOT,
        [NOTE, "CREATE TABLE line (note_id integer REFERENCES note)"],
        Problem.NOT_FOLLOWED,
    ),
}


@pytest.mark.parametrize("what", WARNED)
def test_what_is_merely_worth_knowing_is_a_warning(database: str, what: str) -> None:
    kind, tables, problem = WARNED[what]
    execute(database, *tables)
    shape, findings = findings_of(database, kind)
    assert shape is not None
    assert problem in {finding.problem for finding in findings if not finding.refuses}


def test_a_kind_with_every_index_gives_no_finding(database: str) -> None:
    execute(
        database,
        NOTE,
        "CREATE TABLE line (note_id integer REFERENCES note, said text)",
        "CREATE INDEX ON note (at, id)",
        "CREATE INDEX ON line (note_id)",
    )
    shape, findings = findings_of(database, ROOT + 'related = ["public.line"]')
    assert shape is not None
    assert findings == ()


def test_a_unique_key_that_is_no_primary_key_will_do_when_it_is_named(database: str) -> None:
    execute(
        database,
        "CREATE TABLE note (a text NOT NULL, b integer NOT NULL, at date)",
        "CREATE UNIQUE INDEX ON note (b, a)",
    )
    shape, _ = findings_of(database, ROOT + 'key = ["a", "b"]')
    assert shape is not None
    assert [column.name for column in shape.order] == ["at", "a", "b"]


def test_a_declared_foreign_key_may_refer_to_any_unique_key_of_its_parent(database: str) -> None:
    execute(
        database,
        NOTE.replace("code text", "code text UNIQUE"),
        "CREATE TABLE line (code text REFERENCES note (code))",
    )
    shape, _ = findings_of(database, ROOT + 'related = ["public.line"]')
    assert shape is not None
    assert shape.tables[1].references == ("code",)


@pytest.mark.parametrize("declared", ["citext", "loose"])
def test_an_order_that_takes_different_texts_for_the_same_is_refused_or_made_exact(
    database: str, declared: str
) -> None:
    """Two keys that compare as equal but are not the same text would hide each other at a seam."""
    available = "SELECT 1 FROM pg_available_extensions WHERE name = 'citext'"
    from tests.worlds import one

    if declared == "citext":
        if not one(database, available):
            pytest.skip("this server came without citext")
        execute(database, "CREATE EXTENSION citext")
        column = "id citext PRIMARY KEY"
    else:
        if not one(database, "SELECT 1 FROM pg_collation WHERE collname = 'und-x-icu'"):
            pytest.skip("this server was built without ICU")
        execute(
            database,
            "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        )
        column = "id text COLLATE loose PRIMARY KEY"
    execute(database, f"CREATE TABLE note ({column}, at date)")
    shape, findings = findings_of(database, ROOT)
    refused = {finding.problem for finding in findings if finding.refuses}
    assert refused == {Problem.COLUMN_TYPE} or (shape is not None and shape.order[1].text)
