"""A condition that reads the clock is refused whatever its spelling; one that does not is accepted."""

from __future__ import annotations

import pytest

from shared.archive import kinds as kinds_file
from shared.archive.examine import Problem
from tests.kinds.drafts import findings_of
from tests.postgres.reading import execute
from tests.worlds import one

TABLE = """
CREATE TABLE voucher (
    id integer PRIMARY KEY, at timestamptz NOT NULL, expires timestamptz, day date, stamp timestamp,
    code text, n numeric, tags text[], hour time);
CREATE INDEX ON voucher (at, id);
CREATE FUNCTION lately() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT now()';
CREATE FUNCTION doubled(integer) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
CREATE FUNCTION since(timestamptz, integer) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT now() > $1';
CREATE OPERATOR public.@@> (LEFTARG = timestamptz, RIGHTARG = integer, FUNCTION = since);
CREATE VIEW recent AS SELECT id FROM voucher WHERE at > now() - interval '1 day';
"""
READ = (
    "expires < 'now'::timestamptz",
    "at < 'yesterday'",
    '"now"() > at',
    "now/**/() > at",
    r"""at < U&"\006e\006f\0077"()""",
    "age(at) > interval '3 years'",
    "at < timestamptz 'today'",
    "day < 'tomorrow'::date",
    "stamp < 'now'",
    "at < 'now'::timestamptz(0)",
    "at < ANY ('{now,2020-01-01}'::timestamptz[])",
    "at <@ tstzrange('2020-01-01', 'now')",
    "at <@ '[2020-01-01,today)'::tstzrange",
    "extract(year FROM 'now'::timestamp) > 2020",
    "'now'::timestamp > '2020-01-01'::timestamp",
    "code::timestamptz > at",
    "at < CAST(code AS date)",
    "hour < 'now'",
    "at < public.lately()",
    "at OPERATOR(public.@@>) 3",
    "id IN (SELECT id FROM public.recent)",
    "pg_catalog.to_char(statement_timestamp() , 'YYYY') = '2020'".replace(
        "statement_", '"statement_'
    ).replace("stamp()", 'stamp"()'),
    "id > pg_backend_pid()",
    "code = current_setting('application_name')",
    "code = current_user",
    "code::tstzmultirange @> at",
    "at <@ ANY (ARRAY[code]::tstzrange[])",
)
# Since 17.
READ_AS_JSON = (
    "json_value(code::jsonb, '$.at' RETURNING timestamptz) < at",
    (
        "EXISTS (SELECT FROM json_table(code::jsonb, '$' COLUMNS (t timestamptz PATH '$.at')) AS j"
        " WHERE j.t < at)"
    ),
)
GOOD = (
    "expires < '2024-01-01'",
    "expires < '2024-01-01 00:00:00+02'::timestamptz",
    "day < '2024-01-01'::date AND at > stamp",
    "at > day",
    "at + interval '1 day' < expires",
    "date_trunc('month', at) = '2024-01-01'",
    "extract(year FROM at) < 2024 AND to_char(at, 'DY') <> 'SUN'",
    "(at AT TIME ZONE 'Europe/Berlin')::date < '2024-01-01'",
    "code LIKE 'now%' OR code = 'today' OR code ~ 'yesterday'",
    "n::text = '1' OR n > 3.5 OR code = ANY (tags)",
    "public.doubled(id) > 4",
    "at <@ '[2020-01-01,2021-01-01)'::tstzrange",
    "at < 'infinity' AND at > 'epoch'",
    "id IN (SELECT id FROM public.voucher WHERE n IS NULL)",
    "concat(code, n) <> 'x'",
)


@pytest.fixture
def vouchers(empty_database: str) -> str:
    execute(empty_database, TABLE)
    return empty_database


def problems(dsn: str, *wheres: str) -> dict[str, list[Problem]]:
    found = {}
    for where in wheres:
        text = f"[kinds.it]\nroot = 'public.voucher'\ntime = 'at'\nwhere = '''{where}'''"
        (kind,) = kinds_file.parse(text, "kinds.toml", "application")
        found[where] = [each.problem for each in findings_of(dsn, kind) if each.refuses]
    return found


def test_a_condition_that_reads_the_clock_is_refused_whatever_its_spelling(vouchers: str) -> None:
    found = problems(vouchers, *READ)
    assert found == {where: [Problem.WHERE_READS_CLOCK] for where in READ}


def test_a_condition_on_fixed_times_and_pinned_settings_is_accepted(vouchers: str) -> None:
    assert problems(vouchers, *GOOD) == {where: [] for where in GOOD}


def test_a_fixed_time_is_accepted_when_it_is_close_to_now(vouchers: str) -> None:
    for distance in ("-20 seconds", "20 seconds", "12 hours", "14 hours"):
        instant = one(vouchers, f"SELECT (now() + interval '{distance}')::text")
        assert problems(vouchers, f"at < '{instant}'") == {f"at < '{instant}'": []}


def test_a_text_that_a_function_of_json_reads_as_a_time_may_say_now(vouchers: str) -> None:
    if one(vouchers, "SELECT current_setting('server_version_num')::int") < 170000:
        pytest.skip("a later release of Postgres has these functions")
    found = problems(vouchers, *READ_AS_JSON)
    assert found == {where: [Problem.WHERE_READS_CLOCK] for where in READ_AS_JSON}
