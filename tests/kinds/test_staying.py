"""Rows that stay behind, or go though they may not be old, are counted before anything is archived."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest
from psycopg import sql

from shared.archive import kinds as kinds_file
from shared.archive import staying
from shared.archive.examine import Problem
from shared.archive.source import SourceConnection
from shared.archive.survey import Survey, survey
from shared.db.connect import Row
from shared.messages import words
from tests.kinds.drafts import execute
from tests.worlds import one

TRIP = "CREATE TABLE trip (id integer PRIMARY KEY, ended timestamptz NOT NULL)"
STOP = "CREATE TABLE stop (id integer PRIMARY KEY, trip integer)"
ROWS = (
    "INSERT INTO trip SELECT n, '2020-01-01' FROM generate_series(1, 10) AS n",
    # Five of no trip at all, three of trips that are gone.
    "INSERT INTO stop SELECT n, n FROM generate_series(1, 13) AS n",
    "INSERT INTO stop SELECT n, NULL FROM generate_series(14, 18) AS n",
)
KIND = '[kinds.trip]\nroot = "public.trip"\ntime = "ended"\n'
JOINED = KIND + 'related = [{ table = "public.stop", foreign_key = ["trip"] }]\n'


def surveyed(dsn: str, text: str) -> Survey:
    (kind,) = kinds_file.parse(text, "kinds.toml", "application")
    with closing(SourceConnection(dsn)) as source:
        return survey(source, kind)


def told(found: Survey, problem: Problem) -> list[str]:
    return [
        words(str(each.problem), each.params).happened
        for each in (*found.findings, *found.notes)
        if each.problem is problem
    ]


def test_a_key_that_was_never_validated_is_named_with_what_stays_behind(
    empty_database: str,
) -> None:
    execute(
        empty_database,
        TRIP,
        STOP,
        *ROWS,
        'ALTER TABLE stop ADD CONSTRAINT "of trip" FOREIGN KEY (trip) REFERENCES trip NOT VALID',
    )
    found = surveyed(empty_database, KIND + 'related = ["public.stop"]\n')
    assert not found.refuses
    (text,) = told(found, Problem.FOREIGN_KEY_UNPROVEN)
    assert "of trip" in text
    (text,) = told(found, Problem.ROWS_WITHOUT_PARENT)
    assert text.startswith("8 rows of public.stop have no row in public.trip")
    (unproven,) = [each for each in found.findings if each.problem is Problem.FOREIGN_KEY_UNPROVEN]
    # What it says to run runs, and what is then known is not said any more.
    execute(empty_database, "DELETE FROM stop WHERE trip > 10", str(unproven.params["sql"]))
    found = surveyed(empty_database, KIND + 'related = ["public.stop"]\n')
    assert not told(found, Problem.FOREIGN_KEY_UNPROVEN)
    (text,) = told(found, Problem.ROWS_WITHOUT_PARENT)
    assert text.startswith("5 rows of public.stop")
    execute(empty_database, "DELETE FROM stop WHERE trip IS NULL")
    execute(empty_database, "ALTER TABLE stop ALTER trip SET NOT NULL")
    found = surveyed(empty_database, KIND + 'related = ["public.stop"]\n')
    assert not told(found, Problem.ROWS_WITHOUT_PARENT)


def test_a_key_that_is_not_enforced_is_named(empty_database: str) -> None:
    version = one(empty_database, "SELECT current_setting('server_version_num')::int AS v")
    if version < 180000:
        pytest.skip("a later release of Postgres has this")
    execute(
        empty_database,
        TRIP,
        STOP,
        *ROWS,
        "ALTER TABLE stop ADD FOREIGN KEY (trip) REFERENCES trip NOT ENFORCED",
    )
    found = surveyed(empty_database, KIND + 'related = ["public.stop"]\n')
    (unproven,) = [each for each in found.findings if each.problem is Problem.FOREIGN_KEY_UNPROVEN]
    execute(empty_database, "DELETE FROM stop WHERE trip > 10", str(unproven.params["sql"]))
    assert told(found, Problem.ROWS_WITHOUT_PARENT)


def test_rows_without_a_parent_are_counted_where_nothing_is_declared_as_the_kind_sees_them(
    empty_database: str,
) -> None:
    execute(empty_database, TRIP, STOP, *ROWS)
    (text,) = told(surveyed(empty_database, JOINED), Problem.ROWS_WITHOUT_PARENT)
    assert text.startswith("8 rows")
    some = JOINED.replace("] }", '], where = "id > 12 -- none" }')
    (text,) = told(surveyed(empty_database, some), Problem.ROWS_WITHOUT_PARENT)
    assert text.startswith("6 rows")


def test_the_count_is_bounded_in_number_and_in_time(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(empty_database, TRIP, STOP, *ROWS)
    monkeypatch.setattr(staying, "COUNTED_MAX", 7)
    (text,) = told(surveyed(empty_database, JOINED), Problem.ROWS_WITHOUT_PARENT)
    assert text.startswith("More than 7 rows")
    execute(
        empty_database,
        "CREATE FUNCTION slow(id bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS"
        " $$BEGIN PERFORM pg_sleep(0.2); RETURN id IS NOT NULL; END$$",
    )
    slow = JOINED.replace("] }", '], where = "public.slow(id)" }')
    monkeypatch.setattr(staying, "COUNT_SECONDS", 0.1)
    (text,) = told(surveyed(empty_database, slow), Problem.ROWS_WITHOUT_PARENT)
    assert "could not be counted" in text


def test_rows_without_a_time_are_counted(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(
        empty_database,
        "CREATE TABLE trip (id integer PRIMARY KEY, ended date)",
        "INSERT INTO trip SELECT n, CASE WHEN n % 4 > 0 THEN '2020-01-01'::date END"
        " FROM generate_series(1, 800) AS n",
    )
    (text,) = told(surveyed(empty_database, KIND), Problem.TIME_NULL)
    assert text.startswith("200 of 800 rows of public.trip (25%) have no ended")
    where = KIND + 'where = "ended IS NOT NULL"\n'
    assert not told(surveyed(empty_database, where), Problem.TIME_NULL)
    # A table too large to be counted in time is estimated.
    bounded, asked = staying._bounded, list[object]()

    def too_slow_at_first(
        connection: psycopg.Connection[Row], query: sql.Composed, seconds: float
    ) -> Row | None:
        asked.append(query)
        return bounded(connection, query, seconds) if len(asked) > 1 else None

    monkeypatch.setattr(staying, "_bounded", too_slow_at_first)
    (text,) = told(surveyed(empty_database, KIND), Problem.TIME_NULL)
    assert text.startswith("About 25% of the rows")
    # Where even a sample takes too long, nothing is claimed.
    monkeypatch.setattr(staying, "_bounded", lambda *_: None)
    assert not told(surveyed(empty_database, KIND), Problem.TIME_NULL)


def test_integer_times_of_zero_are_counted_with_what_leaves_them_out(empty_database: str) -> None:
    execute(
        empty_database,
        'CREATE TABLE trip (id integer PRIMARY KEY, "Ended" bigint NOT NULL)',
        "INSERT INTO trip SELECT n, CASE WHEN n <= 90 THEN 0 ELSE 1600000000 END"
        " FROM generate_series(1, 100) AS n",
    )
    text = KIND.replace("ended", "Ended") + 'time_unit = "s"\n'
    found = surveyed(empty_database, text)
    (said,) = told(found, Problem.TIME_ZERO)
    assert said.startswith("90 of 100 rows of public.trip (90%)")
    (zero,) = [each for each in found.findings if each.problem is Problem.TIME_ZERO]
    with_it = surveyed(empty_database, f"{text}where = {zero.params['where']}\n")
    assert not with_it.refuses
    assert not told(with_it, Problem.TIME_ZERO)


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0%"), (0.002, "under 1%"), (0.5, "50%"), (0.998, "over 99%")]
)
def test_a_share_of_few_is_not_told_as_none(share: float, text: str) -> None:
    assert staying.share_text(share) == text


@pytest.mark.parametrize(
    ("zone", "repeats"), [("Europe/Berlin", True), ("UTC", False), ("Asia/Tokyo", False)]
)
def test_the_zone_of_a_time_without_zone_is_said_and_whether_an_hour_repeats(
    empty_database: str, zone: str, *, repeats: bool
) -> None:
    execute(empty_database, "CREATE TABLE trip (id integer PRIMARY KEY, ended timestamp NOT NULL)")
    found = surveyed(empty_database, f'{KIND}time_zone = "{zone}"\n')
    (text,) = told(found, Problem.TIME_ZONE_READ)
    assert f"read as times in {zone}" in text
    assert ("comes twice" in text) is repeats
