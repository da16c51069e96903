"""Which DuckDB type holds a Postgres type exactly, and how each value is shown to have kept its text."""

from __future__ import annotations

import re
from dataclasses import dataclass

DECIMAL_MAX = 38
NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
TIMESTAMP = re.compile(r"timestamp(?:\(\d\))? (with|without) time zone")
WHOLE = {"smallint": "SMALLINT", "integer": "INTEGER", "bigint": "BIGINT"}
FLOATS = {"real": "FLOAT", "double precision": "DOUBLE"}
TEXT = "VARCHAR"


@dataclass(frozen=True)
class Exact:
    """A DuckDB type and the SQL that goes there from ``{text}``, the server's, and back from ``{value}``.

    A value fits when ``made`` is not NULL, ``spelled`` gives its text again, and ``finite`` holds. Where
    ``spelled`` is None the text may differ and the value is the same.
    """

    name: str
    made: str
    spelled: str | None = "CAST({value} AS VARCHAR)"
    finite: str = "true"

    def fits(self, text: str) -> str:
        """Return the SQL condition under which the text in this column is held exactly."""
        value = self.made.format(text=text)
        parts = [f"{value} IS NOT NULL", self.finite.format(value=value)]
        if self.spelled is not None:
            parts.append(f"{self.spelled.format(value=value)} = {text}")
        return " AND ".join(f"coalesce({part}, false)" for part in parts)


def exact(type_name: str) -> Exact | None:
    """Return how values of a type are held; None for those that stay the server's text."""
    if name := WHOLE.get(type_name):
        return Exact(name, _cast(name))
    if name := FLOATS.get(type_name):
        return Exact(name, _cast(name), spelled=None)
    if found := NUMERIC.fullmatch(type_name):
        return _decimal(int(found[1]), int(found[2]))
    if found := TIMESTAMP.fullmatch(type_name):
        name = "TIMESTAMPTZ" if found[1] == "with" else "TIMESTAMP"
        return Exact(name, _cast(name), finite="isfinite({value})")
    others = {
        "date": Exact("DATE", _cast("DATE"), finite="isfinite({value})"),
        "uuid": Exact("UUID", _cast("UUID")),
        "boolean": Exact(
            "BOOLEAN",
            "(CASE {text} WHEN 't' THEN true WHEN 'f' THEN false END)",
            "(CASE WHEN {value} THEN 't' ELSE 'f' END)",
        ),
        "bytea": Exact("BLOB", r"TRY(unhex(substr({text}, 3)))", r"'\x' || lower(hex({value}))"),
    }
    return others.get(type_name)


def _cast(name: str) -> str:
    return f"TRY_CAST({{text}} AS {name})"


def _decimal(precision: int, scale: int) -> Exact | None:
    if not 0 < precision <= DECIMAL_MAX or scale > precision:
        return None
    name = f"DECIMAL({precision},{scale})"
    if scale < precision:
        return Exact(name, _cast(name))
    if precision == DECIMAL_MAX:
        return None
    # Without a digit before the point DuckDB writes .5, so one is made room for.
    wider = f"CAST(CAST({{value}} AS DECIMAL({precision + 1},{scale})) AS VARCHAR)"
    return Exact(name, _cast(name), wider)
