"""Settling a unit: everything or nothing, once, and found again when the answer was lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest

from shared.db.connect import Database, connect
from shared.errors import Code, Missing, Passing, Stale, Uncertain, Verdict
from shared.jobs import rules, store
from shared.jobs.model import Claim, Event, LedgerEntry, State
from shared.plans.schedule import schedule
from tests import worlds
from tests.operations.stage import GATE, GATED, blocked, wait_for
from tests.postgres.proxy import between, drop
from tests.worlds import (
    a_claim,
    a_job,
    a_plan,
    a_progress,
    altered,
    change_job,
    expire_lease,
    make_due,
    one,
    rows,
    without,
)

UNITS = "SELECT * FROM tallystick.unit ORDER BY job_id, seq"
EVENTS = "SELECT * FROM tallystick.recovery_event ORDER BY occurred_at"


def test_a_settled_unit_moves_the_job_and_leaves_its_evidence(
    database: str, control: Database, storage_id: str
) -> None:
    a_job(control, storage_id=storage_id)
    claim = a_claim(control, storage_id)
    job = store.settle(control, claim, a_progress(claim))
    assert (job.state, job.owner, job.lease_until) == (State.PENDING, None, None)
    assert (job.batches, job.roots, job.bytes, job.last_sha256) == (1, 10, 100, f"{1:064x}")
    assert job.checkpoint == {"cursor": ["2026-01-01", "1"], "rows": 10}
    assert job.due_at <= one(database, "SELECT clock_timestamp()")
    assert (job.generation, job.revision) == (claim.job.generation, claim.job.revision)
    (unit,) = rows(database, UNITS)
    assert (unit["seq"], unit["generation"], unit["sha256"]) == (1, 1, f"{1:064x}")
    assert unit["evidence"] == {"rows": {"public.invoice": 10}}


def test_the_final_unit_closes_the_job(database: str, control: Database) -> None:
    job_id = a_job(control)
    claim = a_claim(control)
    job = store.settle(control, claim, a_progress(claim, final=True))
    assert job.state is State.SUCCEEDED
    assert job.closed_at is not None
    change_job(control, job_id, "due_at = clock_timestamp() - interval '1 hour'")
    assert store.claim(control, worlds.search()) is None


def test_events_of_a_unit_are_settled_with_it(database: str, control: Database) -> None:
    job_id = a_job(control)
    claim = a_claim(control)
    late = Event("late-rows", "warning", done=False, reason_code=Code.LATE_ROWS)
    store.settle(control, claim, a_progress(claim, events=(late,)))
    (event,) = rows(database, EVENTS)
    assert (event["type"], event["reason_code"], event["job_id"]) == (
        "late-rows",
        "LATE_ROWS",
        job_id,
    )
    assert event["checkpoint"] == {"cursor": ["2026-01-01", "1"], "rows": 10}


def test_how_a_takeover_ended_is_an_event_after_the_takeover(
    database: str, control: Database
) -> None:
    job_id = a_job(control)
    a_claim(control)
    expire_lease(control, job_id)
    claim = a_claim(control)
    store.settle(control, claim, a_progress(claim))
    types = [event["type"] for event in rows(database, EVENTS)]
    assert types == ["job-reclaimed-after-restart", "unit-settled-after-restart"]


def test_a_settle_that_cannot_write_its_unit_moves_nothing(
    database: str, control: Database
) -> None:
    job_id = a_job(control)
    claim = a_claim(control)
    statement = "ALTER TABLE tallystick.unit ADD CONSTRAINT full_up CHECK (seq > 1)"
    rows(database, statement)
    with pytest.raises(psycopg.errors.CheckViolation):
        store.settle(control, claim, a_progress(claim))
    assert store.get(control, job_id) == claim.job


def test_one_position_is_never_settled_twice(database: str, control: Database) -> None:
    job_id = a_job(control)
    claim = a_claim(control)
    store.settle(control, claim, a_progress(claim))
    # As after a failover that lost the job's row but not the unit's: the key still holds.
    change_job(control, job_id, "batches = 0, last_sha256 = NULL")
    again = a_claim(control)
    with pytest.raises(psycopg.errors.UniqueViolation):
        store.settle(control, again, a_progress(again, sha256="d" * 64))
    assert len(rows(database, UNITS)) == 1


def test_a_settle_whose_answer_was_lost_is_found_recorded(database: str, control: Database) -> None:
    a_job(control)
    with between(database) as proxy, closing(worlds.control(proxy.dsn)) as far:
        claim = a_claim(far)
        proxy.lose_commits = 1
        job = store.settle(far, claim, a_progress(claim))
    assert proxy.lose_commits == 0
    assert (job.batches, job.bytes, job.state) == (1, 100, State.PENDING)
    assert len(rows(database, UNITS)) == 1
    assert one(database, "SELECT roots FROM tallystick.job") == 10


def test_a_final_settle_whose_answer_was_lost_is_found_recorded(
    database: str, control: Database
) -> None:
    a_job(control)
    with between(database) as proxy, closing(worlds.control(proxy.dsn)) as far:
        claim = a_claim(far)
        proxy.lose_commits = 1
        assert store.settle(far, claim, a_progress(claim, final=True)).state is State.SUCCEEDED


def test_a_settle_that_never_arrived_is_sent_again(database: str, control: Database) -> None:
    a_job(control)
    with between(database) as proxy, closing(worlds.control(proxy.dsn)) as far:
        claim = a_claim(far)
        terminate = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
        rows(database, f"{terminate} AND datname = current_database()")
        job = store.settle(far, claim, a_progress(claim))
    assert job.batches == 1
    assert len(rows(database, UNITS)) == 1


def test_settling_twice_returns_the_job_as_recorded(database: str, control: Database) -> None:
    a_job(control)
    claim = a_claim(control)
    first = store.settle(control, claim, a_progress(claim))
    assert store.settle(control, claim, a_progress(claim)) == first
    assert len(rows(database, UNITS)) == 1


def test_other_bytes_at_a_settled_position_are_stale(control: Database) -> None:
    a_job(control)
    claim = a_claim(control)
    store.settle(control, claim, a_progress(claim))
    with pytest.raises(Stale):
        store.settle(control, claim, a_progress(claim, sha256="d" * 64))


def test_without_an_answer_from_the_server_a_settle_is_uncertain(
    database: str, control: Database
) -> None:
    a_job(control)
    with between(database) as proxy, closing(worlds.control(proxy.dsn, seconds=1)) as far:
        claim = a_claim(far)
        proxy.down = True
        with pytest.raises(Uncertain):
            store.settle(far, claim, a_progress(claim))


def test_without_an_answer_from_the_server_a_set_back_is_uncertain(
    database: str, control: Database
) -> None:
    a_job(control)
    with between(database) as proxy, closing(worlds.control(proxy.dsn, seconds=1)) as far:
        claim = a_claim(far)
        proxy.down = True
        with pytest.raises(Uncertain):
            store.set_back(far, claim, rules.setback(claim.job, Passing(Code.EXPORT_FAILED)))


def test_a_settle_waits_for_no_answer_before_it_has_sent_its_commit(
    database: str, control: Database
) -> None:
    a_job(control)
    with between(database) as proxy, closing(worlds.control(proxy.dsn)) as far:
        claim = a_claim(far)
        proxy.hold_until = b"COMMIT\x00"
        assert store.settle(far, claim, a_progress(claim)).batches == 1
        proxy.arrived.clear()
        with pytest.raises(Uncertain), far.transaction():
            pytest.fail("several statements wait for their answers, so this is never reached")


SETTLER = """
import sys
from contextlib import closing
from shared.jobs import store
from tests.worlds import a_claim, a_progress, control
with closing(control(sys.argv[1])) as database:
    claim = a_claim(database)
    store.settle(database, claim, a_progress(claim))
"""

TWO_STATEMENTS = """
import sys
from tests.worlds import a_claim, control
from contextlib import closing
with closing(control(sys.argv[1])) as database:
    claim = a_claim(database)
    with database.transaction() as connection:
        connection.execute("UPDATE tallystick.job SET state = 'PENDING', owner = NULL, batches = 1")
        connection.execute(
            "INSERT INTO tallystick.unit (job_id, seq, generation, owner, bytes, roots, evidence)"
            " VALUES (%s, 1, 1, %s, 1, 1, '{}')", (claim.job.id, claim.job.owner))
        connection.execute("SELECT 'the next statement'")
"""


def frozen_while_settling(database: str, program: str) -> tuple[bool, int]:
    """Freeze a process in the middle of its settle; tell whether rows stay locked, and units settled."""
    rows(
        database,
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_sleep(0.7); RETURN NEW; END';"
        "CREATE TRIGGER slow BEFORE INSERT ON tallystick.unit FOR EACH ROW EXECUTE FUNCTION slow()",
    )
    asleep = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event = 'PgSleep'"
    )
    with subprocess.Popen([sys.executable, "-c", program, database]) as process:
        try:
            wait_until(database, asleep, 1)
            process.send_signal(signal.SIGSTOP)
            wait_until(database, asleep, 0)
            time.sleep(0.1)
            with connect(database) as other, other.transaction():
                locked = "SELECT count(*) FROM (SELECT FROM tallystick.job FOR UPDATE SKIP LOCKED) AS free"
                free = other.execute(locked).fetchone()
            return free == {"count": 0}, len(rows(database, UNITS))
        finally:
            process.send_signal(signal.SIGCONT)
            process.wait(30)


def wait_until(database: str, question: str, answer: object) -> None:
    give_up = time.monotonic() + 30
    while one(database, question) != answer:
        assert time.monotonic() < give_up, question
        time.sleep(0.02)


def test_a_process_frozen_while_it_settles_leaves_no_row_locked(
    database: str, control: Database
) -> None:
    a_job(control)
    assert frozen_while_settling(database, SETTLER) == (False, 1)


def test_a_process_frozen_between_two_statements_would_hold_the_job(
    database: str, control: Database
) -> None:
    a_job(control)
    assert frozen_while_settling(database, TWO_STATEMENTS) == (True, 0)


def test_a_settle_does_not_wait_for_the_plan_of_its_job(
    database: str, control: Database, storage_id: str
) -> None:
    plan = a_plan(control, None, storage_id)
    schedule(control, (), ["scan"])
    claim = a_claim(control, storage_id)
    with connect(database) as other, other.transaction():
        # As scheduling does while it looks for what is due.
        other.execute("SELECT FROM tallystick.plan FOR UPDATE")
        waits = altered(
            store._sql("settle"),
            "), event AS (",
            "), locked AS (UPDATE tallystick.plan SET updated_at = now() FROM settled"
            " WHERE plan.id = settled.plan_id), event AS (",
        )
        with pytest.raises(Passing):
            _settle_with(worlds.control(database, seconds=0), claim, waits)
        started = time.monotonic()
        job = store.settle(control, claim, a_progress(claim, final=True))
        assert time.monotonic() - started < 2
    assert (job.state, job.plan_id) == (State.SUCCEEDED, plan["id"])


def _settle_with(impatient: Database, claim: Claim, statement: str) -> None:
    """Settle with another statement, giving up on a lock at the first time out."""
    with closing(impatient), impatient.transaction() as connection:
        connection.execute("SET LOCAL lock_timeout = '100ms'")
        connection.execute(
            statement,
            claim.fence.params()
            | {
                "final": True,
                "page_size": 1,
                "checkpoint": "{}",
                "unit_seq": 1,
                "unit_sha256": None,
            }
            | {"unit_bytes": 1, "unit_roots": 1, "evidence": "{}", "new_tail": None, "ledger": "[]"}
            | {"released": [], "events": "[]", "reclaimed": False}
            | {"published_directory": None, "published_file": None},
        )


def test_a_closed_job_gives_up_the_place_of_its_plan_and_a_failed_one_keeps_it(
    control: Database, storage_id: str
) -> None:
    plan = a_plan(control, None, storage_id)
    (job_id,) = schedule(control, (), ["scan"]).jobs
    claim = a_claim(control, storage_id)
    store.set_back(control, claim, rules.setback(claim.job, Verdict(Code.FILE_CHECK_FAILED)))
    overdue = "UPDATE tallystick.plan SET next_run_at = clock_timestamp() - interval '1 hour'"
    control.transact(overdue, {})
    assert schedule(control, (), ["scan"]).jobs == []
    change_job(control, job_id, "state = 'PENDING'")
    claim = a_claim(control, storage_id)
    store.settle(control, claim, a_progress(claim, final=True))
    (next_id,) = schedule(control, (), ["scan"]).jobs
    assert next_id != job_id
    with pytest.raises(psycopg.errors.UniqueViolation):
        a_job(control, operation="scan", plan_id=plan["id"], storage_id=storage_id)


def test_a_job_of_no_plan_may_be_open_beside_any_number_of_others(control: Database) -> None:
    assert len({a_job(control) for _ in range(3)}) == 3


def test_the_volume_moves_by_the_difference_a_settle_makes(
    database: str, control: Database, storage_id: str
) -> None:
    a_job(control, storage_id=storage_id)
    used = "SELECT used_bytes FROM tallystick.volume"
    for total in (133, 233, 90):
        claim = a_claim(control, storage_id)
        entries = (LedgerEntry("one", total), LedgerEntry("", 33))
        store.settle(control, claim, a_progress(claim, ledger=entries))
        assert one(database, used) == total + 33
    ledger = rows(database, "SELECT directory, bytes FROM tallystick.ledger ORDER BY directory")
    assert [tuple(row.values()) for row in ledger] == [("", 33), ("one", 90)]


def sum_is_kept(database: str, control: Database, storage_id: str) -> bool:
    """Let an archive settle, and a scan that has just measured the same directory, at once."""
    for _ in range(2):
        a_job(control, storage_id=storage_id)
    claims = [a_claim(control, storage_id) for _ in range(2)]

    def settle(claim: Claim, total: int) -> None:
        with closing(worlds.control(database)) as own:
            store.settle(own, claim, a_progress(claim, ledger=(LedgerEntry("one", total),)))

    rows(database, GATED)
    with ThreadPoolExecutor() as pool:
        with psycopg.connect(database, autocommit=True) as holder:
            holder.execute(f"SELECT pg_advisory_lock({GATE})".encode())
            ended = [pool.submit(settle, *each) for each in zip(claims, (100, 70), strict=True)]
            wait_for(lambda: len(blocked(database)) == 2)
        for each in ended:
            each.result()
    kept = "SELECT used_bytes = (SELECT sum(bytes) FROM tallystick.ledger) FROM tallystick.volume"
    return bool(one(database, kept))


def test_the_sum_of_a_volume_is_kept_by_settles_that_meet_without_its_lock(
    database: str, control: Database, storage_id: str
) -> None:
    assert sum_is_kept(database, control, storage_id)


def test_a_settle_gives_back_what_was_reserved(control: Database, storage_id: str) -> None:
    a_job(control, storage_id=storage_id)
    claim = a_claim(control, storage_id)
    store.reserve(control, claim.fence, 150, worlds.GIBIBYTE)
    assert store.settle(control, claim, a_progress(claim)).reserved == 0


def test_only_abandoned_jobs_are_released(control: Database, storage_id: str) -> None:
    scan = a_job(control, operation="scan", storage_id=storage_id, due_in=-60)
    closed = {"closed_at": "2026-01-01", "storage_id": storage_id, "reserved": 70}
    abandoned = a_job(control, state="ABANDONED", **closed)
    waiting = a_job(control, storage_id=storage_id, reserved=80, due_in=60)
    claim = a_claim(control, storage_id, job_id=scan)
    released = (abandoned, waiting, uuid4())
    store.settle(control, claim, a_progress(claim, released=released))
    assert store.get(control, abandoned).reserved == 0
    assert store.get(control, waiting).reserved == 80


def test_a_failure_waits_and_is_kept_with_its_parameters(database: str, control: Database) -> None:
    job_id = a_job(control)
    claim = a_claim(control)
    trouble = Passing(Code.EXPORT_FAILED, cause="timeout", table="public.invoice")
    decided = rules.setback(claim.job, trouble, jitter=lambda: 1.0)
    job = store.set_back(control, claim, decided)
    assert (job.state, job.failures, job.error_code) == (State.PENDING, 1, "EXPORT_FAILED")
    assert job.error_params == {"cause": "timeout", "table": "public.invoice"}
    assert (job.owner, job.lease_until) == (None, None)
    assert abs((job.due_at - job.updated_at).total_seconds() - 10) < 0.5
    assert job.page_size == claim.job.page_size // 2
    assert (job.revision, job.generation) == (claim.job.revision, claim.job.generation)
    (entry,) = job.errors
    assert (entry["code"], entry["params"], entry["attempt"]) == (
        "EXPORT_FAILED",
        job.error_params,
        1,
    )
    (event,) = rows(database, EVENTS)
    assert (event["type"], event["job_id"], event["next_attempt_at"]) == (
        "unit-failed",
        job_id,
        job.due_at,
    )


def test_failed_and_paused_move_the_revision_that_operators_see(control: Database) -> None:
    a_job(control)
    claim = a_claim(control)
    missing = Missing(Code.STORAGE_UNAVAILABLE, cause="not-there")
    job = store.set_back(control, claim, rules.setback(claim.job, missing))
    assert (job.state, job.revision, job.failures) == (State.PAUSED, 2, 0)
    a_job(control)
    claim = a_claim(control)
    job = store.set_back(control, claim, rules.setback(claim.job, Verdict(Code.STORAGE_LIMIT)))
    assert (job.state, job.revision) == (State.FAILED, 2)


def test_the_history_of_errors_keeps_the_newest_twenty(control: Database) -> None:
    job_id = a_job(control)
    for number in range(rules.ERRORS_KEPT + 5):
        claim = a_claim(control)
        trouble = Passing(Code.EXPORT_FAILED, number=number)
        decided = rules.setback(claim.job, trouble)
        store.set_back(control, claim, decided)
        change_job(control, job_id, "failures = 0")
        make_due(control, job_id)
    errors = store.get(control, job_id).errors
    assert [entry["params"]["number"] for entry in errors] == list(range(5, 25))


def test_a_set_back_whose_answer_was_lost_is_found_recorded_once(
    database: str, control: Database
) -> None:
    a_job(control)
    with between(database) as proxy, closing(worlds.control(proxy.dsn)) as far:
        claim = a_claim(far)
        proxy.lose_commits = 1
        job = store.set_back(far, claim, rules.setback(claim.job, Passing(Code.EXPORT_FAILED)))
    assert (job.failures, len(job.errors)) == (1, 1)
    assert len(rows(database, EVENTS)) == 1


def test_what_the_first_unit_found_is_kept_when_the_answer_was_lost(
    database: str, control: Database
) -> None:
    job_id = a_job(control)
    with between(database) as proxy, closing(worlds.control(proxy.dsn)) as far:
        claim = a_claim(far)
        proxy.lose_commits = 1
        opened = store.open_job(far, claim, {"cutoff": "x"})
        assert opened.job.opening == {"cutoff": "x"}
        assert opened.fence == claim.fence
        store.settle(far, opened, a_progress(opened))
    assert store.get(control, job_id).batches == 1


def test_what_the_first_unit_found_is_sent_again_when_it_never_arrived(
    database: str, control: Database
) -> None:
    """Nobody else was there: the claim was not lost, and must not be told as lost."""
    a_job(control)
    with between(database) as proxy, closing(worlds.control(proxy.dsn)) as far:
        claim = a_claim(far)
        terminate = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
        rows(database, f"{terminate} AND datname = current_database()")
        opened = store.open_job(far, claim, {"cutoff": "x"})
    assert opened.job.opening == {"cutoff": "x"}
    assert opened.fence == claim.fence


def test_a_single_look_back_takes_a_settle_that_is_still_on_its_way_for_one_that_never_was(
    database: str, control: Database
) -> None:
    """The server notices late that nobody listens, and commits all the same."""
    a_job(control)
    rows(database, GATED)
    with (
        between(database) as proxy,
        closing(worlds.control(proxy.dsn)) as far,
        psycopg.connect(database, autocommit=True) as holder,
        ThreadPoolExecutor() as pool,
    ):
        claim = a_claim(far)
        progress = a_progress(claim)
        holder.execute(f"SELECT pg_advisory_lock({GATE})".encode())
        settling = pool.submit(store.settle, far, claim, progress)
        wait_for(lambda: len(blocked(database)) == 1)
        proxy.down = True
        # The client is cut off while its statement runs; then it comes through again.
        for each in list(proxy.open):
            drop(each)
        proxy.down = False
        wait_for(lambda: len(blocked(database)) == 2)
        (seen,) = store._look_back(control, claim, progress.seq)
        assert not store._unit_is_ours(seen, claim, progress)
        assert store._still_held(seen, claim)
        holder.execute(f"SELECT pg_advisory_unlock({GATE})".encode())
        assert settling.result(30).batches == 1
    assert len(rows(database, UNITS)) == 1


def test_the_sum_of_a_volume_is_lost_by_settles_that_meet_and_do_not_wait_for_each_other(
    database: str, control: Database, storage_id: str
) -> None:
    text = store._sql("lock_account")
    with without(store, "lock_account", text, "SELECT 1"):
        assert not sum_is_kept(database, control, storage_id)
