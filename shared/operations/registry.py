"""Every operation there is, by name; each is loaded when it is first asked for."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from shared.errors import Code, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.operations.work import Operation


def operation(name: str) -> Operation[Any, Any, Any]:
    """Return an operation by its name; a process that is started for one does without the others."""
    return OPERATIONS[name]()


def require(name: str | None) -> None:
    """Refuse (OPERATION_UNKNOWN) a name that no operation has; None stands for any of them."""
    if name is not None and name not in OPERATIONS:
        raise Refused(Code.OPERATION_UNKNOWN, operation=name, known=sorted(OPERATIONS))


def _loaded(name: str) -> Operation[Any, Any, Any]:
    module = import_module(f"shared.operations.{name}")
    found: Operation[Any, Any, Any] = getattr(module, name.upper())
    return found


OPERATIONS: dict[str, Callable[[], Operation[Any, Any, Any]]] = {
    name: partial(_loaded, name) for name in ("archive", "scan", "prune")
}
