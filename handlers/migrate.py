"""An invocation by a deployment: the schema is brought up to date, and the directory made a volume."""

from __future__ import annotations

from typing import Any

from handlers.invocation import in_words
from shared import wiring
from shared.db import migrate
from shared.settings import load


@in_words
def handler(_event: object, _context: object) -> dict[str, Any]:
    """Apply the migrations that are missing, and mark a new directory as the volume of the settings.

    Returns the versions and the volume's storage id. Safe to repeat, and when two run at once.
    """
    settings = load()
    applied = list(migrate.migrate(wiring.control_dsn(settings)))
    return {"applied": applied, "storage_id": wiring.make_volume(settings)}
