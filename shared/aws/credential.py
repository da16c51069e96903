"""Connection strings whose credential AWS keeps: a secret of Secrets Manager, or a token of RDS."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from shared.aws.client import answers, client
from shared.errors import Code, Refused

# A secret that is still good may have come to name another host.
KEEP_SECONDS = 300.0
# What the secrets of RDS call what libpq has names for.
FIELDS = {
    "username": "user",
    "password": "password",
    "host": "host",
    "port": "port",
    "dbname": "dbname",
}
CREDENTIAL = ("user", "password")
# A token is a password that is sent as it is.
ENCRYPTED = ("require", "verify-ca", "verify-full")
PORT = 5432


@dataclass(frozen=True)
class _Kept:
    text: str
    at: float


# For the life of a process, so that a warm one asks once and not at every tick.
_kept: dict[str, _Kept] = {}


def from_secret(secret: str, url: str | None, refused: str | None = None) -> str:
    """Return ``url`` with the user and the password of a secret; the secret fills in what the URL lacks.

    A secret is a JSON object as RDS makes them, or a connection string. It is kept for five minutes;
    ``refused`` is the string a server just refused, which is never returned again unless the secret, fetched
    anew, still says the same. Raises ``Refused`` (SECRET_UNUSABLE) and as ``answers`` does.
    """
    known = _joined(secret, _text(secret), url)
    if known != refused:
        return known
    _kept.pop(secret, None)
    return _joined(secret, _text(secret), url)


def from_iam(url: str, refused: str | None = None) -> str:
    """Return ``url`` with a token of RDS for a password, made for this connection, and TLS required.

    A server that refused one would refuse the next as well, so ``refused`` is returned as it is. Raises
    ``Refused`` (AWS_NOT_CONFIGURED) where the URL names no single host and user, or nothing signs a token.
    """
    if refused is not None:
        return refused
    parts = conninfo_to_dict(url)
    host, user = str(parts.get("host") or ""), parts.get("user")
    if not host or "," in host or not user:
        raise Refused(Code.AWS_NOT_CONFIGURED, cause="no-host-or-user")
    rds = client("rds")
    with answers("rds"):
        token = rds.generate_db_auth_token(
            DBHostname=host, Port=int(parts.get("port") or PORT), DBUsername=user
        )
    return make_conninfo(url, password=token, sslmode=_encrypted(parts))


def _text(secret: str) -> str:
    """Return what a secret holds, as it was fetched lately."""
    kept = _kept.get(secret)
    if kept is None or time.monotonic() - kept.at > KEEP_SECONDS:
        manager = client("secretsmanager")
        with answers("secretsmanager", resource=secret):
            answer = manager.get_secret_value(SecretId=secret)
        # Empty where it is binary.
        kept = _kept[secret] = _Kept(answer.get("SecretString", ""), time.monotonic())
    return kept.text


def _joined(secret: str, text: str, url: str | None) -> str:
    given = _fields(text)
    if given is None:
        raise Refused(Code.SECRET_UNUSABLE, cause="malformed", secret=secret)
    joined = given | (conninfo_to_dict(url) if url else {})
    joined |= {name: given[name] for name in CREDENTIAL}
    if not joined.get("host"):
        raise Refused(Code.SECRET_UNUSABLE, cause="no-host", secret=secret)
    return make_conninfo("", **joined)


def _fields(text: str) -> dict[str, Any] | None:
    """Return the parameters of libpq that a secret holds; None where user and password are not among them."""
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if isinstance(said, dict):
        found: dict[str, Any] = {
            ours: said[name] for name, ours in FIELDS.items() if said.get(name)
        }
    else:
        try:
            found = dict(conninfo_to_dict(text))
        except ProgrammingError:
            # libpq quotes what it cannot read.
            return None
    return found if all(found.get(name) for name in CREDENTIAL) else None


def _encrypted(parts: dict[str, Any]) -> str:
    """Return the mode of TLS that is asked for, in the URL or around it, or the least there must be."""
    around = {each.keyword: each.val for each in Conninfo.get_defaults()}.get(b"sslmode") or b""
    asked = str(parts.get("sslmode") or around.decode())
    return asked if asked in ENCRYPTED else ENCRYPTED[0]
