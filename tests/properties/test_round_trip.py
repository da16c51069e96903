"""Archived, restored into an empty database and archived again: the same bytes, for every type and value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from shared.archive import kinds
from shared.restore.restoration import Account
from tests.operations.stage import (
    Stage,
    copied,
    directory,
    execute,
    jobs,
    plan,
    rows_in,
)
from tests.restore import every_type
from tests.restore.shelf import again, archived, brought, place
from tests.worlds import known

BOTH = every_type.KINDS.format("there") + every_type.KINDS.format("back")
ROWS = "SELECT * FROM every.type"


# What a database may have for its defaults: under any of these, text left alone means something else.
ODD_DEFAULTS = {
    "datestyle": "'SQL, DMY'",
    "intervalstyle": "sql_standard",
    "timezone": "'Asia/Kolkata'",
    "extra_float_digits": "-5",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "xmloption": "document",
    "client_encoding": "latin1",
    "search_path": "every",
}


class Workshop:
    """A source and a target with the same types, and one volume that both are archived to."""

    def __init__(self, database: str, target: str, root: Path) -> None:
        for url in (database, target):
            every_type.declare(url)
        for name, value in ODD_DEFAULTS.items():
            this = urlsplit(target).path.removeprefix("/")
            execute(target, f'ALTER DATABASE "{this}" SET {name} = {value}')
        self.types = every_type.columns(database)
        every_type.create(database, self.types)
        self.target = target
        self.here = archived(database, root, "SELECT", kinds=BOTH, kind="there", scope="all")
        back = kinds.parse(BOTH, "kinds.toml", "application")
        sources = {"control": database, "application": target}
        node = replace(self.here.node, kinds=known(back), sources=sources)
        self.back = Stage(database, target, root, node)

    def there_and_back(self, values: list[list[str | None]]) -> None:
        execute(self.here.source, "TRUNCATE every.type")
        execute(self.target, "DROP TABLE IF EXISTS every.type")
        every_type.fill(self.here.source, values)
        first = again(self.here)
        assert first.roots == len(values)
        self.restored()
        assert copied(self.target, ROWS) == copied(self.here.source, ROWS)
        # What the restored table gives when it is archived itself.
        plan(self.back, "back", scope="all", batch_size=10)
        second = again(self.back)
        assert second.id != first.id
        ours, theirs = (
            rows_in(sorted(directory(self.here, job).glob("*.sql.zst"))) for job in (first, second)
        )
        assert theirs == ours

    def restored(self) -> Account:
        assert place(self.here).manifest.job == str(jobs(self.here)[-1].id)
        return brought(self.here, self.target, create_tables=True)


@pytest.fixture
def workshop(database: str, empty_database: str, volume_root: Path) -> Workshop:
    return Workshop(database, empty_database, volume_root)


def test_every_edge_of_every_type_comes_back_byte_for_byte(workshop: Workshop) -> None:
    values = every_type.edges(workshop.types)
    assert len(values) > 20
    workshop.there_and_back(values)


def test_every_value_of_every_type_comes_back_byte_for_byte(workshop: Workshop) -> None:
    row = st.tuples(*(each.drawn | st.none() for each in workshop.types.values())).map(list)

    @settings(
        max_examples=12,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(row, min_size=1, max_size=12))
    def there_and_back(values: list[list[str | None]]) -> None:
        workshop.there_and_back(values)

    there_and_back()
