"""Handlers in this process as in one that has just been started."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from handlers import invocation, log, observing


@contextmanager
def process() -> Iterator[None]:
    """Leave nothing behind that a process begins with: settings, a node, and where log lines go."""
    ours = logging.getLogger(log.SERVICE)
    _forget()
    yield
    _forget()
    observing._logger.cache_clear()
    ours.propagate = True
    ours.setLevel(logging.NOTSET)
    for handler in ours.handlers[:]:
        ours.removeHandler(handler)
    for handler in logging.getLogger().handlers:
        for each in handler.filters[:]:
            handler.removeFilter(each)
    ours.__dict__.pop("init", None)


def _forget() -> None:
    invocation.configured.cache_clear()
    invocation.node.cache_clear()
