"""Sizes and durations as people write them."""

from __future__ import annotations

import pytest
import typer

from handlers.cli.values import days, duration, size


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("1048576", 1048576), ("256MiB", 256 * 1024**2), ("10 GiB", 10 * 1024**3), ("1tib", 1024**4)],
)
def test_a_size_is_read(text: str, bytes_: int) -> None:
    assert size(text) == bytes_


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("30m", 1800), ("24h", 86400), ("365d", 365 * 86400)]
)
def test_a_duration_is_read(text: str, seconds: int) -> None:
    assert duration(text) == seconds


def test_days_are_whole() -> None:
    assert days("365d") == 365
    assert days("48h") == 2
    with pytest.raises(typer.BadParameter, match="whole number of days"):
        days("25h")


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1.5GiB", "10MB", "1e6", "9" * 30, "٣"])
def test_another_size_is_refused_with_the_form_expected(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="256MiB") as refused:
        size(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize("text", ["", "24", "h", "1w", "-1h", "1.5h", "1h30m", "9" * 30 + "s"])
def test_another_duration_is_refused_with_the_form_expected(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="24h") as refused:
        duration(text)
    assert repr(text) in str(refused.value)
