"""Builds what a tick and a command work with out of the settings; the only reader of them."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from shared.archive import kinds as kinds_file
from shared.db import migrate
from shared.errors import Code, Refused
from shared.plans.schedule import KnownKind
from shared.tick import Node
from shared.volume import identity

if TYPE_CHECKING:
    from shared.archive.kinds import NamedKind
    from shared.doctor.installation import Installation
    from shared.settings import Settings


def writer() -> str:
    """Return the name and version that batch files bear."""
    return f"tallystick {version('tallystick')}"


def control_dsn(settings: Settings) -> str:
    """Return where the jobs are kept; raises ``Refused`` when no database is configured."""
    if settings.database_url is None:
        raise Refused(Code.DATABASE_URL_MISSING)
    return settings.database_url.get_secret_value()


def sources(settings: Settings, control: str) -> dict[str, str]:
    """Return the databases rows may be read from, by the name a kind uses for them."""
    source = settings.source_url
    return {
        "control": control,
        "application": source.get_secret_value() if source is not None else control,
    }


def kinds(settings: Settings) -> dict[str, NamedKind]:
    """Return the kinds of this deployment; raises ``Refused`` for a file that is not right."""
    return kinds_file.load(settings.kinds_file)


def node(settings: Settings, control: str) -> Node:
    """Return this node as a tick knows it; raises ``Refused`` for a kinds file that is not right."""
    return Node(
        control_dsn=control,
        sources=sources(settings, control),
        kinds=tuple(
            KnownKind(each.name, each.only_namespace, each.definition)
            for each in kinds(settings).values()
        ),
        root=settings.archive_root,
        storage_id=settings.archive_storage_id,
        volume_max_bytes=settings.archive_max_bytes,
        deadline_seconds=settings.deadline_seconds,
        lease_seconds=settings.lease_seconds,
        writer=writer(),
        database_retries=settings.database_retries,
    )


def make_volume(settings: Settings) -> str | None:
    """Make a new directory the volume that the settings name; one that is it already stays as it is.

    Returns the storage id, None where no volume is configured. Raises ``Refused`` as ``initialise`` does.
    """
    if settings.archive_root is None:
        return None
    return identity.initialise(settings.archive_root, settings.archive_storage_id)


def installation(settings: Settings, control: str | None) -> Installation:
    """Return this node's part of the installation, as far as it is configured; None: no database is."""
    # A process that ticks starts without what examines.
    from shared.doctor.installation import Installation  # noqa: PLC0415

    problem = None
    try:
        known = kinds(settings)
    except Refused as refused:
        known, problem = kinds_file.load(None), refused
    if control is not None:
        found = sources(settings, control)
    elif settings.source_url is not None:
        found = {"application": settings.source_url.get_secret_value()}
    else:
        found = {}
    return Installation(
        control_dsn=control,
        sources=found,
        kinds=known,
        kinds_problem=problem,
        root=settings.archive_root,
        storage_id=settings.archive_storage_id,
        volume_max_bytes=settings.archive_max_bytes,
    )


def require_schema(control: str) -> None:
    """Refuse to work with a database whose schema is missing, older or newer than this program."""
    if problem := migrate.check(control).problem:
        raise problem
