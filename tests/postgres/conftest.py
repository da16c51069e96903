"""The control database of one test, and a volume it knows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.db.connect import Database
from tests import worlds


@pytest.fixture
def control(database: str) -> Iterator[Database]:
    """Connection of one invocation to a fresh, migrated database."""
    opened = worlds.control(database)
    yield opened
    opened.close()


@pytest.fixture
def storage_id(control: Database) -> str:
    """Id of a volume that the database knows; no directory belongs to it."""
    return worlds.a_storage_id(control)
