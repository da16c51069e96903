"""Lists that read no history show what a plain statement over all of it would show."""

from __future__ import annotations

import random
from contextlib import closing
from uuid import UUID

import pytest

from shared.db.connect import Database, Row
from shared.doctor import jobs as troubles
from shared.doctor import ledger
from shared.jobs import reading, store
from tests import worlds
from tests.postgres.long_history import OWNER

KINDS = ("a", "b", "c")
OPEN = ("PENDING", "RUNNING", "PAUSED", "FAILED")
SEED = 20261201
TAIL = "a" * 64

PLAIN_TAILS = """
SELECT DISTINCT ON (namespace.name, job.kind) job.id
FROM tallystick.job
JOIN tallystick.namespace ON namespace.id = job.namespace_id
WHERE job.operation = 'archive' AND job.last_sha256 IS NOT NULL
ORDER BY namespace.name, job.kind, job.created_at DESC, job.id DESC"""
PLAIN_DIRECTORIES = """
SELECT directory
FROM tallystick.job
JOIN tallystick.ledger ON ledger.storage_id = job.storage_id
                      AND directory = job.namespace_id || '-' || job.id
WHERE job.storage_id = %(storage_id)s AND job.operation = 'archive' AND job.reserved = 0
ORDER BY job.created_at DESC, job.id DESC
LIMIT 10"""


@pytest.fixture
def storage_ids(control: Database) -> tuple[str, str]:
    """Two volumes with 200 jobs in two namespaces: of each state, most of them closed."""
    control.transact("INSERT INTO tallystick.namespace (name) VALUES ('other')", {})
    volumes = (worlds.a_storage_id(control), worlds.a_storage_id(control))
    chosen = random.Random(SEED)
    for _ in range(200):
        state = chosen.choice((*OPEN, *["SUCCEEDED"] * 12, "ABANDONED"))
        job = worlds.a_job(
            control,
            operation=chosen.choice(("archive", "archive", "archive", "scan")),
            kind=chosen.choice(KINDS),
            namespace_id=worlds.namespace_id(control, chosen.choice(("default", "other"))),
            storage_id=chosen.choice(volumes),
            state=state,
            reserved=chosen.choice((0, 0, 0, 5)),
            last_sha256=chosen.choice((None, TAIL, TAIL)),
            created_at=f"2026-01-01 00:00:{chosen.randrange(60)}Z",
            error_code="EXPORT_FAILED" if state in ("PAUSED", "FAILED") else None,
            **_times(state),
        )
        if chosen.random() < 0.7:
            control.transact(
                "INSERT INTO tallystick.ledger SELECT storage_id, namespace_id || '-' || id, 7"
                " FROM tallystick.job WHERE id = %(job)s",
                {"job": job},
            )
    return volumes


def _times(state: str) -> dict[str, object]:
    if state == "RUNNING":
        return {"owner": OWNER, "due_at": "2999-01-01Z", "lease_until": "2999-01-01Z"}
    return {"closed_at": "2026-02-01Z"} if state in ("SUCCEEDED", "ABANDONED") else {}


def told(control: Database, statement: str, **params: object) -> list[Row]:
    return control.transact(statement, params)


@pytest.mark.parametrize("name", [None, "default", "other"])
@pytest.mark.usefixtures("storage_ids")
def test_pages_of_jobs_are_all_jobs_newest_first(control: Database, name: str | None) -> None:
    owner = worlds.namespace_id(control, name) if name else None
    found: list[UUID] = []
    while page := store.newest(
        control, namespace_id=owner, before=found[-1] if found else None, limit=7
    ):
        found += [job.id for job in page]
    plain = (
        "SELECT id FROM tallystick.job WHERE %(owner)s::uuid IS NULL OR namespace_id = %(owner)s"
        " ORDER BY created_at DESC, id DESC"
    )
    assert found == [row["id"] for row in told(control, plain, owner=owner)]


@pytest.mark.usefixtures("storage_ids")
def test_tails_are_those_of_the_newest_job_of_each_kind_open_or_closed(control: Database) -> None:
    found = [each.job for each in reading.tails(control)]
    assert [job.id for job in found] == [row["id"] for row in told(control, PLAIN_TAILS)]
    assert len(found) == 2 * len(KINDS)
    assert {job.state in OPEN for job in found} == {True, False}


def test_the_newest_directories_are_those_of_open_and_closed_jobs(
    control: Database, storage_ids: tuple[str, str]
) -> None:
    for storage_id in storage_ids:
        plain = [
            row["directory"] for row in told(control, PLAIN_DIRECTORIES, storage_id=storage_id)
        ]
        assert list(ledger.believed(control, storage_id)) == plain
        assert len(plain) == ledger.DIRECTORIES_MAX


@pytest.mark.usefixtures("storage_ids")
def test_trouble_is_every_failed_paused_and_overdue_job(control: Database) -> None:
    told(
        control,
        "UPDATE tallystick.job SET due_at = now() - interval '1 day' WHERE state = 'PENDING'",
    )
    plain = (
        "SELECT id FROM tallystick.job WHERE state IN ('FAILED', 'PAUSED', 'PENDING')"
        " ORDER BY updated_at, id"
    )
    wanted = [row["id"] for row in told(control, plain)]
    assert [row["id"] for row in troubles.look(control)] == wanted[: troubles.TOLD_MAX + 1]
    counted = reading.open_jobs(control)
    assert counted.paused + counted.failed == len(
        told(control, "SELECT id FROM tallystick.job WHERE state IN ('FAILED', 'PAUSED')")
    )


def test_a_volume_with_too_many_directories_is_not_added_up(
    database: str, storage_ids: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(worlds.control(database)) as control:
        (row,) = told(
            control,
            "SELECT count(*) AS number, sum(bytes)::bigint AS bytes FROM tallystick.ledger"
            " WHERE storage_id = %(storage_id)s",
            storage_id=storage_ids[0],
        )
        monkeypatch.setattr(ledger, "ADDED_UP_MAX", row["number"])
        assert ledger.sums(control, storage_ids[0]) == (0, row["bytes"])
        monkeypatch.setattr(ledger, "ADDED_UP_MAX", row["number"] - 1)
        assert ledger.sums(control, storage_ids[0]) is None
