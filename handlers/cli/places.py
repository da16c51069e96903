"""Which archives are meant by DIR, JOB or KIND, as commands that read archives take them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.jobs.reading import NamedJob
    from shared.restore.archives import Place


def places(target: str, expected: str | None, namespace: str | None = None) -> list[Place]:
    """Return the archives of a directory, a job or a whole kind, oldest first.

    A directory needs no database and no settings: it is one archive, or holds the job directories of one
    kind. A job and a kind are looked up, and their recorded tails expected. ``expected`` is the tail of the
    newest. Raises ``Refused`` (ARCHIVE_UNKNOWN, DIRECTORY_UNREADABLE,
    those of settings and of a session) and ``Verdict`` (ARCHIVE_BROKEN).
    """
    from shared.restore import archives

    _limit_rows()
    path = Path(target)
    if path.exists() or "/" in target:
        if path.exists() and not archives.is_archive(path):
            return archives.places(path, expected)
        return [archives.place(path, expected)]
    return _recorded(target, expected, namespace)


def _limit_rows() -> None:
    """Set how large a row may be that is held in memory; a directory is read without settings otherwise."""
    if "TALLYSTICK_ROW_MAX_BYTES" not in os.environ:
        return
    from shared.restore.rows import ROW_MAX_BYTES
    from shared.settings import load

    ROW_MAX_BYTES.set(load().row_max_bytes)


def _recorded(target: str, expected: str | None, namespace: str | None) -> list[Place]:
    from dataclasses import replace

    from handlers.cli.session import session
    from shared.errors import Code, Refused
    from shared.jobs import reading
    from shared.restore import archives

    with session() as opened:
        root, storage_id = opened.settings.archive_root, opened.settings.archive_storage_id
        if root is None or storage_id is None:
            raise Refused(Code.VOLUME_NOT_CONFIGURED)
        every = reading.archived(opened.control, storage_id)
    kind = [each for each in every if each.job.kind == target]
    found = _of_namespace(kind, target, namespace) if kind else _of_job(every, target)
    if not found:
        known = sorted({str(each.job.kind) for each in every})
        raise Refused(Code.ARCHIVE_UNKNOWN, target=target, kinds=known)
    ordered = [archives.place(root / each.job.directory, each.job.last_sha256) for each in found]
    if kind:
        ordered = archives.linked(ordered)
    *older, newest = ordered
    return [*older, replace(newest, expected=expected or newest.expected)]


def _of_job(every: list[NamedJob], text: str) -> list[NamedJob]:
    from shared.errors import Code, Refused
    from shared.jobs import reading

    if not reading.is_job(text):
        return []
    digits = text.lower().replace("-", "")
    found = [each for each in every if each.job.id.hex.startswith(digits)]
    if len(found) > 1:
        raise Refused(Code.JOB_UNKNOWN, job=text, cause="ambiguous")
    return found


def _of_namespace(kind: list[NamedJob], name: str, namespace: str | None) -> list[NamedJob]:
    from shared.errors import Code, Refused

    owners = sorted({each.namespace for each in kind})
    if namespace is None and len(owners) > 1:
        raise Refused(Code.NAMESPACE_AMBIGUOUS, names=owners)
    found = [each for each in kind if namespace in (None, each.namespace)]
    if not found:
        raise Refused(Code.ARCHIVE_UNKNOWN, cause="other-namespace", target=name, namespaces=owners)
    return found
