"""A page that looks at a few partitions at a time holds the rows that one look at all of them gives."""

from __future__ import annotations

import json

import pytest

from shared.archive.file import Reading, page_bytes
from shared.archive.page import Page
from shared.archive.reach import reaches
from shared.archive.shape import Opening
from shared.chain.batch import Header
from shared.chain.frame import decompressed
from shared.clock import Deadline
from shared.db.connect import connect
from tests.postgres.reading import definition_of, execute, opening_of, rows_of

# The type of the time, its bounds, and a time for each number: with gaps, ties, and a long empty stretch.
TIMES = {
    "timestamptz": ("'2001-01-01Z'::timestamptz + {} * interval '1 day'", "2020-01-01 00:00:00+00"),
    "timestamp": ("'2001-01-01'::timestamp + {} * interval '1 day'", "2020-01-01 00:00:00"),
    "date": ("'2001-01-01'::date + {}", "2020-01-01"),
    "bigint": ("1000000000 + {} * 86400", "1600000000"),
}
KIND = 'root = "public.{}"\ntime = "at"\nrelated = [{{ table = "public.part", foreign_key = ["at", "id"] }}]'


def pages(dsn: str, opening: Opening, kind: str, size: int) -> list[list[list[bytes]]]:
    found: list[list[list[bytes]]] = []
    after: tuple[str, ...] | None = None
    while True:
        header = Header("job", 1, "0" * 64, after, "test")
        with connect(dsn) as connection:
            reading = Reading(definition_of(kind), opening, "t")
            stored = page_bytes(connection, reading, Page(header, size, Deadline.after(30)))
            text = b"".join(decompressed([b"".join(stored)]))
        last_line = text.splitlines()[-1]
        end = json.loads(last_line[last_line.index(b"{") :])
        found.append(rows_of(text))
        if end.get("final"):
            return found
        after = tuple(end["last"])


@pytest.mark.parametrize("kind_of_time", TIMES)
def test_pages_of_partitions_are_those_of_one_table(database: str, kind_of_time: str) -> None:
    written, cutoff = TIMES[kind_of_time]
    columns = f"id integer, at {kind_of_time} NOT NULL, PRIMARY KEY (at, id)"
    execute(
        database,
        f"CREATE TABLE parted ({columns}) PARTITION BY RANGE (at)",
        f"CREATE TABLE flat ({columns})",
        "CREATE TABLE parted_else PARTITION OF parted DEFAULT",
        f"""DO $$ BEGIN FOR part_no IN 0..60 LOOP
                EXECUTE format('CREATE TABLE parted_%s PARTITION OF parted FOR VALUES FROM (%L) TO (%L)',
                               part_no, {written.format("part_no")}, {written.format("(part_no + 1)")});
            END LOOP; END $$""",
        # Two of each day, three weeks without any, two years away in the default partition, a few too young.
        (
            f"INSERT INTO flat SELECT i, {written.format('(i / 2 + i / 40 * 21)')}"
            " FROM generate_series(0, 79) AS i"
        ),
        f"INSERT INTO flat SELECT i, {written.format('(700 + i)')} FROM generate_series(80, 90) AS i",
        f"INSERT INTO flat SELECT i, {written.format('9000')} FROM generate_series(91, 95) AS i",
        "INSERT INTO parted SELECT * FROM flat",
        f"CREATE TABLE part (at {kind_of_time}, id integer, n integer)",
        "INSERT INTO part SELECT at, id, n FROM flat, generate_series(1, 2) AS n",
        "CREATE INDEX ON part (at, id)",
    )
    for size in (9, 91):
        found = []
        for table in ("flat", "parted"):
            kind = KIND.format(table)
            if kind_of_time == "bigint":
                kind += '\ntime_unit = "s"'
            opening = opening_of(database, kind, cutoff)
            found.append(pages(database, opening, kind, size))
        flat, parted = ([[page[0], sorted(page[1])] for page in each] for each in found)
        assert parted == flat
        assert sum(len(page[0]) for page in flat) == 91
        assert sum(len(page[1]) for page in flat) == 182


def test_what_is_left_of_a_window_is_cut_in_order_and_without_a_gap(database: str) -> None:
    execute(database, "CREATE TABLE flat (id integer PRIMARY KEY, at date)")
    opening = opening_of(database, 'root = "public.flat"\ntime = "at"', "2020-01-01")
    with connect(database) as connection:
        spans = reaches(connection, opening, ("2010-01-01", "1"))
        assert len(reaches(connection, opening, None)) == 1
        assert len(reaches(connection, opening, ("-infinity", "1"))) == 1
    assert [span.begins for span in spans[1:]] == [span.ends for span in spans[:-1]]
    assert (spans[0].begins, spans[-1].ends) == (None, None)
    ends = [span.ends or "" for span in spans[:-1]]
    assert ends == sorted(ends)
    assert "2010-01-01" < ends[0] < "2010-02-01"
