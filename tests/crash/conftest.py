"""The worlds of the sweeps: each is made once for a worker, when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.crash.trial import Ground, ground

Grounds = Callable[[str], Ground]


@pytest.fixture(scope="session")
def grounds(
    server_dsn: str, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Grounds]:
    """Return the ground of a world by its name."""
    made: dict[str, Ground] = {}
    with ExitStack() as stack:

        def get(name: str) -> Ground:
            if name not in made:
                place = tmp_path_factory.mktemp("mould")
                made[name] = stack.enter_context(ground(name, server_dsn, template, place))
            return made[name]

        yield get
