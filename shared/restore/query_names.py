"""Names inside the database that a query is answered in, and the columns in it that a query may trip over."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.chain.batch import quote
from shared.errors import Code, Refused
from shared.restore.query_types import exact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shared.restore.cat import Selection
    from shared.restore.held import Links
    from shared.restore.query import KeptAsText

# What a number that stayed text can be made where a query computes with it.
NUMBER = "DECIMAL(38, 10)"


@dataclass(frozen=True)
class Names:
    """The names of what is ours: the catalog, the table that rows are staged in, its column for the batch."""

    catalog: str = "tallystick_rows"
    stage: str = "tallystick_stage"
    batch: str = "tallystick_batch"


def names_for(chains: Sequence[Links]) -> Names:
    """Return names that no schema, table or column of the archives has, in whatever case of letters."""
    tables = [table for links in chains for table in links.manifest.tables]
    taken = {part.lower() for table in tables for part in (table.schema, table.name)}
    taken |= {column.name.lower() for table in tables for column in table.columns}
    names = Names()
    while taken & {names.catalog, names.stage, names.batch}:
        names = Names(*(f"{name}_" for name in (names.catalog, names.stage, names.batch)))
    return names


def numbers_in_text(
    chosen: Sequence[Selection], kept: Sequence[KeptAsText]
) -> Iterator[tuple[str, str]]:
    """Yield table and column of numbers that stayed text, which no query can compute with as they are."""
    text = {(each.table, each.column) for each in kept}
    for selected in chosen:
        label = selected.parts[0].table.label
        for place, name in enumerate(selected.columns):
            types = [part.picks[place].type for part in selected.parts]
            is_text = (label, name) in text or exact(types[0]) is None
            if is_text and any(each.startswith("numeric") for each in types):
                yield label, name


@contextmanager
def numbers_named(numbers: Sequence[tuple[str, str]], query: str) -> Iterator[None]:
    """Say of a query that failed which of the columns it names are numbers that stayed text."""
    try:
        yield
    except Refused as refused:
        text = query.lower()
        named = [(table, name) for table, name in numbers if quote(name)[1:-1].lower() in text]
        if not named or refused.code is not Code.QUERY_FAILED:
            raise
        columns = [f"{table}.{name}" for table, name in named]
        write = f"CAST({quote(named[0][1])} AS {NUMBER})"
        raise Refused(
            Code.QUERY_FAILED, cause="text", columns=columns, write=write, **refused.params
        ) from refused
