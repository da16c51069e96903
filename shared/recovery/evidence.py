"""Events the database could not take, kept as write-once files of JSON lines beside the data.

A file gets its name whole or not at all, and each line bears the id of its event; so a file that is
brought in twice, because its removal was interrupted, brings nothing in the second time.
"""

from __future__ import annotations

import errno
import json
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, uuid4, uuid5

import psycopg
from psycopg.types.json import Jsonb

from shared.db.statement import statement
from shared.volume.files import names_in, opened_directory, read_whole, shown, storage_errors
from shared.volume.identity import EVIDENCE
from shared.volume.publish import discard, publish, write_temp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.db.connect import Database
    from shared.jobs.model import Claim
    from shared.volume.identity import Volume

FILE_MAX_BYTES = 1024 * 1024
NAME = re.compile(r"[0-9a-f-]{36}\.jsonl")
NO_FILE = frozenset({errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENXIO})
REQUIRED = frozenset({"id", "occurred_at", "type", "severity", "source", "done"})


@dataclass(frozen=True)
class BroughtIn:
    """How many events were new, and the files that could not be read as events."""

    events: int
    unreadable: tuple[str, ...]


def unrecorded(claim: Claim, code: str, params: dict[str, object]) -> dict[str, Any]:
    """Describe a unit whose settle is not known to have been recorded; the lease decides what comes next."""
    job = claim.job
    return {
        "id": str(uuid4()),
        # The database that keeps the time is the one that does not answer.
        "occurred_at": datetime.now(UTC).isoformat(),
        "type": "outcome-unknown",
        "severity": "warning",
        "source": "volume",
        "done": False,
        "namespace_id": str(job.namespace_id),
        "job_id": str(job.id),
        "operation": job.operation,
        "checkpoint": job.checkpoint,
        "attempt": job.attempts,
        "reason_code": code,
        "reason_params": params,
        "reclaimed": claim.reclaimed,
    }


def keep(volume: Volume, events: Sequence[dict[str, Any]]) -> str:
    """Write events into a file of ``.evidence`` and return its name; durable when this returns.

    The caller holds the volume's lock. Raises what ``storage_errors`` makes of system errors.
    """
    name = f"{uuid4()}.jsonl"
    lines = [json.dumps(event, sort_keys=True, default=str).encode() + b"\n" for event in events]
    temp = write_temp(volume, lines)
    try:
        with storage_errors(file=name), opened_directory(volume.fd, EVIDENCE) as directory:
            publish(volume, temp, directory, name)
            os.fsync(directory)
            # The directory itself may have been made just now, by a tick or one that died.
            os.fsync(volume.fd)
    finally:
        discard(volume, temp)
    return name


def bring_in(control: Database, volume: Volume) -> BroughtIn:
    """Bring the events of all files into the database, each once, and remove the files brought in.

    The caller holds the volume's lock. A file that is not what ``keep`` writes stays where it is.
    """
    count, unreadable = 0, []
    with storage_errors(), opened_directory(volume.fd, EVIDENCE) as directory:
        for name in names_in(directory):
            new = _brought_in(control, directory, name)
            if new is None:
                unreadable.append(name)
                count += len(_record(control, [_unreadable(name)]))
                continue
            count += new
            # Only after the commit: a crash before this line brings the same ids in again.
            os.unlink(name, dir_fd=directory)
    return BroughtIn(count, tuple(unreadable))


def _brought_in(control: Database, directory: int, name: str) -> int | None:
    """Bring in one file and return how many events were new; None for what is no evidence of ours."""
    try:
        content, _ = read_whole(directory, name, FILE_MAX_BYTES)
    except OSError as error:
        # A directory, a link, a pipe; any other error is the volume's and passes.
        if error.errno in NO_FILE:
            return None
        raise
    events = _parse(name, content)
    if events is None:
        return None
    try:
        return len(_record(control, events))
    except (psycopg.DataError, psycopg.IntegrityError):
        return None


def _record(control: Database, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    params = {"events": Jsonb(list(events))}
    return control.transact(statement("shared.recovery", "record"), params, repeatable=True)


def _parse(name: str, content: bytes) -> list[dict[str, Any]] | None:
    if not NAME.fullmatch(name) or not content.endswith(b"\n"):
        return None
    try:
        events = [json.loads(line) for line in content.splitlines()]
    except (ValueError, RecursionError):
        return None
    whole = all(isinstance(event, dict) and event.keys() >= REQUIRED for event in events)
    return events if whole else None


def _unreadable(name: str) -> dict[str, Any]:
    # The same id each time, so that one bad file is one event and not one a minute.
    return {
        "id": str(uuid5(NAMESPACE_OID, shown(name))),
        "occurred_at": datetime.now(UTC).isoformat(),
        "type": "evidence-unreadable",
        "severity": "error",
        "source": "volume",
        "done": False,
        "reason_params": {"file": shown(name)},
        "reclaimed": False,
    }
