"""An invocation by a deployment: the schema is brought up to date before new code runs."""

from __future__ import annotations

from typing import Any

from handlers.invocation import in_words
from shared import wiring
from shared.db import migrate
from shared.settings import load


@in_words
def handler(_event: object, _context: object) -> dict[str, Any]:
    """Apply the migrations that are missing and return their versions; safe when two run at once."""
    return {"applied": list(migrate.migrate(wiring.control_dsn(load())))}
