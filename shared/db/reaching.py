"""Why no session began: what a connection string, libpq, a pooler or a server has against it.

A failure to connect has no SQLSTATE, only words. libpq quotes what it could not read, which may be half of a
password: so of its words nothing is passed on but what is known to be no secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

DETAIL_MAX_CHARS = 200
# What pgbouncer says comes under one SQLSTATE.
OF_POOLERS = frozenset({"08P01"})

# What somebody has to put right, by what is said; the group is what may be told of it.
CONFIGURATION: tuple[tuple[str, str], ...] = (
    (r'missing "=" after "([a-z][a-z0-9+.-]{0,30}://)', "url-scheme"),
    (r'invalid (?:URI query parameter|connection option): "([a-z_]{1,40})"', "url-option"),
    (r'extra key/value separator "=" in URI query parameter: "([a-z_]{1,40})"', "url-option"),
    (r'invalid connection option "([a-z_]{1,40})"', "url-option"),
    (r"invalid percent-encoded token|forbidden value %00", "percent-encoding"),
    (r"could not translate host name \"[^\"]*@|failed to resolve host '[^']*@", "at-sign"),
    (r"Servname not supported|invalid port number", "url-port"),
    (r'invalid ([a-z_]{1,40}) value: "', "option-value"),
    (r'invalid integer value "[^"]*" for connection option "([a-z_]{1,40})"', "option-value"),
    (r'definition of service "([\w.-]{1,60})" not found', "service-missing"),
    (r"service file .* not found|syntax error in service file", "service-missing"),
    (r"server does not support SSL|server does not support GSSAPI", "tls-not-offered"),
    (r"certificate verify failed|root certificate file|server certificate for", "tls-not-trusted"),
    (r'FATAL:\s+(database "[^"]*" does not exist)', "database-missing"),
    (r"no such database", "database-missing"),
    (r'(invalid value for parameter "[^"]*": "[^"]*")', "session-setting"),
    (r'(unrecognized configuration parameter "[^"]*")', "session-setting"),
    (r'(parameter "[^"]*" cannot be (?:changed|set)[^\n]*)', "session-setting"),
    (r"(unsupported startup parameter[^\n]*)", "session-setting"),
    (r"pool_mode|cannot exit pipeline mode|transaction blocks not allowed", "pool-mode"),
)
# What passes, or may.
PASSING: tuple[tuple[str, str], ...] = (
    (r"(session is (?:not )?read-only|server is (?:not )?in hot standby mode)", "session-attrs"),
    (r"(too many (?:clients|connections)[^\n]*|connection slots[^\n]*)", "overloaded"),
    (r"(query_wait_timeout|no more connections allowed[^\n]*)", "pool-exhausted"),
    (r"(the database system is [^\n]*)", "starting"),
    # Severity and words in the language of the server.
    (r"failed: [^\s:]{2,20}:  ([^\n]*)", "not-admitted"),
)
# A user who is not let in: the same whatever the string says.
TURNED_AWAY = re.compile(
    r'authentication failed|no password supplied|is not permitted to log in|role "[^\n]*" does not exist'
    r"|no pg_hba\.conf entry|pg_hba\.conf rejects connection|permission denied for database|no such user"
)
FIRST = re.compile(r"\n(?=connection to server|Multiple connection attempts|\t)")


@dataclass(frozen=True)
class Obstacle:
    """Why no session began: the cause, what may be told of it, and whether somebody must put it right."""

    cause: str
    detail: str
    configured: bool


def obstacle(error: psycopg.Error) -> Obstacle | None:
    """Return what an error without a SQLSTATE says of the way to a server; None for nothing known."""
    if error.sqlstate and error.sqlstate not in OF_POOLERS:
        return None
    text = str(error)
    for known, configured in ((CONFIGURATION, True), (PASSING, False)):
        for words, cause in known:
            if found := re.search(words, text):
                detail = found[1] if found.re.groups else ""
                return Obstacle(cause, told(detail), configured)
    # libpq could not even read it, and what it quotes of it may be the password.
    if not error.sqlstate and type(error).__name__ == "ProgrammingError":
        return Obstacle("malformed-url", "", configured=True)
    return None


def said(error: psycopg.Error) -> str:
    """Return what was said as a session was to begin, in one bounded line without secrets."""
    first = FIRST.split(str(error).strip())[0]
    # libpq begins with where it tried to connect, which is part of the string that may have gone wrong.
    server = re.search(r"\b(?:FATAL|ERROR):\s+(.*)", first, re.DOTALL)
    return told(server[1] if server else first.rsplit(": ", 1)[-1]) or type(error).__name__


def told(text: str) -> str:
    r"""Return a text as one bounded line: control characters as escapes, quoted strings only where harmless.

    A name in quotes with ``@``, ``:`` or ``/`` in it is a piece of a string that was read wrongly.
    """
    hidden = re.sub(r'"[^"]*[@][^"]*"|"[^"]*:[^"]*/[^"]*"', '"…"', text.strip())
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in hidden
    )
    return shown[:DETAIL_MAX_CHARS]
