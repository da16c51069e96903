"""The instant that an archive reaches to, from the text of a root's time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from shared.archive.backlog import instant
from shared.archive.shape import TimeSort

BERLIN = {"time_zone": "Europe/Berlin", "time_unit": None}


@pytest.mark.parametrize(
    ("text", "sort", "definition", "expected"),
    [
        ("2026-01-02 03:04:05+00", "instant", BERLIN, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-07-02 03:04:05.25", "local", BERLIN, datetime(2026, 7, 2, 1, 4, 5, 250_000, UTC)),
        ("2026-01-02", "date", BERLIN, datetime(2026, 1, 1, 23, tzinfo=UTC)),
        ("86400", "number", BERLIN | {"time_unit": "s"}, datetime(1970, 1, 2, tzinfo=UTC)),
        ("86400000", "number", BERLIN | {"time_unit": "ms"}, datetime(1970, 1, 2, tzinfo=UTC)),
        (
            "-1000000",
            "number",
            BERLIN | {"time_unit": "us"},
            datetime(1969, 12, 31, 23, 59, 59, 0, UTC),
        ),
    ],
)
def test_the_text_of_a_time_is_an_instant_as_its_kind_means_it(
    text: str, sort: str, definition: dict[str, Any], expected: datetime
) -> None:
    assert instant(text, TimeSort(sort), definition) == expected


@pytest.mark.parametrize(
    ("text", "sort", "definition"),
    [
        ("infinity", "instant", BERLIN),
        ("-infinity", "date", BERLIN),
        ("0044-03-15 BC", "date", BERLIN),
        ("294276-12-31 23:59:59+00", "instant", BERLIN),
        ("9223372036854775807", "number", BERLIN | {"time_unit": "s"}),
        ("2026-01-02", "date", {"time_zone": "Nowhere/At_All", "time_unit": None}),
    ],
)
def test_a_time_beyond_all_calendars_is_not_known(
    text: str, sort: str, definition: dict[str, Any]
) -> None:
    assert instant(text, sort, definition) is None
