"""Bytes are set aside before a file gets its name, within the budgets of its job and its volume."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from shared.db.connect import Database
from shared.errors import Code, Passing
from shared.jobs import rules, steer, store
from shared.jobs.model import Claim, LedgerEntry
from shared.volume import ledger
from tests import worlds
from tests.operations.stage import GATE, GATED, blocked, wait_for
from tests.postgres.proxy import between
from tests.worlds import (
    GIBIBYTE,
    SIGNED,
    a_claim,
    a_job,
    a_progress,
    a_storage_id,
    expire_lease,
    one,
    rows,
    without,
)

JOB_MAX = 2 * 1024**2


@pytest.fixture
def claim(control: Database, storage_id: str) -> Claim:
    """Claim of a job that may write ``JOB_MAX`` bytes."""
    a_job(control, storage_id=storage_id, max_bytes=JOB_MAX)
    return a_claim(control, storage_id)


def reserved(control: Database, claim: Claim, size: int, volume_max: int = GIBIBYTE) -> bool:
    found: bool = store.reserve(control, claim.fence, size, volume_max)["reserved"]
    return found


def test_bytes_within_both_budgets_are_set_aside(control: Database, claim: Claim) -> None:
    assert reserved(control, claim, JOB_MAX)
    assert store.get(control, claim.job.id).reserved == JOB_MAX


def test_one_byte_more_than_the_job_may_write_is_not(control: Database, claim: Claim) -> None:
    account = store.reserve(control, claim.fence, JOB_MAX + 1, GIBIBYTE)
    assert not account["reserved"]
    assert (account["job_bytes"], account["job_max"]) == (0, JOB_MAX)
    assert store.get(control, claim.job.id).reserved == 0


def test_what_the_job_wrote_before_counts(control: Database, storage_id: str, claim: Claim) -> None:
    store.settle(control, claim, a_progress(claim, bytes=JOB_MAX - 10))
    claim = a_claim(control, storage_id)
    assert not reserved(control, claim, 11)
    assert reserved(control, claim, 10)


def test_what_the_volume_holds_counts(control: Database, storage_id: str, claim: Claim) -> None:
    entry = LedgerEntry("another", 900)
    store.settle(control, claim, a_progress(claim, ledger=(entry,)))
    claim = a_claim(control, storage_id)
    account = store.reserve(control, claim.fence, 101, 1000)
    assert (account["reserved"], account["volume_used"]) == (False, 900)
    assert reserved(control, claim, 100, 1000)


def test_what_other_jobs_of_the_volume_set_aside_counts(
    control: Database, storage_id: str, claim: Claim
) -> None:
    for state in ("PENDING", "FAILED", "ABANDONED"):
        closed = "2026-01-01" if state == "ABANDONED" else None
        columns = {"state": state, "error_code": "X", "closed_at": closed, "reserved": 300}
        a_job(control, storage_id=storage_id, due_in=60, **columns)
    a_job(control, storage_id=a_storage_id(control), reserved=5000, due_in=60)
    assert not reserved(control, claim, 101, 1000)
    assert reserved(control, claim, 100, 1000)


def test_setting_aside_twice_is_setting_aside_once(control: Database, claim: Claim) -> None:
    assert reserved(control, claim, 800, 1000)
    assert reserved(control, claim, 800, 1000)
    assert reserved(control, claim, 700, 1000)
    assert store.get(control, claim.job.id).reserved == 700


def test_setting_aside_is_repeated_when_its_answer_was_lost(
    database: str, control: Database, claim: Claim
) -> None:
    with between(database) as proxy, closing(worlds.control(proxy.dsn)) as far:
        far.transact("SELECT 1 AS connected", {})
        proxy.lose_commits = 1
        assert reserved(far, claim, 800, 1000)
    assert proxy.lose_commits == 0
    assert store.get(control, claim.job.id).reserved == 800


def test_what_was_set_aside_stays_until_a_unit_is_settled(
    control: Database, storage_id: str, claim: Claim
) -> None:
    reserved(control, claim, 800)
    setback = rules.setback(claim.job, Passing(Code.STORAGE_FAILED))
    assert store.set_back(control, claim, setback).reserved == 800
    worlds.make_due(control, claim.job.id)
    claim = a_claim(control, storage_id)
    expire_lease(control, claim.job.id)
    claim = a_claim(control, storage_id)
    assert claim.job.reserved == 800
    # A smaller page takes the place of the one before it.
    assert reserved(control, claim, 300)
    assert store.settle(control, claim, a_progress(claim)).reserved == 0


def test_abandoning_leaves_what_may_be_on_the_volume_set_aside(
    control: Database, claim: Claim
) -> None:
    reserved(control, claim, 800)
    job = steer.act(control, claim.job.id, rules.Action.ABANDON, SIGNED)
    assert job.reserved == 800


def test_two_settles_of_one_volume_at_once_both_count(
    database: str, control: Database, storage_id: str
) -> None:
    for _ in range(6):
        a_job(control, storage_id=storage_id)
    claims = [a_claim(control, storage_id) for _ in range(6)]

    def settle(claim: Claim) -> None:
        entry = LedgerEntry(claim.job.directory, 100)
        with closing(worlds.control(database)) as mine:
            store.settle(mine, claim, a_progress(claim, ledger=(entry,)))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(settle, claims))
    assert one(database, "SELECT used_bytes FROM tallystick.volume") == 600
    assert one(database, "SELECT sum(bytes)::int FROM tallystick.ledger") == 600


def test_the_ledger_never_holds_less_than_nothing(database: str, claim: Claim) -> None:
    with pytest.raises(psycopg.errors.CheckViolation), closing(worlds.control(database)) as mine:
        store.settle(mine, claim, a_progress(claim, ledger=(LedgerEntry("one", -1),)))


def test_the_account_of_a_volume_is_what_it_holds_and_what_is_set_aside(
    control: Database, storage_id: str, claim: Claim
) -> None:
    store.settle(control, claim, a_progress(claim, ledger=(LedgerEntry("one", 500),)))
    reserved(control, a_claim(control, storage_id), 70)
    (row,) = ledger.listed(control, storage_id)
    assert (row["used_bytes"], row["reserved"]) == (500, 70)


def test_what_others_set_aside_is_spent_twice_if_it_does_not_count(
    control: Database, storage_id: str, claim: Claim
) -> None:
    """Each of two holders may have named its file and died before it was recorded."""
    a_job(control, storage_id=storage_id)
    other = a_claim(control, storage_id)
    text = store._sql("reserve")
    others = text[text.index(" + coalesce((") : text.index(" AS used\n")]
    assert reserved(control, other, 600, 1000)
    assert not reserved(control, claim, 600, 1000)
    with without(store, "reserve", others):
        assert reserved(control, claim, 600, 1000)
    assert sum(store.get(control, each.job.id).reserved for each in (claim, other)) > 1000


def reserved_at_once(database: str, control: Database, storage_id: str) -> int:
    """Let two jobs of one volume set bytes aside at once, without its lock; return what they were given."""
    for _ in range(2):
        a_job(control, storage_id=storage_id)
    claims = [a_claim(control, storage_id) for _ in range(2)]

    def reserve(claim: Claim) -> bool:
        with closing(worlds.control(database)) as own:
            return reserved(own, claim, 600, 1000)

    rows(
        database, GATED.replace("INSERT ON tallystick.unit", "UPDATE OF reserved ON tallystick.job")
    )
    with ThreadPoolExecutor() as pool:
        with psycopg.connect(database, autocommit=True) as holder:
            holder.execute(f"SELECT pg_advisory_lock({GATE})".encode())
            given = [pool.submit(reserve, claim) for claim in claims]
            wait_for(lambda: len(blocked(database)) == 2)
        return 600 * sum(each.result() for each in given)


def test_two_that_set_bytes_aside_at_once_are_not_given_the_same_room(
    database: str, control: Database, storage_id: str
) -> None:
    assert reserved_at_once(database, control, storage_id) == 600


def test_two_that_do_not_wait_for_each_other_are_given_the_same_room(
    database: str, control: Database, storage_id: str
) -> None:
    with without(store, "lock_account", store._sql("lock_account"), "SELECT 1"):
        assert reserved_at_once(database, control, storage_id) == 1200
