"""What these tests archive was made a moment ago: windows end at the very clock of the source."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres.reading import up_to_now


@pytest.fixture(autouse=True)
def _without_margin() -> Iterator[None]:
    with up_to_now():
        yield
