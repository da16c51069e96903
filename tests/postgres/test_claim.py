"""A claim takes one due job, of the right volume and operation, and nobody else gets it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
import pytest

from shared.db.connect import Database, connect
from shared.errors import Code, Uncertain
from shared.jobs import rules, store
from shared.jobs.model import Claim, Job, State
from tests import worlds
from tests.conftest import _database
from tests.postgres.proxy import between
from tests.worlds import (
    a_claim,
    a_job,
    a_policy,
    a_progress,
    a_storage_id,
    altered,
    change_job,
    one,
    rows,
    search,
    without,
)

CLAIMER = """
import sys
from contextlib import closing
from shared.jobs import store
from tests.worlds import control, search
with closing(control(sys.argv[1])) as database:
    sys.stdin.readline()
    while (claim := store.claim(database, search())) is not None:
        print(claim.job.id, claim.job.generation)
"""


def claim_params(**changes: object) -> dict[str, object]:
    """Return the parameters of the claiming statement, for a double of it."""
    return {
        "operations": ["archive"],
        "storage_id": None,
        "job_id": None,
        "owner": UUID(int=7),
        "lease_seconds": 120.0,
        "farthest_seconds": rules.FARTHEST_JOB_SECONDS,
        "takeovers_max": rules.TAKEOVERS_MAX,
        "errors_kept": rules.ERRORS_KEPT,
    } | changes


def claimed_id(found: Claim | Job | None) -> UUID | None:
    return found.job.id if isinstance(found, Claim) else None


def test_each_job_goes_to_exactly_one_of_many_racing_threads(
    database: str, control: Database
) -> None:
    jobs = {a_job(control) for _ in range(4)}
    together = threading.Barrier(8)

    def race(_: int) -> UUID | None:
        with closing(worlds.control(database)) as mine:
            mine.transact("SELECT 1 AS connected", {})
            together.wait()
            return claimed_id(store.claim(mine, search()))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(race, range(8)))
    assert {each for each in found if each} == jobs
    assert found.count(None) == 4


def test_each_job_goes_to_exactly_one_of_many_racing_processes(
    database: str, control: Database
) -> None:
    jobs = {str(a_job(control)) for _ in range(30)}
    command = [sys.executable, "-c", CLAIMER, database]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    lines = [line for racer in racers for line in racer.communicate(timeout=60)[0].splitlines()]
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert sorted(lines) == sorted(f"{job} 1" for job in jobs)


def test_a_claim_never_waits_for_a_job_that_somebody_holds(
    database: str, control: Database
) -> None:
    held, free = a_job(control, due_in=-60), a_job(control, due_in=-30)
    with connect(database) as other, other.transaction():
        other.execute("SELECT FROM tallystick.job WHERE id = %s FOR UPDATE", (held,))
        started = time.monotonic()
        assert a_claim(control).job.id == free
        assert store.claim(control, search()) is None
        assert time.monotonic() - started < 2
        # Without the rule the same claim queues up behind the other session.
        waits = altered(store._sql("claim"), "FOR UPDATE SKIP LOCKED", "FOR UPDATE")
        with connect(database) as third, third.transaction():
            third.execute("SET LOCAL lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                third.execute(waits.encode(), claim_params())


def test_jobs_take_turns_by_the_time_they_became_due(control: Database) -> None:
    second, third, first = (a_job(control, due_in=due_in) for due_in in (-20, -10, -30))
    assert [a_claim(control).job.id for _ in range(3)] == [first, second, third]


def test_a_job_that_made_progress_goes_behind_those_that_waited(control: Database) -> None:
    early, late = a_job(control, due_in=-30), a_job(control, due_in=-10)
    claim = a_claim(control)
    assert claim.job.id == early
    store.settle(control, claim, a_progress(claim))
    assert a_claim(control).job.id == late
    assert a_claim(control).job.id == early


def test_a_job_of_another_volume_is_not_claimed(control: Database, storage_id: str) -> None:
    other = a_storage_id(control)
    a_job(control, storage_id=other)
    assert store.claim(control, search(storage_id)) is None
    assert store.claim(control, search(None)) is None
    assert a_claim(control, other).job.storage_id == other


def test_a_job_without_a_volume_is_claimed_by_any_node(control: Database, storage_id: str) -> None:
    job = a_job(control, storage_id=None)
    assert a_claim(control, storage_id).job.id == job


def test_a_job_of_an_operation_that_was_not_asked_for_is_not_claimed(control: Database) -> None:
    job = a_job(control, operation="scan")
    assert store.claim(control, search(operations=("archive",))) is None
    assert store.claim(control, search(operations=())) is None
    assert a_claim(control, operations=("scan",)).job.id == job


def test_the_job_asked_for_is_claimed_and_no_other(control: Database) -> None:
    early, late = a_job(control, due_in=-30), a_job(control, due_in=-10)
    assert a_claim(control, job_id=late).job.id == late
    assert store.claim(control, search(job_id=late)) is None
    assert a_claim(control).job.id == early


def test_a_job_that_is_due_later_is_not_claimed(control: Database) -> None:
    job = a_job(control, due_in=60)
    assert store.claim(control, search()) is None
    assert store.claim(control, search(job_id=job)) is None


def test_a_job_due_impossibly_far_away_is_due_now(control: Database) -> None:
    a_job(control, due_in=rules.FARTHEST_JOB_SECONDS - 60)
    far = a_job(control, due_in=rules.FARTHEST_JOB_SECONDS + 60)
    assert a_claim(control).job.id == far
    assert store.claim(control, search()) is None


def test_a_lease_impossibly_far_away_is_taken_over(control: Database) -> None:
    job = a_job(control)
    first = a_claim(control)
    far = "statement_timestamp() + interval '1 year'"
    change_job(control, job, f"due_at = {far}, lease_until = {far}")
    second = a_claim(control)
    assert second.reclaimed
    assert second.job.generation == first.job.generation + 1


def test_nothing_the_product_stores_is_mistaken_for_a_jumped_clock() -> None:
    longest_lease = 3600.0 * (rules.TAKEOVERS_MAX + 1)
    assert max(longest_lease, rules.BACKOFF_MAX_SECONDS) < rules.FARTHEST_JOB_SECONDS
    assert rules.INTERVAL_MAX_SECONDS < rules.FARTHEST_PLAN_SECONDS


def test_only_pending_and_expired_jobs_are_claimed(control: Database) -> None:
    for state in set(State) - {State.PENDING, State.RUNNING}:
        job = a_job(control, due_in=-60)
        closed = "clock_timestamp()" if state.closed else "NULL"
        change_job(control, job, f"state = '{state}', error_code = 'X', closed_at = {closed}")
        assert store.claim(control, search()) is None
        assert store.claim(control, search(job_id=job)) is None
        change_job(control, job, "due_at = clock_timestamp() + interval '10 years'")
        assert store.claim(control, search()) is None


def test_a_running_job_is_not_claimed_before_its_lease_ends(control: Database) -> None:
    a_job(control)
    a_claim(control)
    assert store.claim(control, search()) is None


def test_a_claim_counts_and_takes_a_lease_of_the_database_clock(
    database: str, control: Database
) -> None:
    job = a_job(control, generation=4, attempts=7, lease_until=None)
    before = one(database, "SELECT clock_timestamp()")
    claim = a_claim(control, lease_seconds=90.0)
    after = one(database, "SELECT clock_timestamp()")
    found = claim.job
    assert (found.id, found.state, found.generation, found.attempts) == (
        job,
        State.RUNNING,
        5,
        8,
    )
    assert found.lease_until == found.due_at
    assert (found.due_at - before).total_seconds() >= 90
    assert (found.due_at - after).total_seconds() <= 90
    assert not claim.reclaimed
    assert (found.revision, found.takeovers) == (1, 0)


def test_every_claim_has_an_owner_of_its_own(control: Database) -> None:
    for _ in range(3):
        a_job(control)
    owners = {a_claim(control).job.owner for _ in range(3)}
    assert len(owners) == 3
    assert None not in owners


def test_a_clock_that_runs_ahead_on_a_node_gives_no_longer_lease(
    control: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_job(control)
    monkeypatch.setattr(time, "time", lambda: 4e9)
    claim = a_claim(control)
    lease = claim.job.due_at - claim.job.updated_at
    assert abs(lease.total_seconds() - 120) < 1


def test_ids_of_jobs_and_namespaces_come_from_no_sequence(database: str, control: Database) -> None:
    defaults = rows(
        database,
        "SELECT table_name, column_default FROM information_schema.columns"
        " WHERE table_schema = 'tallystick' AND column_name = 'id'",
    )
    assert defaults
    assert {row["column_default"] for row in defaults} == {"gen_random_uuid()"}
    sequences = "SELECT count(*) FROM pg_sequences WHERE schemaname = 'tallystick'"
    assert one(database, sequences) == 0


def test_a_claim_tells_that_its_policy_moved_on(control: Database) -> None:
    revision = a_policy(control, "invoices")["revision"]
    a_job(control, kind="invoices", policy_revision=revision, due_in=-30)
    assert a_claim(control).barred is None
    a_job(control, kind="invoices", policy_revision=revision)
    a_policy(control, "invoices", after_days=9)
    assert a_claim(control).barred is Code.POLICY_CHANGED


def test_a_claim_tells_that_its_policy_is_off(control: Database) -> None:
    revision = a_policy(control, "invoices", enabled=False)["revision"]
    a_job(control, kind="invoices", policy_revision=revision)
    assert a_claim(control).barred is Code.POLICY_CHANGED


def test_a_claim_tells_that_its_namespace_is_off(control: Database) -> None:
    a_job(control)
    control.transact("UPDATE tallystick.namespace SET enabled = false", {})
    assert a_claim(control).barred is Code.PERMISSION_DENIED


def test_a_claim_whose_answer_was_lost_is_found_by_its_owner(
    database: str, control: Database
) -> None:
    job = a_job(control)
    with between(database) as proxy, closing(worlds.control(proxy.dsn)) as far:
        far.transact("SELECT 1 AS connected", {})
        proxy.lose_commits = 1
        claim = a_claim(far)
    assert proxy.lose_commits == 0
    assert claim.job.id == job
    assert (claim.job.generation, claim.job.attempts) == (1, 1)
    assert claim.job.owner == one(database, "SELECT owner FROM tallystick.job")
    assert not claim.reclaimed


def test_a_claim_whose_answer_was_lost_and_that_is_not_found_is_not_told_as_nothing_due(
    database: str, control: Database
) -> None:
    """It may still be on its way to the row: nobody knows whether there was nothing to claim."""
    a_job(control, due_in=60)
    with between(database) as proxy, closing(worlds.control(proxy.dsn)) as far:
        far.transact("SELECT 1 AS connected", {})
        proxy.lose_commits = 1
        with pytest.raises(Uncertain) as raised:
            store.claim(far, search())
    assert raised.value.code is Code.OUTCOME_UNKNOWN


def test_claiming_with_in_and_a_locking_subquery_takes_many_jobs_at_once(
    database: str, control: Database
) -> None:
    for _ in range(20):
        a_job(control)
    careless = """
        UPDATE tallystick.job SET state = 'RUNNING', owner = gen_random_uuid(),
               lease_until = now() + interval '2 min', due_at = now() + interval '2 min'
        WHERE %(job_id)s::uuid IS NULL AND id IN (SELECT id FROM tallystick.job
                     WHERE state IN ('PENDING', 'RUNNING') AND due_at <= statement_timestamp()
                     ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED)
        RETURNING id"""
    # The planner falls into this by itself once its statistics are off; here it is led there.
    off = ["hashagg", "hashjoin", "mergejoin", "material", "sort", "memoize"]
    limits = "; ".join(f"SET LOCAL enable_{each} = off" for each in off)

    def taken(statement: str) -> int:
        with closing(connect(database)) as connection:
            connection.execute(f"BEGIN; {limits}".encode())
            return len(connection.execute(statement.encode(), claim_params()).fetchall())

    assert taken(careless) > 1
    assert taken(store._sql("claim")) == 1


def test_without_a_lock_on_what_was_found_two_sessions_claim_one_job(
    database: str, control: Database
) -> None:
    a_job(control)
    unlocked = altered(store._sql("claim"), "    FOR UPDATE SKIP LOCKED\n")
    owners = (UUID(int=1), UUID(int=2))

    def claimed(statement: str) -> list[object]:
        """Claim in two sessions, the second while the first has not committed yet."""
        with connect(database) as first, closing(connect(database)) as second:
            first.execute("BEGIN")
            found = first.execute(statement.encode(), claim_params(owner=owners[0])).fetchall()
            with ThreadPoolExecutor() as pool:
                later = pool.submit(
                    second.execute, statement.encode(), claim_params(owner=owners[1])
                )
                ends = time.monotonic() + 1
                while not later.done() and time.monotonic() < ends:
                    time.sleep(0.01)
                first.execute("COMMIT")
                found += later.result().fetchall()
        return [row["owner"] for row in found]

    assert claimed(unlocked) == list(owners)
    control.transact(
        "UPDATE tallystick.job SET state = 'PENDING', owner = NULL, due_at = now()", {}
    )
    assert claimed(store._sql("claim")) == [owners[0]]


def test_a_claim_whose_answer_was_lost_would_keep_its_job_for_a_whole_lease_unless_looked_up(
    database: str, control: Database
) -> None:
    a_job(control)
    with between(database) as proxy, closing(worlds.control(proxy.dsn)) as far:
        far.transact("SELECT 1 AS connected", {})
        proxy.lose_commits = 1
        with pytest.raises(Uncertain):
            far.transact(store._sql("claim"), claim_params())
    assert one(database, "SELECT state FROM tallystick.job") == "RUNNING"
    assert store.claim(control, search()) is None


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_without_a_bound_a_clock_that_jumped_parks_a_job_for_ever(
    control: Database, state: str
) -> None:
    job = a_job(control)
    far = "statement_timestamp() + interval '90 years'"
    owner = "NULL" if state == "PENDING" else "gen_random_uuid()"
    change_job(
        control, job, f"state = '{state}', owner = {owner}, due_at = {far}, lease_until = {far}"
    )
    branch = "    UNION ALL\n    SELECT id, state = 'RUNNING' AS expired FROM far\n"
    with without(store, "claim", branch):
        assert store.claim(control, search()) is None
    assert a_claim(control).job.id == job


def test_ids_of_a_sequence_are_given_out_again_by_a_restored_database(
    server_dsn: str, database: str
) -> None:
    """Two jobs of one id would write into one directory of the volume."""
    rows(database, "CREATE TABLE numbered (id bigint GENERATED ALWAYS AS IDENTITY, said text)")
    numbered = "INSERT INTO numbered (said) VALUES ('x') RETURNING id"
    with _database(server_dsn, "restored", template=urlsplit(database).path[1:]) as restored:
        assert one(database, numbered) == one(restored, numbered)
        ids = []
        for dsn in (database, restored):
            with closing(worlds.control(dsn)) as control:
                ids.append(a_job(control))
    assert ids[0] != ids[1]
