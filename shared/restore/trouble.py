"""What the target's server says while rows are restored, as an error that names the conflict.

Its own words about data quote values of rows, so of these only names are taken.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

from shared.catalog.names import TableName
from shared.db import reaching
from shared.db.connect import cause_of, turned_away, was_lost
from shared.errors import Code, Passing, Trouble, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

# Where the connection string of a target is given.
SETTING = "--to"

# Rows and target do not go together, by SQLSTATE or its class.
CONFLICTS = {
    "23505": "unique",
    "23P01": "exclusion",
    "23503": "foreign-key",
    "23502": "not-null",
    "23514": "check",
    "44000": "check",
    "P0": "trigger",
    "09": "trigger",
    "22": "value",
    "54000": "value",
}
# The server will not, whatever the rows are.
REFUSALS: dict[str, tuple[type[Trouble], str]] = {
    "42501": (Verdict, "not-granted"),
    "25006": (Verdict, "read-only"),
    "53200": (Passing, "out-of-memory"),
    "53400": (Verdict, "server-limit"),
    "54": (Verdict, "server-limit"),
    "53": (Passing, "overloaded"),
    "55000": (Verdict, "not-ready"),
    "58": (Passing, "server-storage"),
    "XX001": (Verdict, "damaged"),
    "XX002": (Verdict, "damaged"),
    "XX": (Verdict, "server-fault"),
    "40": (Passing, "rolled-back"),
    "55P03": (Passing, "locked"),
    "57014": (Passing, "cancelled"),
}
FUNCTION = re.compile(r"PL/pgSQL function ([^\n]{1,200}?) line \d+ at")
ROW = re.compile(r"^COPY .*, line (\d+)", re.MULTILINE)


@contextmanager
def target_errors(**params: object) -> Iterator[None]:
    """Turn what the target's server says into a trouble; ``params`` say what was being done."""
    try:
        yield
    except psycopg.Error as error:
        # Without a SQLSTATE it is libpq that speaks, which may quote what it was given as a password.
        raise trouble_of(error, **params) from (error if error.sqlstate else None)


def trouble_of(error: psycopg.Error, **params: object) -> Trouble:
    """Name the conflict, or say why the server refused."""
    state = error.sqlstate or ""
    if turned_away(error):
        return Verdict(Code.RESTORE_FAILED, cause="refused", detail=cause_of(error), **params)
    if met := reaching.obstacle(error):
        kind: type[Trouble] = Verdict if met.configured else Passing
        about = {"cause": met.cause, "detail": met.detail, "setting": SETTING}
        return kind(Code.RESTORE_FAILED, **params | about)
    if was_lost(error):
        return Passing(Code.RESTORE_FAILED, cause="unreachable", detail=cause_of(error), **params)
    if cause := CONFLICTS.get(state) or CONFLICTS.get(state[:2]):
        return Verdict(Code.RESTORE_CONFLICT, **params | _names(error) | {"cause": cause})
    kind, cause = REFUSALS.get(state) or REFUSALS.get(state[:2]) or (Verdict, "refused-by-server")
    detail = {"detail": cause_of(error), "sqlstate": state}
    if "out of shared memory" in str(error):
        cause = "lock-table-full"
    return kind(Code.RESTORE_FAILED, **params | detail | {"cause": cause})


def _names(error: psycopg.Error) -> dict[str, object]:
    """Return the names in an error about data: table, column, constraint, function, number of the row."""
    said = error.diag
    context = said.context or ""
    function, row = FUNCTION.search(context), ROW.search(context)
    table = None
    if said.schema_name and said.table_name:
        table = str(TableName(said.schema_name, said.table_name))
    found: dict[str, object] = {
        "table": table,
        "column": said.column_name,
        "constraint": said.constraint_name,
        "function": function[1] if function else None,
        "row": int(row[1]) if row else None,
        "sqlstate": error.sqlstate,
    }
    return {name: value for name, value in found.items() if value is not None}
