"""Names of tables as people write them: ``schema.table``, each part bare or in double quotes."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PART = r'(?:[a-z_][a-z0-9_$]*|"(?:[^"\x00-\x1f\x7f]|"")+")'
_TABLE = re.compile(rf"({_PART})\.({_PART})")
# What neither a kinds file nor a line of a batch can hold inside a name.
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BARE = re.compile(r"[a-z_][a-z0-9_$]*")


@dataclass(frozen=True, order=True)
class TableName:
    """A table by schema and name, as the catalog spells them."""

    schema: str
    name: str

    def __str__(self) -> str:
        """Write the name so that ``parse_table`` reads it back."""
        return f"{_written(self.schema)}.{_written(self.name)}"

    @property
    def sql(self) -> str:
        """Return the name as any SQL statement takes it, reserved words included."""
        return ".".join('"' + part.replace('"', '""') + '"' for part in (self.schema, self.name))


def parse_table(text: str) -> TableName | None:
    """Read ``schema.table``; None when it is not one (a bare name would depend on a search path)."""
    match = _TABLE.fullmatch(text)
    return TableName(_read(match[1]), _read(match[2])) if match else None


def likely(text: str) -> TableName | None:
    """Return the table that was probably meant by a text that ``parse_table`` does not read."""
    schema, dot, name = (part.strip('"') for part in text.partition("."))
    return TableName(schema, name) if dot and schema and name else None


def visible(text: str) -> str:
    """Return a name with its control characters escaped, so that a message can show it."""
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def column_written(name: str) -> str:
    """Return a column's name as SQL wants it."""
    return _written(name)


def _read(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def _written(part: str) -> str:
    return part if _BARE.fullmatch(part) else '"' + part.replace('"', '""') + '"'
