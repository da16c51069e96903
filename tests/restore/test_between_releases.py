"""What one release of Postgres archived comes back into another, older or newer."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from shared.db import embedded
from tests.operations.stage import copied, execute
from tests.restore import every_type
from tests.restore.shelf import archived, brought
from tests.worlds import one

pytestmark = pytest.mark.system

OLDER = Path("/usr/lib/postgresql/15/bin")
# Types that both releases have, printed alike by both.
ROWS = "SELECT * FROM every.type"


@pytest.fixture(scope="module")
def other_server(server_dsn: str) -> Iterator[str]:
    """URL of a server of another release than the one the tests run on."""
    this = one(server_dsn, "SELECT current_setting('server_version_num')::integer / 10000")
    binaries = OLDER if this > 15 else None
    with tempfile.TemporaryDirectory(prefix="tallystick-") as name:
        url = embedded.start(Path(name), durable=False, binaries=binaries)
        assert one(url, "SELECT current_setting('server_version_num')::integer / 10000") != this
        yield url
        embedded.stop(Path(name))


@pytest.fixture
def other_database(other_server: str) -> Iterator[str]:
    name = f"tallystick_other_{os.getpid()}"
    execute(other_server, f"CREATE DATABASE {name} TEMPLATE template0")
    yield urlunsplit(urlsplit(other_server)._replace(path=f"/{name}"))
    execute(other_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("way", ["there", "back"])
def test_every_type_comes_back_on_another_release(
    database: str, empty_database: str, other_database: str, volume_root: Path, way: str
) -> None:
    source, target = (empty_database, other_database)[:: 1 if way == "there" else -1]
    every_type.declare(source)
    every_type.declare(target)
    both = every_type.columns(source).keys() & every_type.columns(target).keys()
    types = {name: each for name, each in every_type.columns(source).items() if name in both}
    every_type.create(source, types)
    every_type.fill(source, every_type.edges(types))
    kinds = every_type.KINDS.format("there")
    here = archived(database, volume_root, "SELECT", kinds=kinds, kind="there", source=source)
    brought(here, target, create_tables=True)
    assert copied(target, ROWS) == copied(source, ROWS)
