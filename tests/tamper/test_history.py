"""The tail of a kind's newest job covers the jobs before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shared.chain.manifest import MANIFEST_NAME, Previous
from shared.errors import Code, Verdict
from shared.restore.archives import places, verified
from tests.tamper.shelf import Entries, batch, entries, lay, tail
from tests.unit.chain.scribe import MANIFEST, NAMESPACE, PAGES, chain

JOBS = tuple(f"0b2f1c9e-8a8b-4d6f-9c57-1f2e3d4c5b6{digit}" for digit in "123")
EDITED = ((PAGES[0][0].replace(b"first", b"f1rst"), PAGES[0][1]), *PAGES[1:])


def history(*, edited: int | None = None) -> list[Entries]:
    """Write three jobs of one kind, each linked to the one before; one may hold other rows."""
    made: list[Entries] = []
    previous = None
    for number, job in enumerate(JOBS):
        pages = EDITED if number == edited else PAGES
        made.append(entries(*chain(replace(MANIFEST, job=job, previous=previous), pages)))
        previous = Previous(job, tail(made[-1]))
    return made


WHOLE = history()
NEWEST = tail(WHOLE[-1])


def verify(jobs: dict[str, Entries], place: Path, expected: str | None) -> str:
    """Verify the history as a restore does: ``sound`` or the cause of what broke it."""
    for job, archive in jobs.items():
        lay(archive, place / f"{NAMESPACE}-{job}")
    try:
        found = [verified(each) for each in places(place, expected)]
    except Verdict as ended:
        return str(ended.params["cause"]) if ended.code is Code.ARCHIVE_BROKEN else str(ended.code)
    return ", ".join(str(each.verdict) for each in found)


def with_job(number: int, archive: Entries | None) -> dict[str, Entries]:
    jobs: dict[str, Entries] = dict(zip(JOBS, WHOLE, strict=True))
    if archive is None:
        del jobs[JOBS[number]]
    else:
        jobs[JOBS[number]] = archive
    return jobs


def rolled_back(number: int) -> Entries:
    return {name: data for name, data in WHOLE[number].items() if name != "000003.sql.zst"}


def unlinked(number: int) -> Entries:
    return entries(*chain(replace(MANIFEST, job=JOBS[number], previous=None)))


CHANGES: dict[str, tuple[Callable[[], dict[str, Entries]], str, str]] = {
    "nothing": (lambda: with_job(0, WHOLE[0]), "SOUND, SOUND, SOUND", "SOUND, SOUND, CONSISTENT"),
    "first deleted": (lambda: with_job(0, None), "previous-missing", "previous-missing"),
    "middle deleted": (lambda: with_job(1, None), "previous-missing", "previous-missing"),
    "newest deleted": (lambda: with_job(2, None), "TAIL_NOT_FOUND", "SOUND, CONSISTENT"),
    "first edited": (lambda: with_job(0, history(edited=0)[0]), "TAIL_NOT_FOUND", "TAIL_NOT_FOUND"),
    "middle edited": (
        lambda: with_job(1, history(edited=1)[1]),
        "TAIL_NOT_FOUND",
        "TAIL_NOT_FOUND",
    ),
    "newest edited": (
        lambda: with_job(2, history(edited=2)[2]),
        "TAIL_NOT_FOUND",
        "SOUND, SOUND, CONSISTENT",
    ),
    "all edited": (
        lambda: dict(zip(JOBS, history(edited=0), strict=True)),
        "TAIL_NOT_FOUND",
        "SOUND, SOUND, CONSISTENT",
    ),
    "first rolled back": (lambda: with_job(0, rolled_back(0)), "TAIL_NOT_FOUND", "TAIL_NOT_FOUND"),
    "newest rolled back": (
        lambda: with_job(2, rolled_back(2)),
        "TAIL_NOT_FOUND",
        "SOUND, SOUND, UNFINISHED",
    ),
    "middle unlinked": (lambda: with_job(1, unlinked(1)), "several-chains", "several-chains"),
    "newest unlinked": (lambda: with_job(2, unlinked(2)), "several-chains", "several-chains"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_the_newest_tail_covers_every_job_and_nothing_else_does(case: str, tmp_path: Path) -> None:
    make, anchored, alone = CHANGES[case]
    assert verify(make(), tmp_path / "anchored", NEWEST) == anchored
    assert verify(make(), tmp_path / "alone", None) == alone


def test_the_link_is_in_the_manifest() -> None:
    assert tail(WHOLE[0]).encode() in batch(WHOLE[1], MANIFEST_NAME)
