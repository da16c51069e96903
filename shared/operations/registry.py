"""Every operation there is."""

from __future__ import annotations

from typing import Any

from shared.operations.archive import ARCHIVE
from shared.operations.prune import PRUNE
from shared.operations.scan import SCAN
from shared.operations.work import Operation

OPERATIONS: dict[str, Operation[Any, Any, Any]] = {
    operation.name: operation for operation in (ARCHIVE, SCAN, PRUNE)
}
