"""The manifest of a job, from what the database fixed of it; every writer makes the same one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared.chain import manifest as chain
from shared.chain.manifest import MANIFEST_NAME, Manifest, parse_manifest
from shared.chain.verdict import Broken
from shared.errors import Code, Verdict

if TYPE_CHECKING:
    from shared.archive.shape import Opening
    from shared.jobs.model import Job


def manifest_of(job: Job, opening: Opening) -> Manifest:
    """Return the manifest of a job that has been opened."""
    policy, previous = job.input["policy"], job.input["previous"]
    described = described_as(
        opening,
        job=str(job.id),
        namespace=chain.Namespace(str(job.namespace_id), job.input["namespace"]),
        kind=job.kind or "",
        definition=job.input["definition"],
        batch_size=job.batch_size,
    )
    return replace(
        described,
        policy=chain.Policy(policy["revision"], policy["after_days"]),
        previous=chain.Previous(previous["job"], previous["tail"]) if previous else None,
    )


def described_as(
    opening: Opening,
    *,
    job: str,
    namespace: chain.Namespace,
    kind: str,
    definition: dict[str, Any],
    batch_size: int,
) -> Manifest:
    """Return the manifest of an archive that no policy asked for and that follows on none."""
    return Manifest(
        job=job,
        namespace=namespace,
        kind=kind,
        definition=definition,
        window=chain.Window(opening.after, opening.cutoff, opening.margin_seconds),
        policy=None,
        batch_size=batch_size,
        source=chain.Source(opening.database, opening.encoding),
        tables=opening.shape.tables,
        key=tuple(column.name for column in opening.shape.order[1:]),
        time=opening.shape.order[0].name,
        previous=None,
    )


def manifest_difference(found: bytes, expected: bytes) -> Verdict:
    """Tell a source whose tables changed from a manifest that somebody else's hand was in."""
    try:
        other, ours = parse_manifest(found), parse_manifest(expected)
    except Broken as broken:
        return Verdict(Code.FILE_CHECK_FAILED, file=MANIFEST_NAME, cause=str(broken.reason))
    if replace(other, tables=ours.tables) == ours:
        return Verdict(Code.SCHEMA_CHANGED, cause="manifest", table=ours.root.label)
    return Verdict(Code.FILE_CHECK_FAILED, file=MANIFEST_NAME, cause="differs")
