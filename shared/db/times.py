"""Times as our own transactions print them, whatever the session's settings say once they are over."""

from __future__ import annotations

from datetime import datetime

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader


class IsoLoader(Loader):
    """Reads a `timestamptz` that was printed under `DateStyle = ISO`.

    psycopg's own goes by the `DateStyle` that the session has when a row is fetched. A control transaction
    is one message: when its rows are here, it has ended and the setting of the role is back.
    """

    def load(self, data: Buffer) -> datetime:
        """Return the time; raises ``psycopg.DataError`` for one that Python cannot hold."""
        text = bytes(data).decode("ascii")
        try:
            return datetime.fromisoformat(text)
        except ValueError as error:
            raise psycopg.DataError(text) from error
