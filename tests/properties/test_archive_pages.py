"""Pages of any size, one after the other, are the whole table once: in order, exact to the byte."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.archive.page import cursor_of
from shared.chain.batch import PINS
from shared.db.connect import connect
from tests.postgres.reading import copied, execute, opening_of, page_of, rows_of
from tests.worlds import one

KIND = 'root = "public.note"\ntime = "at"\nkey = ["a", "b"]\nrelated = ["public.line"]'
TABLES = (
    (
        "CREATE TABLE note (b text COLLATE {collation}, at timestamptz, a smallint, v jsonb,"
        " PRIMARY KEY (a, b))"
    ),
    (
        "CREATE TABLE line (a smallint, b text COLLATE {collation}, n integer,"
        " FOREIGN KEY (a, b) REFERENCES note)"
    ),
)
# Few values, so that they collide; what Postgres can hold in text, and what COPY has to escape.
texts = st.text(st.sampled_from("aAäb\\\t\n\r.N-'\"\x01\x7f🐍"), max_size=3)
keys = st.tuples(st.integers(0, 3), texts)
times = st.sampled_from(
    ["2020-01-01Z", "2020-01-01 00:00:00.000001Z", "-infinity", "2019-12-31Z", None]
)
tables = st.dictionaries(keys, st.tuples(times, st.integers(0, 2)), max_size=12)

_ready: set[str] = set()


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(content=tables, size=st.integers(1, 5))
def test_pages_cover_a_table_exactly(
    database: str, content: dict[tuple[int, str], tuple[str | None, int]], size: int
) -> None:
    if database not in _ready:
        # Where the server has it, an order of letters that is not the order of bytes.
        icu = one(database, "SELECT 1 FROM pg_collation WHERE collname = 'und-x-icu'")
        collation = '"und-x-icu"' if icu else '"default"'
        execute(database, *(table.format(collation=collation) for table in TABLES))
        _ready.add(database)
    with connect(database) as connection:
        connection.execute("TRUNCATE note, line")
        for (a, b), (at, lines) in content.items():
            connection.execute(
                "INSERT INTO note VALUES (%s, %s, %s, %s)", (b, at, a, json.dumps({"b": b}))
            )
            for n in range(lines):
                connection.execute("INSERT INTO line VALUES (%s, %s, %s)", (a, b, n))
        opening = opening_of(database, KIND)
        after: tuple[str, ...] | None = None
        pages: list[bytes] = []
        while not pages or b'"final":false' in pages[-1].splitlines()[-1]:
            pages.append(page_of(connection, KIND, opening, after, size))
            roots = rows_of(pages[-1])[0]
            if roots:
                after = cursor_of(opening.shape, roots[-1] + b"\n")
            assert len(pages) <= len(content) + 1
    pins = [f"{name} = {value}" for name, value in PINS]
    old = "FROM public.note WHERE at < '2021-01-01Z'"
    order = 'ORDER BY at, a, b COLLATE "C"'
    seen = [rows_of(page) for page in pages]
    assert [row for roots, _ in seen for row in roots] == copied(
        database, f"SELECT b, at, a, v {old} {order}", pins
    )
    assert sorted(row for _, lines in seen for row in lines) == sorted(
        copied(database, f"SELECT * FROM public.line WHERE (a, b) IN (SELECT a, b {old})", pins)
    )
    assert all(len(roots) == size for (roots, _), _ in pairwise(seen))
