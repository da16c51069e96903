"""Settings that a role or a database may come with, and that would change what our statements mean.

``docs/explanation/settings-of-others.md`` judges every setting of a server: it is pinned, or says why it need
not be. A pin is a `SET LOCAL`, so a pooler may stand in front, and it selects nothing, so it may come before
the locks of a snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

Pins = tuple[tuple[str, str], ...]

# What a statement means, wherever it runs: how names are printed, what `= NULL` asks, whether an index on
# words may leave rows out, whether a refused statement ends the session.
STATEMENTS: Pins = (
    ("quote_all_identifiers", "off"),
    ("transform_null_equals", "off"),
    ("gin_fuzzy_search_limit", "0"),
    ("xmlbinary", "'base64'"),
    ("exit_on_error", "off"),
)

# What the control database prints for us, and where it finds our names.
CONTROL: Pins = (
    ("search_path", "pg_catalog, pg_temp"),
    ("datestyle", "'ISO, YMD'"),
    ("intervalstyle", "'postgres'"),
    ("timezone", "'UTC'"),
    ("extra_float_digits", "3"),
    ("bytea_output", "'hex'"),
    ("array_nulls", "on"),
    *STATEMENTS,
)

# A limit on whole transactions, that servers before 17 do not know. A role's own would end our session in
# the middle of a page; each statement, each wait for a lock and each pause has its own limit instead.
WHOLE = ("transaction_timeout", "0")
WHOLE_SINCE = 170000


def pinned(connection: psycopg.Connection[Any], pins: Iterable[tuple[str, str]]) -> list[str]:
    """Return the statements that pin settings for the open transaction, the limit of the whole first.

    It is what libpq was told of the server's release that decides: asking the server would be a SELECT.
    """
    known = connection.info.server_version >= WHOLE_SINCE
    listed = [WHOLE, *pins] if known else list(pins)
    return [f"SET LOCAL {name} = {value}" for name, value in listed]
