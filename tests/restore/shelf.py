"""What restore tests start from: a source archived by real ticks, and readers of what came back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from shared.jobs.model import Ending, Job, State
from shared.restore import archives
from shared.restore.restoration import Account, Request, Watch, restore
from tests.operations.stage import (
    Stage,
    copied,
    directory,
    jobs,
    plan,
    plans_due,
    rows_in,
    stage,
)

ORDERS = """
[kinds.orders]
root = "shop.orders"
time = "placed_at"
related = ["shop.line", "shop.part"]
"""

SHOP = (
    "CREATE SCHEMA shop",
    "CREATE TYPE shop.mood AS ENUM ('glad', 'so, so', 'it''s \"odd\"')",
    (
        "CREATE TABLE shop.orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
        " customer text NOT NULL, placed_at timestamptz NOT NULL, mood shop.mood,"
        " note text, size integer GENERATED ALWAYS AS (length(customer) * 2) STORED)"
    ),
    "CREATE INDEX ON shop.orders (placed_at, id)",
    (
        "CREATE TABLE shop.line (order_id bigint NOT NULL REFERENCES shop.orders, number serial,"
        " price numeric(10, 2), PRIMARY KEY (order_id, number))"
    ),
    (
        "CREATE TABLE shop.part (order_id bigint, number integer, name text,"
        " FOREIGN KEY (order_id, number) REFERENCES shop.line)"
    ),
    (
        "INSERT INTO shop.orders (customer, placed_at, mood, note)"
        " SELECT 'customer ' || n % 7, timestamptz '2020-01-01Z' + n * interval '1 hour',"
        " (enum_range(NULL::shop.mood))[1 + n % 4], CASE WHEN n % 3 > 0 THEN E'tab\\tand\\\\' || n END"
        " FROM generate_series(1, 45) AS n"
    ),
    (
        "INSERT INTO shop.line SELECT id, number, id * number"
        " FROM shop.orders, generate_series(1, 2) AS number"
    ),
    (
        "INSERT INTO shop.part SELECT order_id, number, 'part ' || n"
        " FROM shop.line, generate_series(1, 2) AS n"
    ),
)
TABLES = ("shop.orders", "shop.line", "shop.part")


def archived(
    database: str,
    root: Path,
    *ddl: str,
    kinds: str = ORDERS,
    kind: str = "orders",
    source: str | None = None,
    **changes: Any,  # noqa: ANN401 - the members of PlanChange
) -> Stage:
    """Archive a kind by ticks, ten roots a batch unless told otherwise."""
    here = stage(database, root, kinds, *(ddl or SHOP), source=source)
    plan(here, kind, **({"batch_size": 10} | changes))
    again(here)
    return here


def again(here: Stage) -> Job:
    """Tick until nothing is due and return the newest job, which succeeded."""
    plans_due(here)
    reports = here.until_idle()
    assert reports[-1].outcome.ending is Ending.IDLE, reports[-1]
    job = jobs(here)[-1]
    assert job.state is State.SUCCEEDED, job.error_params
    return job


def place(here: Stage, job: Job | None = None) -> archives.Place:
    """Return where the archive of a job lies (the newest when left out), its recorded tail expected."""
    job = job or jobs(here)[-1]
    return archives.place(directory(here, job), job.last_sha256)


def brought(here: Stage, url: str, watch: Watch = lambda _: None, **wanted: Any) -> Account:  # noqa: ANN401
    """Restore the newest job's archive with the members of a request."""
    return restore([place(here)], url, Request(**wanted), watch)


def archived_rows(here: Stage) -> dict[str, Counter[bytes]]:
    """Return the lines of all files of all jobs by the quoted name of their table."""
    return rows_in(sorted(here.root.glob("*/*.sql.zst")))


def assert_equal(source: str, target: str, *tables: str) -> None:
    """Compare the text of two databases' tables byte for byte."""
    for table in tables:
        ours = copied(source, f"SELECT * FROM {table}")
        assert ours
        assert copied(target, f"SELECT * FROM {table}") == ours, table
