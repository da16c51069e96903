"""What cannot be archived is refused before anything is done, by name, with what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
import pytest

from shared.archive import kinds as kinds_file
from shared.archive.examine import Finding, Problem
from shared.messages import words
from tests.kinds.drafts import execute, findings_of
from tests.worlds import rows

NOTE = '[kinds.it]\nroot = "public.note"\ntime = "at"\n'
TABLE = "CREATE TABLE note (id integer PRIMARY KEY, at date, code text NOT NULL)"
WRAPPER = (
    "CREATE FOREIGN DATA WRAPPER nowhere",
    "CREATE SERVER elsewhere FOREIGN DATA WRAPPER nowhere",
)


@dataclass(frozen=True)
class Case:
    """Tables, the kind over them, the problem it must be refused for and a word of what to do."""

    ddl: Sequence[str]
    problem: Problem
    advice: str
    kind: str = NOTE
    extension: str | None = None


def typed(extension: str) -> Case:
    return Case(
        (f"CREATE TABLE note (id {extension} PRIMARY KEY, at date)",),
        Problem.COLUMN_TYPE,
        "built-in type",
        extension=extension,
    )


CASES: dict[str, Case] = {
    "a view": Case(
        (TABLE.replace("note", "real"), "CREATE VIEW note AS SELECT * FROM real"),
        Problem.NOT_A_TABLE,
        "behind it",
    ),
    "a materialised view": Case(
        (TABLE.replace("note", "real"), "CREATE MATERIALIZED VIEW note AS SELECT * FROM real"),
        Problem.NOT_A_TABLE,
        "behind it",
    ),
    "a foreign table": Case(
        (*WRAPPER, "CREATE FOREIGN TABLE note (id integer, at date) SERVER elsewhere"),
        Problem.NOT_A_TABLE,
        "server that has it",
    ),
    "a partition that is a foreign table": Case(
        (
            *WRAPPER,
            "CREATE TABLE note (id integer, at date NOT NULL) PARTITION BY RANGE (at)",
            "CREATE FOREIGN TABLE far PARTITION OF note DEFAULT SERVER elsewhere",
        ),
        Problem.PARTITION_FOREIGN,
        "Detach",
    ),
    "a parent of plain inheritance": Case(
        (TABLE, "CREATE TABLE heir () INHERITS (note)"), Problem.INHERITED, "child tables"
    ),
    "a related table that is a parent of plain inheritance": Case(
        (
            TABLE,
            "CREATE TABLE line (note integer REFERENCES note)",
            "CREATE TABLE heir () INHERITS (line)",
        ),
        Problem.INHERITED,
        "child tables",
        NOTE + 'related = ["public.line"]',
    ),
    "a key that is citext": typed("citext"),
    "a key that is ltree": typed("ltree"),
    "a key that is hstore": typed("hstore"),
    "a key of enums in an array": Case(
        ("CREATE TYPE mood AS ENUM ('a')", "CREATE TABLE note (id mood[] PRIMARY KEY, at date)"),
        Problem.COLUMN_TYPE,
        "built-in type",
    ),
    "a primary key that may be deferred": Case(
        ("CREATE TABLE note (id integer PRIMARY KEY DEFERRABLE, at date)",),
        Problem.KEY_NOT_UNIQUE,
        "not deferrable",
    ),
    "children joined through a column that is not unique": Case(
        (
            TABLE,
            "CREATE TABLE part (id integer, note integer REFERENCES note)",
            "CREATE TABLE line (part integer)",
            "ALTER TABLE part ADD PRIMARY KEY (id) DEFERRABLE",
        ),
        Problem.PARENT_NOT_UNIQUE,
        "unique key of the parent",
        NOTE + 'related = ["public.part",'
        ' { table = "public.line", foreign_key = ["part"], references = "public.part" }]',
    ),
    "children whose column cannot be compared with the key": Case(
        (TABLE, "CREATE TABLE line (note text)"),
        Problem.JOIN_INVALID,
        "can be compared",
        NOTE + 'related = [{ table = "public.line", foreign_key = ["note"] }]',
    ),
    "a condition the server does not understand": Case(
        (TABLE,), Problem.WHERE_INVALID, "where", NOTE + 'where = "nothing = 1"'
    ),
    "a related table's condition that names another table": Case(
        (TABLE, "CREATE TABLE line (note integer REFERENCES note)"),
        Problem.WHERE_INVALID,
        "where",
        NOTE + 'related = [{ table = "public.line", where = "r.id = 1" }]',
    ),
    "a time zone the server does not know": Case(
        ("CREATE TABLE note (id integer PRIMARY KEY, at timestamp)",),
        Problem.TIME_ZONE,
        "Europe/Berlin",
        NOTE + 'time_zone = "Mars/Olympus"',
    ),
    "a time that is a time of day": Case(
        ("CREATE TABLE note (id integer PRIMARY KEY, at time)",), Problem.TIME_TYPE, "time column"
    ),
    "a column whose name holds a line break": Case(
        ('CREATE TABLE note (id integer PRIMARY KEY, at date, "a\nb" integer)',),
        Problem.NAME_UNPRINTABLE,
        "Rename",
    ),
}


def refusals(database: str, text: str) -> list[Finding]:
    (kind,) = kinds_file.parse(text, "kinds.toml", "application")
    return [found for found in findings_of(database, kind) if found.refuses]


def assert_told(found: Sequence[Finding], problem: Problem, advice: str) -> None:
    finding = next((each for each in found if each.problem is problem), None)
    assert finding is not None, found
    told = words(str(problem), finding.params)
    assert "(unknown)" not in told.happened
    assert advice in told.next_step


@pytest.mark.parametrize("what", CASES)
def test_it_is_refused_with_what_to_do(database: str, what: str) -> None:
    case = CASES[what]
    if case.extension:
        known = "SELECT 1 FROM pg_available_extensions WHERE name = %s"
        if not rows(database, known, case.extension):
            pytest.skip(f"this server came without {case.extension}")
        execute(database, f"CREATE EXTENSION {case.extension}")
    execute(database, *case.ddl)
    assert_told(refusals(database, case.kind), case.problem, case.advice)


def test_a_temporary_table_of_somebody_is_refused(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TEMPORARY TABLE note (id integer PRIMARY KEY, at date)")
        row = connection.execute("SELECT nspname FROM pg_namespace WHERE oid = pg_my_temp_schema()")
        (schema,) = row.fetchone() or ("",)
        found = refusals(database, NOTE.replace("public", schema))
    assert_told(found, Problem.TEMPORARY, "that stays")


def test_a_join_through_a_collation_that_calls_other_spellings_equal_is_refused(
    database: str,
) -> None:
    if not rows(database, "SELECT 1 FROM pg_collation WHERE collname = 'und-x-icu'"):
        pytest.skip("this server was built without ICU")
    execute(
        database,
        "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        "CREATE TABLE note (id text COLLATE loose PRIMARY KEY, at date)",
        "CREATE TABLE line (note text COLLATE loose REFERENCES note)",
    )
    # Alone it is ordered and compared by its bytes.
    assert refusals(database, NOTE) == []
    found = refusals(database, NOTE + 'related = ["public.line"]')
    assert_told(found, Problem.JOIN_COLLATION, "deterministic")


@pytest.fixture
def reader(database: str) -> str:
    """URL under which a user without any rights reads the same database."""
    execute(
        database,
        "DO $$ BEGIN CREATE ROLE kinds_reader LOGIN; EXCEPTION WHEN duplicate_object THEN END $$",
    )
    return psycopg.conninfo.make_conninfo(database, user="kinds_reader")


def test_a_table_the_user_may_not_read_is_refused(database: str, reader: str) -> None:
    execute(
        database,
        TABLE,
        "CREATE SCHEMA hidden",
        "CREATE TABLE hidden.note (id integer PRIMARY KEY, at date)",
        "GRANT SELECT ON hidden.note TO kinds_reader",
        "GRANT SELECT (id, at, code) ON note TO kinds_reader",
    )
    # By columns alone is not enough either: the lock asks for the table.
    assert_told(refusals(reader, NOTE), Problem.NOT_READABLE, "GRANT SELECT")
    hidden = NOTE.replace("public", "hidden")
    assert_told(refusals(reader, hidden), Problem.NOT_READABLE, "GRANT SELECT")


def test_a_table_whose_rows_are_hidden_from_the_user_is_refused(database: str, reader: str) -> None:
    execute(
        database,
        TABLE,
        "GRANT SELECT ON note TO kinds_reader",
        "ALTER TABLE note ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY no_first ON note USING (id > 1)",
    )
    assert_told(refusals(reader, NOTE), Problem.ROW_SECURITY, "BYPASSRLS")


@pytest.mark.parametrize(
    "index",
    [
        "CREATE INDEX ON note USING brin (at)",
        "CREATE INDEX ON note (at) WHERE id > 5",
        "CREATE INDEX ON note (code, at)",
        "CREATE INDEX ON note ((at + 1))",
    ],
)
def test_an_index_that_does_not_serve_the_order_is_not_taken_for_one(
    database: str, index: str
) -> None:
    execute(database, TABLE, index)
    (kind,) = kinds_file.parse(NOTE, "kinds.toml", "application")
    problems = {found.problem for found in findings_of(database, kind)}
    assert Problem.NO_INDEX_FOR_ORDER in problems
    execute(database, "CREATE INDEX ON note (at, id)")
    assert Problem.NO_INDEX_FOR_ORDER not in {
        found.problem for found in findings_of(database, kind)
    }


def test_a_second_foreign_key_to_the_same_parent_is_named(database: str) -> None:
    execute(
        database,
        TABLE,
        "CREATE TABLE line (note integer REFERENCES note, other integer REFERENCES note)",
    )
    text = NOTE + 'related = [{ table = "public.line", foreign_key = ["note"] }]'
    (kind,) = kinds_file.parse(text, "kinds.toml", "application")
    second = [
        found for found in findings_of(database, kind) if found.problem is Problem.SECOND_PATH
    ]
    assert [found.params["name"] for found in second] == ["line_other_fkey"]


def test_a_foreign_key_of_one_partition_is_named(database: str) -> None:
    execute(
        database,
        TABLE,
        "CREATE TABLE line (id integer, note integer) PARTITION BY LIST (id)",
        "CREATE TABLE line_1 PARTITION OF line FOR VALUES IN (1)",
        "ALTER TABLE line_1 ADD CONSTRAINT own FOREIGN KEY (note) REFERENCES note",
    )
    (kind,) = kinds_file.parse(NOTE, "kinds.toml", "application")
    named = [found.params for found in findings_of(database, kind) if "child" in found.params]
    (params,) = named
    assert (params["child"], params["parts"]) == ("public.line", ["public.line_1"])
