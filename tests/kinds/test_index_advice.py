"""An index that is called good serves; the SQL printed for one that is missing runs as printed."""

from __future__ import annotations

from contextlib import closing

import pytest

from shared.archive import kinds as kinds_file
from shared.archive.examine import Finding, Problem
from shared.archive.served import OF_INDEXES
from shared.archive.source import SourceConnection
from shared.archive.survey import survey
from shared.doctor.source import judged_kind
from shared.messages import words
from tests.kinds.drafts import execute, findings_of

TIES = 30_000

# What is missing, with names that need quotes, keys that hold the time, texts, partitions.
MISSING: dict[str, tuple[str, tuple[str, ...], int]] = {
    "names that are words of SQL": (
        'root = "public.order"\ntime = "end"',
        ('CREATE TABLE public."order" (id integer PRIMARY KEY, "end" date)',),
        1,
    ),
    "names in mixed case": (
        """root = 'public."Till Roll"'\ntime = 'Printed At'""",
        (
            """CREATE TABLE public."Till Roll" (no integer PRIMARY KEY, "Printed At" date, "it""s" text)""",
        ),
        1,
    ),
    "a partitioned table whose key holds the time": (
        'root = "public.reading"\ntime = "at"\nrelated = ["public.part"]',
        (
            "CREATE TABLE reading (id integer, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
            "CREATE TABLE r1 PARTITION OF reading FOR VALUES FROM (MINVALUE) TO ('2021-01-01')",
            "CREATE TABLE r2 PARTITION OF reading FOR VALUES FROM ('2021-01-01') TO (MAXVALUE)",
            "CREATE TABLE part (id integer, at date, n integer) PARTITION BY HASH (n)",
            "ALTER TABLE part ADD FOREIGN KEY (id, at) REFERENCES reading",
            "CREATE TABLE part_0 PARTITION OF part FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        ),
        2,
    ),
    "a text joined across collations": (
        'root = "public.doc"\ntime = "at"\nrelated = ["public.sheet"]',
        (
            'CREATE TABLE doc (code text COLLATE "C" PRIMARY KEY, at date)',
            "CREATE INDEX ON doc (at, code)",
            "CREATE TABLE sheet (doc text REFERENCES doc)",
            "CREATE INDEX ON sheet (doc)",
        ),
        1,
    ),
}


def kind_of(text: str) -> kinds_file.NamedKind:
    (kind,) = kinds_file.parse(f"[kinds.k]\n{text}\n", "kinds.toml", "application")
    return kind


def advised(dsn: str, kind: kinds_file.NamedKind) -> list[Finding]:
    return [found for found in findings_of(dsn, kind) if found.problem in OF_INDEXES]


@pytest.mark.parametrize("what", MISSING)
def test_the_sql_that_is_printed_runs_and_makes_an_index_that_serves(
    empty_database: str, what: str
) -> None:
    text, tables, missing = MISSING[what]
    execute(empty_database, *tables)
    kind = kind_of(text)
    found = advised(empty_database, kind)
    assert len(found) == missing
    for each in found:
        printed = words(str(each.problem), each.params).next_step
        execute(empty_database, printed.split("`")[1])
    assert advised(empty_database, kind) == []


@pytest.mark.parametrize("what", MISSING)
def test_the_sql_of_doctor_is_the_same(empty_database: str, what: str) -> None:
    text, tables, missing = MISSING[what]
    execute(empty_database, *tables)
    with closing(SourceConnection(empty_database)) as source:
        found = survey(source, kind_of(text))
    lines = [
        line
        for each in judged_kind(found, "anybody", planned=True)
        if each.code in OF_INDEXES
        for line in each.sql
    ]
    assert len(lines) == missing
    execute(empty_database, *lines)
    assert advised(empty_database, kind_of(text)) == []


def test_an_index_under_another_collation_is_not_called_good(empty_database: str) -> None:
    execute(
        empty_database,
        'CREATE TABLE slip (k text COLLATE "POSIX" PRIMARY KEY, at timestamptz NOT NULL)',
        f"INSERT INTO slip SELECT 's' || i, '2020-01-01Z' FROM generate_series(1, {TIES}) AS i",
        "CREATE INDEX ON slip (at, k)",
        "ANALYZE slip",
    )
    kind = kind_of('root = "public.slip"\ntime = "at"')
    (found,) = advised(empty_database, kind)
    assert found.problem is Problem.NO_INDEX_FOR_ORDER
    assert found.params["sql"].endswith("""("at", "k" COLLATE "C")""")
    execute(empty_database, found.params["sql"])
    assert advised(empty_database, kind) == []


def test_an_index_by_time_alone_serves_where_few_rows_share_one_time(empty_database: str) -> None:
    execute(
        empty_database,
        "CREATE TABLE slip (id integer PRIMARY KEY, at timestamptz NOT NULL)",
        f"INSERT INTO slip SELECT i, '2020-01-01Z'::timestamptz + i * interval '1 s'"
        f" FROM generate_series(1, {TIES}) AS i",
        "CREATE INDEX ON slip (at)",
        "ANALYZE slip",
    )
    kind = kind_of('root = "public.slip"\ntime = "at"')
    assert advised(empty_database, kind) == []
    execute(empty_database, "UPDATE slip SET at = '2020-01-01Z'", "ANALYZE slip")
    assert [found.problem for found in advised(empty_database, kind)] == [
        Problem.NO_INDEX_FOR_ORDER
    ]


def test_an_index_of_the_rows_that_a_condition_leaves_serves_that_kind(empty_database: str) -> None:
    execute(
        empty_database,
        "CREATE TABLE slip (id integer PRIMARY KEY, at date, state text)",
        "CREATE INDEX ON slip (at, id) WHERE state = 'done'",
    )
    text = 'root = "public.slip"\ntime = "at"'
    assert advised(empty_database, kind_of(text + """\nwhere = "state = 'done'\"""")) == []
    assert advised(empty_database, kind_of(text)) != []
