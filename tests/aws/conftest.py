"""An account of AWS for every test here, and nothing of the real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.aws.account import Account, entered, guarded, served


@pytest.fixture(scope="session")
def account_url() -> Iterator[str]:
    """URL of an account that is kept for the whole run."""
    with served() as url:
        yield url


@pytest.fixture
def account(account_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """An empty account, which this process knows of."""
    with entered(account_url, monkeypatch) as made:
        yield made


@pytest.fixture(autouse=True)
def strayed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """What tried to leave this machine; anything fails the test."""
    with guarded(monkeypatch) as noted:
        yield noted
        assert noted == []
