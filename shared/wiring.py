"""Builds what a tick and a command work with out of the settings; the only reader of them."""

from __future__ import annotations

from contextlib import closing
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from shared.archive import kinds as kinds_file
from shared.archive import survey
from shared.archive.source import SourceConnection
from shared.db import migrate
from shared.doctor.installation import Installation
from shared.errors import Code, Refused
from shared.plans.applying import Asked, plan_as, policy_and_plan
from shared.plans.difference import Declared
from shared.plans.schedule import KnownKind
from shared.tick import Node

if TYPE_CHECKING:
    from pathlib import Path

    from shared.archive.kinds import KindsFile, NamedKind
    from shared.archive.retention import Retention, Timed
    from shared.plans.difference import Subject
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


def installation(settings: Settings, control: str | None) -> Installation:
    """Return this node's part of the installation, as far as it is configured; None: no database is."""
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
    schema = migrate.check(control)
    if not schema.applied:
        raise Refused(Code.SCHEMA_MISSING)
    if schema.pending:
        raise Refused(Code.SCHEMA_OLDER, pending=list(schema.pending))


def kinds_to_apply(settings: Settings, path: Path | None) -> KindsFile:
    """Return the file that policies and plans shall be made of: the one named, else the node's own.

    Raises ``Refused``: KINDS_FILE_MISSING without either; KINDS_DIFFER where the node's own does not have a
    kind of the named one, or defines it otherwise, for ticks go by the node's; KINDS_INVALID.
    """
    chosen = path or settings.kinds_file
    if chosen is None:
        raise Refused(Code.KINDS_FILE_MISSING)
    found = kinds_file.read(chosen)
    if settings.kinds_file is not None:
        node = kinds(settings)
        problems = [
            {
                "kind": each.name,
                "problem": "defined_differently" if each.name in node else "not_there",
            }
            for each in kinds_file.differing(found.kinds, node)
        ]
        if problems:
            own = str(settings.kinds_file)
            raise Refused(Code.KINDS_DIFFER, file=str(chosen), node=own, problems=problems)
    return found


def declared(settings: Settings, control: str, file: KindsFile, namespace: str) -> Declared:
    """Return what a kinds file asks of a namespace, on the volume of this node.

    Raises ``Refused`` for a built-in kind that has a table in the file and none in the database yet.
    """
    asked = {
        each.name: each.kind for each in file.kinds if each.only_namespace in (None, namespace)
    } | _history(control, file)
    subjects: dict[Subject, dict[str, Any]] = {}
    for name, retention in asked.items():
        subjects |= policy_and_plan(name, _asked(retention))
    if file.scan is not None:
        subjects |= plan_as("scan", None, _asked(file.scan))
    if file.prune is not None:
        subjects |= plan_as("prune", None, _asked(file.prune))
    return Declared(subjects, settings.archive_storage_id)


def _history(control: str, file: KindsFile) -> dict[str, Retention]:
    """Return what is said of the built-in kinds whose tables are there."""
    if not file.history_of:
        return {}
    ours = kinds_file.builtin()
    with closing(SourceConnection(control)) as connection:
        there = survey.roots_there(connection.open(), ours)
    for kind in ours:
        if kind.name in file.named and not there[kind.name]:
            raise Refused(Code.KIND_TABLE_MISSING, kind=kind.name, table=kind.kind.root)
    return {name: each for name, each in file.history_of.items() if there[name]}


def _asked(said: Timed) -> Asked:
    return Asked(
        after_days=getattr(said, "after_days", None),
        interval_seconds=said.interval_seconds,
        batch_size=said.batch,
        max_bytes=said.budget,
        scope=getattr(said, "scope", None),
        enabled=said.enabled,
    )
