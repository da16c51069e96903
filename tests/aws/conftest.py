"""An account of AWS for every test here, and nothing of the real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.aws.account import Account, entered, guarded, served
from tests.aws.functions import Functions, listening
from tests.operations import afresh


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


@pytest.fixture
def functions(account: Account, monkeypatch: pytest.MonkeyPatch) -> Iterator[Functions]:
    """The API of functions and stacks, in front of handlers of this process."""
    with listening() as made, afresh.process():
        for service in ("LAMBDA", "CLOUDFORMATION"):
            monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", made.url)
        yield made


@pytest.fixture(autouse=True)
def strayed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """What tried to leave this machine; anything fails the test."""
    with guarded(monkeypatch) as noted:
        yield noted
        assert noted == []
