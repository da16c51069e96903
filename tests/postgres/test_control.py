"""Control transactions: short, pinned, poolable, and repeated only when that is safe."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import psycopg
import pytest

from shared.db import connect as connecting
from shared.db.connect import RETRIES, Database, cause_of, connect
from shared.errors import Code, Passing, Uncertain
from tests import worlds
from tests.postgres.proxy import between
from tests.worlds import a_job, one, rows

SETTINGS = (
    "transaction_isolation",
    "transaction_read_only",
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "synchronous_commit",
)
SHOWN = "SELECT " + ", ".join(f"current_setting('{name}') AS {name}" for name in SETTINGS)
PINNED = {
    "transaction_isolation": "read committed",
    "transaction_read_only": "off",
    "statement_timeout": "10s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "10s",
    "synchronous_commit": "on",
}
CONTRARY = {
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "synchronous_commit": "off",
}


@pytest.fixture
def contrary(database: str) -> Iterator[Database]:
    """Control of a database whose own defaults are the opposite of what control transactions need."""
    name = urlsplit(database).path.removeprefix("/")
    changes = [f"ALTER DATABASE {name} SET {each} = '{value}'" for each, value in CONTRARY.items()]
    rows(database, ";".join(changes))
    with closing(worlds.control(database)) as control:
        yield control


def test_a_statement_runs_under_our_settings_whatever_the_database_defaults_to(
    contrary: Database,
) -> None:
    assert contrary.transact(SHOWN, {}) == [PINNED]


def test_a_transaction_runs_under_our_settings_whatever_the_database_defaults_to(
    contrary: Database,
) -> None:
    with contrary.transaction() as connection:
        assert connection.execute(SHOWN.encode()).fetchall() == [PINNED]


def test_writes_work_where_the_default_is_read_only(contrary: Database) -> None:
    a_job(contrary)
    assert contrary.transact("SELECT count(*) FROM tallystick.job", {}) == [{"count": 1}]


def test_nothing_is_left_on_the_connection(contrary: Database) -> None:
    contrary.transact(SHOWN, {})
    with contrary.transaction() as connection:
        connection.execute(SHOWN.encode())
    left = connection.execute(SHOWN.encode()).fetchone()
    assert left is not None
    assert left | {"transaction_isolation": "", "transaction_read_only": ""} == {
        "transaction_isolation": "",
        "transaction_read_only": "",
        "statement_timeout": "0",
        "lock_timeout": "0",
        "idle_in_transaction_session_timeout": "0",
        "synchronous_commit": "off",
    }
    assert connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE


def test_no_statement_is_prepared_by_name(control: Database) -> None:
    for _ in range(10):
        control.transact("SELECT %(x)s::int AS x", {"x": 1})
        with control.transaction() as connection:
            connection.execute("SELECT %(x)s::int AS x", {"x": 1})
    assert control.transact("SELECT count(*) FROM pg_prepared_statements", {}) == [{"count": 0}]


def test_a_dead_peer_is_noticed(control: Database) -> None:
    with control.transaction() as connection:
        params = connection.info.get_parameters()
    assert params["connect_timeout"] == "5"
    assert params["tcp_user_timeout"] == "10000"
    assert params["keepalives_idle"] == "10"


FLAKY = """
    CREATE SEQUENCE tries;
    CREATE FUNCTION flaky(good integer, state text) RETURNS integer LANGUAGE plpgsql AS $$
    DECLARE tried integer := nextval('public.tries');
    BEGIN
        IF tried < good THEN
            RAISE EXCEPTION 'not yet' USING ERRCODE = state;
        END IF;
        RETURN tried;
    END $$"""
CALL = "SELECT public.flaky(%(good)s::integer, %(state)s) AS tried"


def tries_of(database: str, control: Database, state: str) -> tuple[int, type[Exception] | None]:
    """Run a statement that always ends in that state; return how often it ran, and what was raised."""
    rows(database, "ALTER SEQUENCE tries RESTART")
    try:
        control.transact(CALL, {"good": 1000, "state": state})
    except (Passing, psycopg.Error) as error:
        return one(database, "SELECT last_value FROM tries"), type(error)
    return 0, None


def test_a_transaction_rolled_back_in_passing_is_repeated_a_bounded_number_of_times(
    database: str, control: Database
) -> None:
    rows(database, FLAKY)
    assert control.transact(CALL, {"good": 3, "state": "40001"}) == [{"tried": 3}]
    for state in ("40001", "40P01", "55P03", "57014"):
        assert tries_of(database, control, state) == (RETRIES + 1, Passing)


def test_an_error_that_repeating_cannot_help_is_raised_at_once(
    database: str, control: Database
) -> None:
    rows(database, FLAKY)
    for state in ("23505", "23514", "22012"):
        tries, raised = tries_of(database, control, state)
        assert (tries, raised) == (1, psycopg.errors.lookup(state))
        # The failed transaction is over; the connection is as good as new.
        assert control.transact("SELECT 1 AS x", {}) == [{"x": 1}]


def test_how_often_is_a_setting_of_the_deployment(database: str) -> None:
    rows(database, FLAKY)
    patient = worlds.control(database)
    impatient = Database(database, patient._deadline, retries=0)
    with closing(impatient), pytest.raises(Passing):
        impatient.transact(CALL, {"good": 2, "state": "40001"})
    assert one(database, "SELECT last_value FROM tries") == 1


def test_nothing_is_repeated_after_the_deadline(database: str) -> None:
    rows(database, FLAKY)
    with closing(worlds.control(database, seconds=0)) as late, pytest.raises(Passing):
        late.transact(CALL, {"good": 2, "state": "40001"})
    assert one(database, "SELECT last_value FROM tries") == 1


def test_the_waits_between_tries_are_short_and_jittered(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    for attempt in range(RETRIES):
        connecting._pause(attempt)
    for attempt, wait in enumerate(waits):
        full = connecting.RETRY_SECONDS * 2**attempt
        assert full / 2 <= wait <= full
    assert len(set(waits)) == len(waits)


def test_a_real_deadlock_is_survived_by_repeating(database: str, control: Database) -> None:
    first, second = a_job(control), a_job(control)
    touch = "UPDATE tallystick.job SET attempts = attempts + 1 WHERE id = %(id)s"
    with connect(database) as other:
        other.execute("BEGIN")
        other.execute("SET LOCAL deadlock_timeout = '20s'")
        other.execute(touch.encode(), {"id": second})
        both = (
            "WITH one AS (UPDATE tallystick.job SET attempts = attempts + 1 WHERE id = %(a)s"
            " RETURNING id) UPDATE tallystick.job SET attempts = attempts + 1"
            " FROM one WHERE job.id = %(b)s RETURNING job.id"
        )
        found: list[object] = []
        worker = threading.Thread(
            target=lambda: found.extend(control.transact(both, {"a": first, "b": second}))
        )
        worker.start()
        wait_until_blocked(database)
        # Ours waits for the second row; now the other waits for the first: one of the two must go.
        other.execute(touch.encode(), {"id": first})
        other.execute("COMMIT")
        worker.join(30)
    assert found == [{"id": second}]
    attempts = rows(database, "SELECT attempts FROM tallystick.job")
    assert [row["attempts"] for row in attempts] == [2, 2]


def wait_until_blocked(database: str) -> None:
    question = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    give_up = time.monotonic() + 20
    while one(database, question) == 0:
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_a_lost_answer_is_uncertain_unless_repeating_is_the_same_as_once(database: str) -> None:
    rows(database, "CREATE SEQUENCE tries")
    with between(database) as proxy, closing(worlds.control(proxy.dsn)) as far:
        count = "SELECT nextval('public.tries') AS tried"
        far.transact(count, {})
        proxy.lose_commits = 1
        with pytest.raises(Uncertain) as uncertain:
            far.transact(count, {})
        assert uncertain.value.code is Code.OUTCOME_UNKNOWN
        proxy.lose_commits = 1
        assert far.transact(count, {}, repeatable=True) == [{"tried": 4}]


def in_transaction(control: Database, statement: str, wait_seconds: float = 0) -> None:
    with control.transaction() as connection:
        time.sleep(wait_seconds)
        connection.execute(statement.encode())


def test_a_lost_answer_to_several_statements_is_uncertain(database: str) -> None:
    with between(database) as proxy, closing(worlds.control(proxy.dsn)) as far:
        proxy.lose_commits = 1
        with pytest.raises(Uncertain):
            in_transaction(far, "SELECT 1")
        assert far.transact("SELECT 1 AS x", {}) == [{"x": 1}]


def test_a_server_that_is_away_is_unavailable(database: str) -> None:
    with between(database) as proxy, closing(worlds.control(proxy.dsn, seconds=1)) as far:
        proxy.down = True
        with pytest.raises(Passing) as passing:
            far.transact("SELECT 1 AS x", {})
    assert passing.value.code is Code.DATABASE_UNAVAILABLE


def fail_halfway(control: Database) -> None:
    with control.transaction() as connection:
        connection.execute("INSERT INTO tallystick.namespace (name) VALUES ('half')")
        raise ZeroDivisionError


def test_a_transaction_whose_body_fails_leaves_nothing(database: str, control: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_halfway(control)
    assert one(database, "SELECT count(*) FROM tallystick.namespace") == 1
    assert control.transact("SELECT 1 AS x", {}) == [{"x": 1}]


def test_a_transaction_that_idles_too_long_is_ended_by_the_server(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = [each for each in connecting.PINS if "idle" not in each[0]]
    short = ("idle_in_transaction_session_timeout", "'100ms'")
    monkeypatch.setattr(connecting, "PINS", (*pins, short))
    with closing(worlds.control(database)) as control:
        with pytest.raises(Passing) as passing:
            in_transaction(control, "SELECT 1", wait_seconds=0.5)
        assert passing.value.code is Code.DATABASE_UNAVAILABLE
        assert control.transact("SELECT 1 AS x", {}) == [{"x": 1}]


def test_a_cause_is_one_bounded_line_without_the_password(database: str) -> None:
    dsn = "postgresql://someone:hunter2@127.0.0.1:1/nowhere"
    with pytest.raises(psycopg.Error) as error:
        connect(dsn)
    cause = cause_of(error.value)
    assert "hunter2" not in cause
    assert "\n" not in cause
    assert 0 < len(cause) <= 200


def test_under_the_defaults_of_a_database_writes_are_refused_and_waits_have_no_end(
    database: str, contrary: Database
) -> None:
    """What our settings are for: the same statements without them."""
    a_job(contrary)
    with connect(database) as plain:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            plain.execute("UPDATE tallystick.job SET attempts = 1")
        shown = plain.execute(SHOWN.encode()).fetchone()
    assert shown is not None
    assert shown | {"idle_in_transaction_session_timeout": "0"} == shown
    assert {name: shown[name] for name in ("statement_timeout", "lock_timeout")} == {
        "statement_timeout": "0",
        "lock_timeout": "0",
    }


def test_a_setting_made_outside_a_transaction_is_left_to_whoever_comes_next(database: str) -> None:
    """Behind a pooler in transaction mode that is somebody else."""
    with connect(database) as pooled:
        for scope, left in (("SET LOCAL", "0"), ("SET", "7s")):
            pooled.execute("BEGIN")
            pooled.execute(f"{scope} statement_timeout = '7s'".encode())
            pooled.execute("COMMIT")
            shown = pooled.execute("SHOW statement_timeout").fetchone()
            assert shown == {"statement_timeout": left}
