"""Every operation there is, by name; each is loaded when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shared.operations.work import Operation

OPERATIONS = ("archive", "scan", "prune")


def operation(name: str) -> Operation[Any, Any, Any]:
    """Return an operation by its name; a process that is started for one does without the others."""
    found: Operation[Any, Any, Any] = getattr(
        import_module(f"shared.operations.{name}"), name.upper()
    )
    return found
