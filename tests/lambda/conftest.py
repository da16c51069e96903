"""Where packages are made, once in a run."""

from __future__ import annotations

import pytest

from tests.runtime.package import Workshop


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """What one worker has made there the others find."""
    return Workshop(tmp_path_factory)
