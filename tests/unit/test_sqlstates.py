"""Every SQLSTATE is judged: what becomes of a job or a restore, what is said, and that it can be followed."""

from __future__ import annotations

import inspect
from typing import Any

import psycopg
import pytest
from psycopg import errors

from shared.archive import source
from shared.db import reaching
from shared.db.connect import ROLLED_BACK, refuse, was_lost
from shared.errors import Missing, Passing, Refused, TallystickError, TooMuch, Verdict
from shared.messages import words
from shared.restore import trouble

STATES = {
    each.sqlstate: each
    for _, each in inspect.getmembers(errors, inspect.isclass)
    if issubclass(each, psycopg.Error) and each.sqlstate
}
# Of a source, by class or state: the longest that fits holds. What is not here is a verdict.
PASSES = {"08", "40", "53", "55P03", "55000", "55006", "57P", "58", "72", "25P03"}
SMALLER = {"57014", "25P04", "54000", "22021", "22P05"}
AWAY = {"28"}
VERDICTS_OF_PASSING = {"53400"}


def of_source(state: str) -> type[TallystickError]:
    def holds(known: set[str]) -> bool:
        return any(state.startswith(each) for each in known)

    if holds(AWAY):
        return Missing
    if state in VERDICTS_OF_PASSING:
        return Verdict
    if holds(SMALLER):
        return TooMuch
    return Passing if holds(PASSES) else Verdict


def test_all_classes_of_the_manual_are_looked_at() -> None:
    assert len(STATES) > 240
    assert {"08", "22", "23", "25", "28", "40", "42", "53", "54", "55", "57", "58", "XX"} <= {
        state[:2] for state in STATES
    }


@pytest.mark.parametrize("state", sorted(STATES))
def test_what_a_source_says_is_passing_or_a_verdict_and_has_words(state: str) -> None:
    found = source.trouble_of(STATES[state]("words of the server"), kind="k")
    assert type(found) is of_source(state)
    for then in ("retried", "resumed", "failed", "command"):
        assert_said(found, then)


@pytest.mark.parametrize("state", sorted(STATES))
def test_what_a_target_says_is_no_fault_of_ours_and_has_words(state: str) -> None:
    found = trouble.trouble_of(STATES[state]("words of the server"), file="f", table="t")
    # What a conflict of data names is in the error's fields, which a server fills.
    if not state.startswith("23"):
        assert_said(found, "command")
    assert (
        "again by itself"
        not in words(str(found.code), {**found.params, "then": "command"}).next_step
    )


@pytest.mark.parametrize("state", sorted(STATES))
def test_what_the_control_database_says_has_words_where_it_is_not_about_a_statement_of_ours(
    state: str,
) -> None:
    error = STATES[state]("words of the server")
    if was_lost(error) or state in ROLLED_BACK:
        return
    try:
        refuse(error)
    except (Refused, Passing) as found:
        assert_said(found, "command")
    else:
        # Only what a statement of ours can be wrong about is a fault of ours.
        assert state[:2] not in {"28", "53", "58", "XX"}, state


def assert_said(found: TallystickError, then: str) -> None:
    said = words(str(found.code), {**found.params, "then": then})
    assert said.next_step
    assert "(unknown)" not in said.happened
    if then in {"failed", "command"}:
        assert "again by itself" not in said.next_step, said
        assert "by themselves" not in said.next_step
    if then == "command":
        assert "jobs retry" not in said.next_step or found.code != "SOURCE_FAILED"


def result(state: str, text: str) -> Any:  # noqa: ANN401 - whatever psycopg makes of it
    return STATES[state](text)


def test_a_full_table_of_locks_passes_and_names_its_setting() -> None:
    error = result(
        "53200",
        "out of shared memory\nHINT:  You might need to increase max_locks_per_transaction.",
    )
    found = source.trouble_of(error)
    assert type(found) is Passing
    said = words(str(found.code), {**found.params, "then": "retried"})
    assert "max_locks_per_transaction" in said.next_step
    assert "row" not in said.next_step


def test_a_row_larger_than_a_message_asks_for_a_smaller_page() -> None:
    found = source.trouble_of(result("XX000", "invalid memory alloc request size 1610612736"))
    assert (type(found), found.params["cause"]) == (TooMuch, "unprintable")


def test_damage_is_called_damage() -> None:
    for state in ("XX001", "XX002"):
        found = source.trouble_of(result(state, "could not read block 0 in file base/5/16384"))
        assert (type(found), found.params["cause"]) == (Verdict, "damaged")
        assert "backup" in words(str(found.code), found.params).next_step


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('invalid URI query parameter: "schema"\n', "url-option"),
        (
            'missing "=" after "postgresql+asyncpg://u:pw@h/d" in connection info string\n',
            "url-scheme",
        ),
        ("failed to resolve host 'rd@h.invalid': [Errno -2] Name or service not known", "at-sign"),
        (
            "failed to resolve host 'u': [Errno -8] Servname not supported for ai_socktype",
            "url-port",
        ),
        ('connection is bad: definition of service "shop" not found', "service-missing"),
        ("failed: server does not support SSL, but SSL was required", "tls-not-offered"),
        ("failed: SSL error: certificate verify failed", "tls-not-trusted"),
        ('failed: FATAL:  database "shop\n" does not exist', "database-missing"),
        ('failed: FATAL:  invalid value for parameter "TimeZone": "No/Where"', "session-setting"),
        ('connection is bad: invalid sslmode value: "on"', "option-value"),
        ("failed: server is not in hot standby mode", "session-attrs"),
        ("failed: FATAL:  sorry, too many clients already", "overloaded"),
        ("failed: FATAL:  the database system is starting up", "starting"),
        ("failed: ВАЖНО:  что-то не так", "not-admitted"),
        ("failed: FATAL:  query_wait_timeout", "pool-exhausted"),
    ],
)
def test_why_no_session_began_is_told_apart(text: str, cause: str) -> None:
    found = reaching.obstacle(psycopg.OperationalError(text))
    assert found is not None
    assert found.cause == cause
    alike = ("SOURCE_FAILED", "RESTORE_FAILED")
    here = ("CREDENTIAL_MISSING", "DATABASE_REFUSED")
    gone = ("EXPORT_FAILED", "DATABASE_UNAVAILABLE")
    for code in (*alike, *(here if found.configured else gone)):
        params = {"cause": cause, "detail": found.detail, "setting": "--to", "then": "command"}
        said = words(code, params)
        assert said.happened != words(code, {}).happened
        assert "un the same command again" in said.next_step
        assert "did not answer" not in said.happened or not found.configured
    if "shop\n" in text:
        assert found.detail == 'database "shop\\n" does not exist'


def test_a_connection_that_is_refused_or_lost_is_no_configuration() -> None:
    for text in (
        "connection refused",
        "server closed the connection unexpectedly",
        "timeout expired",
    ):
        assert reaching.obstacle(psycopg.OperationalError(text)) is None
