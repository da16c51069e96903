"""Several hosts in one connection string: the first that answers and is what was asked for is taken."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import urlsplit

import pytest

from shared.archive.source import SourceConnection
from shared.errors import Passing
from tests import worlds


def several(database: str, attrs: str) -> str:
    parts = urlsplit(database)
    query = parts.query.replace("host=", "host=%2Fnowhere%2Fat%2Fall,").replace("port=", "port=1,")
    return f"{parts.scheme}://{parts.netloc}{parts.path}?{query}&target_session_attrs={attrs}"


@pytest.mark.parametrize("attrs", ["any", "read-write", "primary", "prefer-standby"])
def test_a_host_that_is_gone_is_passed_over(database: str, attrs: str) -> None:
    with closing(worlds.control(several(database, attrs))) as control:
        assert control.transact("SELECT 1 AS x", {}) == [{"x": 1}]


def test_no_host_that_is_what_was_asked_for_passes_and_says_so(database: str) -> None:
    way = several(database, "standby")
    with closing(worlds.control(way, 0.5)) as control, pytest.raises(Passing) as passing:
        control.transact("SELECT 1 AS x", {})
    assert passing.value.params["cause"] == "session-attrs"
    with closing(SourceConnection(way)) as source, pytest.raises(Passing) as passing:
        source.open()
    assert passing.value.params["cause"] == "session-attrs"
