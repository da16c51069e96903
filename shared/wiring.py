"""Builds what a tick and a command work with out of the settings; the only reader of them."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from shared.archive import kinds as kinds_file
from shared.db import migrate
from shared.db.connect import Credentialed
from shared.errors import Code, Refused
from shared.plans.schedule import KnownKind
from shared.tick import Node
from shared.volume import identity

if TYPE_CHECKING:
    from pydantic import SecretStr

    from shared.archive.kinds import NamedKind
    from shared.db.connect import Dsn
    from shared.doctor.installation import Installation
    from shared.settings import Settings


def writer() -> str:
    """Return the name and version that batch files bear."""
    return f"tallystick {version('tallystick')}"


def named_control(settings: Settings) -> Dsn | None:
    """Return where the settings say the jobs are kept; None where they name no database."""
    return _dsn(settings.database_url, settings.database_secret, iam=settings.database_iam)


def control_dsn(settings: Settings) -> Dsn:
    """Return where the jobs are kept; raises ``Refused`` when no database is configured."""
    named = named_control(settings)
    if named is None:
        raise Refused(Code.DATABASE_URL_MISSING)
    return named


def named_source(settings: Settings) -> Dsn | None:
    """Return the database the settings name for reading rows; None where it is the control database."""
    return _dsn(settings.source_url, settings.source_secret, iam=settings.source_iam)


def sources(settings: Settings, control: Dsn) -> dict[str, Dsn]:
    """Return the databases rows may be read from, by the name a kind uses for them."""
    return {"control": control, "application": named_source(settings) or control}


def kinds(settings: Settings) -> dict[str, NamedKind]:
    """Return the kinds of this deployment; raises ``Refused`` for a file that is not right."""
    return kinds_file.load(settings.kinds_file)


def node(settings: Settings, control: Dsn) -> Node:
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
        hidden_margin_seconds=settings.hidden_margin_seconds,
    )


def make_volume(settings: Settings) -> str | None:
    """Make a new directory the volume that the settings name; one that is it already stays as it is.

    Returns the storage id, None where no volume is configured. Raises ``Refused`` as ``initialise`` does.
    """
    if settings.archive_root is None:
        return None
    return identity.initialise(settings.archive_root, settings.archive_storage_id)


def installation(settings: Settings, control: Dsn | None) -> Installation:
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
    else:
        source = named_source(settings)
        found = {"application": source} if source is not None else {}
    return Installation(
        control_dsn=control,
        sources=found,
        kinds=known,
        kinds_problem=problem,
        root=settings.archive_root,
        storage_id=settings.archive_storage_id,
        volume_max_bytes=settings.archive_max_bytes,
    )


def require_schema(control: Dsn) -> None:
    """Refuse to work with a database whose schema is missing, older or newer than this program."""
    if problem := migrate.check(control).problem:
        raise problem


def _dsn(url: SecretStr | None, secret: str | None, *, iam: bool) -> Dsn | None:
    plain = url.get_secret_value() if url is not None else None
    if secret is None and not iam:
        return plain
    # Without either, a process starts without what would fetch it.
    from shared.aws import credential  # noqa: PLC0415

    if secret is not None:
        return Credentialed(partial(credential.from_secret, secret, plain))
    assert plain is not None  # noqa: S101 - settings refuse a token without a URL
    return Credentialed(partial(credential.from_iam, plain))
