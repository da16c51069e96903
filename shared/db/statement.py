"""SQL lives in files, one statement each, beside the module that runs it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def statement(package: str, name: str) -> str:
    """Return the text of ``{name}.sql`` in the folder ``sql`` of ``package``."""
    return (files(package) / "sql" / f"{name}.sql").read_text("utf-8")
