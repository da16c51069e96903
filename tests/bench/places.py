"""Pages at the beginning, in the middle and at the end of a large table, and over thousands of partitions."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shared.archive import kinds as kinds_file
from shared.archive.file import Reading, page_bytes
from shared.archive.opening import End, first_look
from shared.archive.page import Page
from shared.chain.batch import Header
from shared.clock import Deadline
from shared.db.connect import connect
from tests.bench.ground import ground
from tests.bench.tables import table

ROOTS = 2_000_000
DAYS = 3_000
PAGES = 20
BATCH = 10_000
BEGINNING = datetime(2010, 1, 1, tzinfo=UTC)
# Where a page begins, as a share of the roots.
SHARES = (0.0, 0.5, 0.9)

FAMILY = (
    "CREATE TABLE k (id bigint, at timestamptz NOT NULL, note text)",
    f"""INSERT INTO k SELECT i, '2010-01-01Z'::timestamptz + i * interval '100 seconds', 'n' || i
        FROM generate_series(1, {ROOTS}) AS i""",
    "ALTER TABLE k ADD PRIMARY KEY (id)",
    "CREATE INDEX ON k (at, id)",
    "CREATE TABLE c (id bigint, kid bigint, n integer)",
    f"INSERT INTO c SELECT i, 1 + (i - 1) / 2, i % 7 FROM generate_series(1, {2 * ROOTS}) AS i",
    "CREATE INDEX ON c (kid)",
    "VACUUM ANALYZE k",
    "VACUUM ANALYZE c",
)
PARTED = (
    "CREATE TABLE ev (id bigint, at timestamptz, note text, PRIMARY KEY (at, id)) PARTITION BY RANGE (at)",
    f"""DO $$ BEGIN FOR day IN 0..{DAYS - 1} LOOP
            EXECUTE format('CREATE TABLE ev_%s PARTITION OF ev FOR VALUES FROM (%L) TO (%L)', day,
                           '2010-01-01Z'::timestamptz + day * interval '1 day',
                           '2010-01-01Z'::timestamptz + (day + 1) * interval '1 day');
            IF day % 100 = 0 THEN COMMIT; END IF;
        END LOOP; END $$""",
    f"""INSERT INTO ev SELECT i, '2010-01-01Z'::timestamptz + i * interval '108 seconds', 'n' || i
        FROM generate_series(0, {800 * DAYS} - 1) AS i""",
    "CREATE TABLE flat (id bigint, at timestamptz, note text, PRIMARY KEY (at, id))",
    "INSERT INTO flat SELECT * FROM ev",
    "VACUUM ANALYZE",
)


@dataclass(frozen=True)
class Place:
    """Where pages begin: after the root of a number; ``step`` lies between the times of two roots."""

    name: str
    kind: str
    share: float
    begins: int
    step: timedelta


def measure(server: str, home: Path) -> Iterator[str]:
    """Read pages one after the other, each on a connection of its own, as a tick does."""
    family, parted = (ground(server, home, name) for name in ("places", "parted"))
    for made, statements in ((family, FAMILY), (parted, PARTED)):
        with connect(made.dsn) as connection:
            for statement in statements:
                connection.execute(statement.encode())
    yield f"{PAGES} pages of {BATCH:,} roots at each place: the median, and its ratio to the first line."
    yield from beside(family.dsn, [_family(share) for share in SHARES])
    yield ""
    yield f"{800 * DAYS:,} rows in one table, and in {DAYS:,} partitions."
    yield from beside(
        parted.dsn, [_days(name, share) for share in SHARES[1:] for name in ("flat", "ev")]
    )


def beside(dsn: str, places: Sequence[Place]) -> Iterator[str]:
    """Measure places in turn and yield a table of them."""
    medians = [statistics.median(_pages(dsn, place)) for place in places]
    yield from table(
        ["Table", ">at", ">A page (median)", ">Ratio"],
        [
            [
                place.name,
                f"{place.share:.0%}",
                f"{seconds * 1000:.0f} ms",
                f"{seconds / medians[0]:.2f}",
            ]
            for place, seconds in zip(places, medians, strict=True)
        ],
    )


def _family(share: float) -> Place:
    kind = (
        'root = "public.k"\ntime = "at"\nrelated = [{ table = "public.c", foreign_key = ["kid"] }]'
    )
    return Place(
        "2 children for each root", kind, share, int(ROOTS * share), timedelta(seconds=100)
    )


def _days(name: str, share: float) -> Place:
    kind = f'root = "public.{name}"\ntime = "at"'
    title = {"flat": "one table", "ev": f"{DAYS:,} partitions"}[name]
    return Place(title, kind, share, int(800 * DAYS * share), timedelta(seconds=108))


def _pages(dsn: str, place: Place) -> list[float]:
    """Return the seconds of consecutive pages from a place on."""
    (kind,) = kinds_file.parse(f"[kinds.k]\n{place.kind}\n", "kinds.toml", "application")
    with connect(dsn) as connection:
        opening = first_look(
            connection, kind.definition, End(), namespace_value=None, name="tallystick bench"
        )
    reading = Reading(kind.definition, opening, "tallystick bench")
    seconds = []
    for number in range(place.begins, place.begins + PAGES * BATCH, BATCH):
        at = (BEGINNING + number * place.step).isoformat(" ")
        cursor = tuple(at if each.name == "at" else str(number) for each in opening.shape.order)
        header = Header("bench", 1, "0" * 64, cursor if number else None, "bench")
        began = time.perf_counter()
        with connect(dsn) as connection:
            page = Page(header, BATCH, Deadline.after(60))
            for _ in page_bytes(connection, reading, page):
                pass
        seconds.append(time.perf_counter() - began)
    return seconds
