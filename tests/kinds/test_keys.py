"""A key that will not do is refused once, with what will do, and what is said works as it stands."""

from __future__ import annotations

import pytest

from shared.archive import kinds as kinds_file
from shared.archive.examine import Finding, Problem
from shared.errors import Code, Refused
from shared.messages import words
from tests.kinds.drafts import accepted, draft_of, drafted, execute, findings_of
from tests.worlds import rows

NOTE = '[kinds.note]\nroot = "public.note"\ntime = "at"\n'
# Not a type of the server's own, as citext and ltree are.
PAIR = "CREATE TYPE pair AS (a integer, b integer)"


def refusals(dsn: str, text: str) -> list[Finding]:
    (kind,) = kinds_file.parse(text, "kinds.toml", "application")
    return [each for each in findings_of(dsn, kind) if each.refuses]


@pytest.mark.parametrize("type_name", ["pair", "citext"])
def test_a_key_of_another_type_is_answered_with_a_key_that_will_do(
    empty_database: str, type_name: str
) -> None:
    known = "SELECT 1 FROM pg_available_extensions WHERE name = 'citext'"
    if type_name == "citext":
        if not rows(empty_database, known):
            pytest.skip("this server came without citext")
        execute(empty_database, "CREATE EXTENSION citext")
    execute(
        empty_database,
        PAIR,
        f"CREATE TABLE note (code {type_name} PRIMARY KEY, at date, id integer NOT NULL UNIQUE)",
    )
    (found,) = refusals(empty_database, NOTE)
    assert found.problem is Problem.COLUMN_TYPE
    assert 'key = ["id"]' in words(str(found.problem), found.params).next_step
    accepted(empty_database, f"{NOTE}{found.params['instead']}\n")
    # A draft finds it by itself.
    assert drafted(empty_database, "public.note")[0].kind.key == ["id"]


def test_without_another_key_the_way_to_make_one_is_said(empty_database: str) -> None:
    execute(
        empty_database,
        PAIR,
        'CREATE TABLE "order" (code pair PRIMARY KEY, at date)',
        "INSERT INTO \"order\" VALUES ((1, 2), '2020-01-01')",
    )
    with pytest.raises(Refused) as caught:
        draft_of(empty_database, "public.order")
    assert caught.value.code is Code.DRAFT_REFUSED
    command = str(caught.value.params["sql"])
    assert command in words(caught.value.code, caught.value.params).next_step
    execute(empty_database, command)
    assert drafted(empty_database, "public.order")[0].kind.key == ["archive_key"]


def test_a_table_without_a_key_is_told_both_ways_out(empty_database: str) -> None:
    execute(
        empty_database,
        "CREATE TABLE stay (id integer PRIMARY KEY, at date)",
        "CREATE TABLE note (stay integer REFERENCES stay, at date)",
    )
    (found,) = refusals(empty_database, NOTE)
    assert found.problem is Problem.KEY_MISSING
    told = words(str(found.problem), found.params).next_step
    assert "archive the table along with public.stay" in told
    # Both are as easy as they are said to be.
    assert drafted(empty_database, "public.stay")[0].kind.related[0].table == "public.note"
    execute(empty_database, str(found.params["sql"]))
    accepted(empty_database, NOTE + 'key = ["archive_key"]\n')


def test_a_finding_about_a_column_comes_once(empty_database: str) -> None:
    execute(
        empty_database,
        PAIR,
        "CREATE TABLE note (id pair PRIMARY KEY, at date)",
        "CREATE TABLE line (note pair REFERENCES note)",
        "CREATE TABLE tag (note pair REFERENCES note)",
    )
    found = refusals(empty_database, NOTE + 'related = ["public.line", "public.tag"]\n')
    named = [(each.params["table"], each.params["column"]) for each in found]
    assert sorted(named) == [
        ("public.line", "note"),
        ("public.note", "id"),
        ("public.tag", "note"),
    ]
