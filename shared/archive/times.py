"""Which column of a table says how old a row is, and in which unit: what its declaration and values show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import sql

from shared.archive.examine import time_sort
from shared.archive.shape import TimeSort
from shared.archive.staying import sample_percent, share_text
from shared.db.statement import statement
from shared.errors import Code, Refused

if TYPE_CHECKING:
    import psycopg

    from shared.archive.kinds import TimeUnit
    from shared.catalog.facts import Facts
    from shared.db.connect import Row

# Enough values to tell what a column holds, few enough to cost nothing.
SAMPLE_ROWS = 1000
# Between 1990 and 2100 a count of seconds, and no count of milliseconds, is a number of this size.
SECONDS_FROM, SECONDS_TO = 631_152_000, 4_102_444_800
UNITS: tuple[tuple[TimeUnit, int], ...] = (("s", 1), ("ms", 1000), ("us", 1_000_000))
# A sample can be taken of these alone: tables, partitioned ones, materialised views.
SAMPLED_KINDS = frozenset({"r", "p", "m"})


def time_column(connection: psycopg.Connection[Row], root: Facts) -> str:
    """Return the one column that can be the time; raises ``Refused`` with all of them if there are more."""
    sorts = {
        name: time_sort(column)
        for name, column in root.columns.items()
        if column["generated"] is None
    }
    times = [name for name, sort in sorts.items() if sort not in {None, TimeSort.NUMBER}]
    if len(times) == 1:
        return times[0]
    keyed = {column for key in root.row["foreign_keys"] for column in key["columns"]}
    keyed |= set(root.primary_key() or ())
    numbers = [
        name for name, sort in sorts.items() if sort is TimeSort.NUMBER and name not in keyed
    ]
    candidates = times or [name for name in numbers if _counts_time(connection, root, name)]
    if not candidates:
        raise Refused(Code.TIME_MISSING, table=str(root.name))
    raise Refused(
        Code.TIME_AMBIGUOUS,
        table=str(root.name),
        problems=[_candidate(connection, root, name) for name in candidates],
    )


def time_unit(connection: psycopg.Connection[Row], root: Facts, time: str) -> TimeUnit | None:
    """Return the unit of an integer time, guessed from the size of its values; None for other times."""
    column = root.columns.get(time)
    if column is None or time_sort(column) is not TimeSort.NUMBER:
        return None
    values = _values(connection, root, time)
    most = max(values, default=None)
    for unit, per_second in UNITS:
        if most is not None and SECONDS_FROM <= most / per_second < SECONDS_TO:
            return unit
    raise Refused(Code.TIME_UNIT_UNKNOWN, table=str(root.name), column=time)


def _counts_time(connection: psycopg.Connection[Row], root: Facts, name: str) -> bool:
    """Tell whether an integer column may count from 1970: most of its values do so in one of the units."""
    if root.columns[name]["base"] == "smallint":
        return False
    values = _values(connection, root, name)
    fitting = [
        sum(SECONDS_FROM <= value / per_second < SECONDS_TO for value in values)
        for _, per_second in UNITS
    ]
    return not values or 2 * max(fitting) >= len(values)


def _values(connection: psycopg.Connection[Row], root: Facts, name: str) -> list[int]:
    """Return some values of an integer column; without 0, which often stands for no time at all."""
    query = sql.SQL("SELECT {0} AS value FROM {1} WHERE {0} <> 0 LIMIT {2}").format(
        sql.Identifier(name), _part(connection, root), sql.Literal(SAMPLE_ROWS)
    )
    return [row["value"] for row in connection.execute(query).fetchall()]


def _candidate(connection: psycopg.Connection[Row], root: Facts, name: str) -> dict[str, Any]:
    leading = (
        index["name"]
        for index in root.row["indexes"]
        if index["usable"] and index["ordered"] and index["columns"][:1] == [name]
    )
    share = _null_share(connection, root, name)
    # None in a sample is not none at all.
    none = "0%" if root.columns[name]["not_null"] else share_text(0.001)
    return {
        "problem": "candidate",
        "column": name,
        "type": root.columns[name]["type"],
        "nulls": None if share is None else share_text(share) if share else none,
        "null_share": share,
        "index": next(leading, None),
    }


def _null_share(connection: psycopg.Connection[Row], root: Facts, name: str) -> float | None:
    """Return the share of rows without a value: as the server's statistics say, else of a sample."""
    if root.columns[name]["not_null"]:
        return 0.0
    params = {"schema": root.name.schema, "table": root.name.name, "column": name}
    known = connection.execute(statement("shared.archive", "null_share"), params).fetchone()
    if known is not None:
        return float(known["share"])
    sample = sql.SQL("SELECT avg(({} IS NULL)::int)::float8 AS share FROM {}").format(
        sql.Identifier(name), _part(connection, root)
    )
    row = connection.execute(sample).fetchone()
    return row["share"] if row else None


def _part(connection: psycopg.Connection[Row], root: Facts) -> sql.Composed:
    """Return a part of a table to select from: of its blocks everywhere, as its first rows may be special."""
    table = sql.Identifier(root.name.schema, root.name.name)
    if root.row["kind"] not in SAMPLED_KINDS:
        return sql.SQL("(SELECT * FROM {} LIMIT {}) AS part").format(
            table, sql.Literal(SAMPLE_ROWS)
        )
    percent = sql.Literal(sample_percent(connection, root.name))
    return sql.SQL("{} AS part TABLESAMPLE SYSTEM ({}) REPEATABLE (1)").format(table, percent)
