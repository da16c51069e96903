"""What a command works with: settings, the database, this node's volume, a signature."""

from __future__ import annotations

import getpass
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from shared.errors import Code, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.db.audit import Signature
    from shared.db.connect import Database, Dsn
    from shared.settings import Settings
    from shared.volume.identity import Volume


@dataclass(frozen=True)
class Session:
    """The settings in force, where the control database is and a connection to it."""

    settings: Settings
    url: Dsn
    control: Database


def configured() -> Settings:
    """Read the settings and start logging as they say."""
    from handlers import log
    from shared.settings import load

    settings = load()
    log.start(settings.log_level, settings.log_format)
    return settings


def running_url(settings: Settings) -> Dsn | None:
    """Return the URL of the control database that is named, or of the embedded one where it runs."""
    from shared import wiring
    from shared.db import embedded

    return wiring.named_control(settings) or embedded.url(settings.home)


def database_url(settings: Settings) -> Dsn:
    """Return the URL of the control database, starting the embedded one where none is set."""
    return running_url(settings) or started(settings)


def is_there(settings: Settings) -> bool:
    """Tell whether there is a control database: one is named, or an embedded one was made before."""
    from shared.db import embedded

    return running_url(settings) is not None or embedded.Embedded(settings.home).data.exists()


def started(settings: Settings) -> str:
    """Start the embedded database, say so on standard error, and return its URL."""
    from shared.db import embedded

    url = embedded.start(settings.home)
    place = embedded.Embedded(settings.home).directory
    typer.echo(
        f"Started the embedded Postgres in {place} (fsync on).\n"
        "It stays up until `tallystick db stop`.",
        err=True,
    )
    return url


@contextmanager
def session() -> Iterator[Session]:
    """Open what a command needs; raises ``Refused`` where the schema is not this program's."""
    from shared import wiring
    from shared.clock import Deadline
    from shared.db.connect import Database

    settings = configured()
    if not is_there(settings):
        # A database made only to find nothing in it would stay up for no use.
        raise Refused(Code.SCHEMA_MISSING)
    url = database_url(settings)
    wiring.require_schema(url)
    deadline = Deadline.after(settings.deadline_seconds)
    control = Database(url, deadline, settings.database_retries)
    try:
        yield Session(settings, url, control)
    finally:
        control.close()


@contextmanager
def opened_volume(settings: Settings) -> Iterator[Volume]:
    """Open this node's volume; raises ``Refused`` without one, ``Missing`` when it is not there."""
    from shared.volume import identity

    root, storage_id = settings.archive_root, settings.archive_storage_id
    if root is None or storage_id is None:
        raise Refused(Code.VOLUME_NOT_CONFIGURED)
    identity.probe(root, storage_id)
    with identity.opened(root, storage_id) as volume:
        yield volume


def signed(actor: str | None, reason: str, revision: int | None = None) -> Signature:
    """Return the signature of a change; raises ``Refused`` for a reason that says nothing."""
    from shared.db.audit import Signature

    return Signature(actor or _os_user(), reason, revision)


def _os_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A user id without a name, as in many containers.
        return f"uid {os.getuid()}"
