"""Whole archives of real data: a shop's invoices, and a year of flights with thousands at the same hour."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from shared.chain.frame import decompressed
from shared.jobs.model import Ending, State
from tests.operations.stage import (
    Stage,
    assert_sound,
    copied,
    directory,
    only_job,
    plan,
    rows_in,
    stage,
)

INVOICES = """
[kinds.invoices]
root = "public.invoice"
time = "invoice_date"
related = ["public.invoice_line"]
"""
FLIGHTS = """
[kinds.flights]
root = "public.flight"
time = "time_hour"
"""
NUMBERS = (
    *(
        "year",
        "month",
        "day",
        "dep_time",
        "sched_dep_time",
        "dep_delay",
        "arr_time",
        "sched_arr_time",
    ),
    "arr_delay",
)
COLUMNS = (
    *NUMBERS,
    *("carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute"),
    "time_hour",
)
TEXT = {"carrier": "text", "tailnum": "text", "origin": "char(3)", "dest": "char(3)"}


def test_a_shops_invoices_are_archived_with_their_lines(
    database: str, volume_root: Path, test_data: Path
) -> None:
    here = stage(database, volume_root, INVOICES, (test_data / "chinook.sql").read_text("utf-8"))
    plan(here, "invoices", batch_size=20)
    reports = here.until_idle()
    assert reports[-1].outcome.ending is Ending.IDLE
    job = only_job(here)
    assert job.state is State.SUCCEEDED
    files = assert_sound(here, job)
    cutoff = f"SELECT * FROM invoice WHERE invoice_date < '{job.opening and job.opening['cutoff']}'"
    lines = f"SELECT l.* FROM invoice_line AS l JOIN ({cutoff}) AS i ON i.invoice_id = l.invoice_id"
    found = rows_in(files)
    assert found == {
        '"public"."invoice"': copied(database, cutoff),
        '"public"."invoice_line"': copied(database, lines),
    }
    assert job.roots == sum(found['"public"."invoice"'].values()) > 300
    assert job.batches == -(-job.roots // 20)
    # The digests an operator gets from the shell.
    manifest = (directory(here, job) / "manifest.json").read_bytes()
    tail = hashlib.sha256(manifest).hexdigest()
    for file in files:
        head = b"".join(decompressed([file.read_bytes()])).split(b"\n", 1)[0]
        assert f'"prev":"{tail}"'.encode() in head
        tail = hashlib.sha256(file.read_bytes()).hexdigest()
    assert tail == job.last_sha256


def load(dsn: str, data: Path, rows: int | None) -> None:
    """Fill the table of flights with so many of them, or with all."""
    types = ", ".join(
        f"{name} {TEXT.get(name, 'integer' if name != 'time_hour' else 'timestamptz')}"
        for name in COLUMNS
    )
    text = b"".join(decompressed_csv(data / "flights.csv.zst"))
    if rows is not None:
        text = b"".join(text.splitlines(keepends=True)[: rows + 1])
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE flight (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {types})".encode()
        )
        names = ", ".join(COLUMNS)
        into = f"COPY flight ({names}) FROM STDIN (FORMAT csv, HEADER, NULL 'NA')"
        with connection.cursor().copy(into.encode()) as copy:
            copy.write(text)
        connection.execute("CREATE INDEX ON flight (time_hour, id)")
        connection.execute("ANALYZE flight")


def decompressed_csv(file: Path) -> list[bytes]:
    import sys

    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return [zstd.decompress(file.read_bytes())]


def whole(here: Stage, size: int) -> None:
    """Archive all flights and compare them with the table, as multisets of their text."""
    plan(here, "flights", batch_size=size)
    reports = here.until_idle(1000)
    assert reports[-1].outcome.ending is Ending.IDLE, reports[-1]
    job = only_job(here)
    assert job.state is State.SUCCEEDED
    found = rows_in(assert_sound(here, job))['"public"."flight"']
    expected = copied(here.source, "SELECT * FROM flight")
    assert job.roots == sum(expected.values())
    assert max(found.values()) == 1
    assert (found - expected, expected - found) == (Counter(), Counter())


@pytest.mark.parametrize(("rows", "size"), [(60, 1), (350, 7), (None, 100_000)])
def test_no_flight_is_lost_or_doubled(
    database: str, volume_root: Path, test_data: Path, rows: int | None, size: int
) -> None:
    load(database, test_data, rows)
    whole(stage(database, volume_root, FLIGHTS), size)


@pytest.mark.system
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("rows", "size"), [(300, 1), (5000, 7), (None, 1000)])
def test_no_flight_is_lost_or_doubled_in_many_batches(
    database: str, volume_root: Path, test_data: Path, rows: int | None, size: int
) -> None:
    load(database, test_data, rows)
    whole(stage(database, volume_root, FLIGHTS), size)
