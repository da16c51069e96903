"""A healthy installation for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doctor.ward import Ward, a_ward
from tests.golden.scenario import Shell


@pytest.fixture
def ward(
    server_dsn: str,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Ward]:
    """A healthy installation."""
    with a_ward(database, Shell(capsys), monkeypatch) as made:
        yield made
