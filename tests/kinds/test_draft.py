"""A drafted kind loads, passes the check, follows what is declared, and says what it leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handlers.cli import run
from shared.errors import Code, Refused
from shared.messages import words
from tests.kinds.drafts import draft_of, drafted, execute, related_of, text_of

SHOP = Path(__file__).parents[2] / "handlers" / "demo" / "shop.sql"


def refused(dsn: str, table: str, **wishes: str) -> Refused:
    with pytest.raises(Refused) as caught:
        draft_of(dsn, table, **wishes)
    return caught.value


def test_an_invoice_takes_its_lines_along(empty_database: str, test_data: Path) -> None:
    execute(empty_database, (test_data / "chinook.sql").read_text())
    kind, text = drafted(empty_database, "public.invoice")
    assert (kind.name, kind.kind.time, kind.kind.key) == ("invoice", "invoice_date", None)
    assert related_of(kind) == ["public.invoice_line"]
    assert "public.customer (customer_id)" in text
    assert 'time_zone = "UTC"' in text


def test_every_table_of_a_real_schema_can_be_drafted_or_says_why_not(
    empty_database: str, test_data: Path
) -> None:
    execute(empty_database, (test_data / "chinook.sql").read_text())
    kind, _ = drafted(empty_database, "public.employee", time="hire_date")
    # To any depth: the customers of the employee, their invoices, and the lines of those.
    assert related_of(kind) == ["public.customer", "public.invoice", "public.invoice_line"]
    assert refused(empty_database, "public.artist").code == Code.TIME_MISSING
    # Its integers are sizes and prices: no time.
    assert refused(empty_database, "public.track").code == Code.TIME_MISSING


def test_the_shop_of_the_demo_is_drafted_as_its_own_kinds_file_says(empty_database: str) -> None:
    execute(empty_database, SHOP.read_text())
    kind, text = drafted(empty_database, 'public."order"', name="orders")
    assert (kind.name, kind.kind.time) == ("orders", "placed_at")
    assert sorted(related_of(kind)) == ["public.order_line", "public.payment"]
    assert "public.customer (customer_id)" in text
    ticket, _ = drafted(empty_database, "public.ticket")
    assert related_of(ticket) == []


def test_several_times_are_listed_with_what_speaks_for_each(empty_database: str) -> None:
    execute(
        empty_database,
        "CREATE TABLE note (id integer PRIMARY KEY, made timestamptz NOT NULL, closed date, n integer)",
        "INSERT INTO note SELECT i, now(), CASE WHEN i % 4 = 0 THEN now() END, 1"
        " FROM generate_series(1, 100) AS i",
        "CREATE INDEX note_made ON note (made, id)",
        "ANALYZE note",
    )
    problem = refused(empty_database, "public.note")
    assert problem.code == Code.TIME_AMBIGUOUS
    assert problem.params["problems"] == [
        {
            "problem": "candidate",
            "column": "made",
            "type": "timestamp with time zone",
            "nulls": "0%",
            "null_share": 0.0,
            "index": "note_made",
        },
        {
            "problem": "candidate",
            "column": "closed",
            "type": "date",
            "nulls": "75%",
            "null_share": 0.75,
            "index": None,
        },
    ]
    told = words(problem.code, problem.params)
    assert (
        "made (timestamp with time zone), null in 0% of the rows, index note_made" in told.happened
    )
    assert "closed (date), null in 75% of the rows\n" in told.happened + "\n"
    assert "--time COLUMN" in told.next_step
    kind, _ = drafted(empty_database, "public.note", time="closed")
    assert kind.kind.time == "closed"


def test_integers_that_count_no_time_are_not_offered_and_few_nulls_are_not_told_as_none(
    empty_database: str,
) -> None:
    execute(
        empty_database,
        "CREATE TABLE part (id integer PRIMARY KEY, made bigint, sold bigint, quantity smallint,"
        " weight integer, never bigint)",
        # The nulls are in no first rows, and half of the times are 0.
        "INSERT INTO part SELECT n, CASE WHEN n < 2990 THEN 1600000000000 + n END,"
        " CASE WHEN n % 2 = 0 THEN 0 ELSE 1600000000 END, n % 100, n, NULL"
        " FROM generate_series(1, 3000) AS n",
    )
    problem = refused(empty_database, "public.part")
    found = problem.params["problems"]
    assert isinstance(found, list)
    assert [(each["column"], each["nulls"]) for each in found] == [
        ("made", "under 1%"),
        ("sold", "under 1%"),
        ("never", "100%"),
    ]
    assert drafted(empty_database, "public.part", time="sold")[0].kind.time_unit == "s"


@pytest.mark.parametrize(
    ("value", "unit"),
    [("1590000000", "s"), ("1590000000000", "ms"), ("1590000000000000", "us")],
)
def test_the_unit_of_an_integer_time_is_a_guess_that_says_so(
    empty_database: str, value: str, unit: str
) -> None:
    execute(
        empty_database,
        "CREATE TABLE note (id integer PRIMARY KEY, at bigint)",
        f"INSERT INTO note VALUES (1, {value}), (2, NULL)",
    )
    kind, text = drafted(empty_database, "public.note", time="at")
    assert kind.kind.time_unit == unit
    assert "A guess" in text
    stated, text = drafted(empty_database, "public.note", time="at", time_unit=unit)
    assert stated.kind == kind.kind
    assert "A guess" not in text


@pytest.mark.parametrize("value", ["17", "NULL", "-1590000000", "9000000000000000000"])
def test_values_that_show_no_unit_are_asked_about(empty_database: str, value: str) -> None:
    execute(
        empty_database,
        "CREATE TABLE note (id integer PRIMARY KEY, at bigint)",
        f"INSERT INTO note VALUES (1, {value})",
    )
    assert refused(empty_database, "public.note", time="at").code == Code.TIME_UNIT_UNKNOWN


def test_a_key_is_named_only_where_the_primary_one_will_not_do(empty_database: str) -> None:
    execute(
        empty_database,
        "CREATE TABLE plain (id integer PRIMARY KEY, code text NOT NULL UNIQUE, at date)",
        "CREATE TABLE without (a integer NOT NULL, b text NOT NULL, c integer UNIQUE, at date,"
        " UNIQUE (b, a))",
        "CREATE TABLE deferred (id integer PRIMARY KEY DEFERRABLE, code text NOT NULL UNIQUE, at date)",
        "CREATE TABLE keyless (id integer, at date)",
    )
    assert drafted(empty_database, "public.plain")[0].kind.key is None
    assert drafted(empty_database, "public.without")[0].kind.key == ["b", "a"]
    assert drafted(empty_database, "public.deferred")[0].kind.key == ["code"]
    problem = refused(empty_database, "public.keyless")
    assert (problem.code, problem.params["cause"]) == (Code.DRAFT_REFUSED, "KEY_MISSING")
    assert words(problem.code, problem.params).next_step.startswith("Name a unique key")


def test_a_second_path_a_cycle_and_a_self_reference_end_and_are_told(empty_database: str) -> None:
    execute(
        empty_database,
        "CREATE TABLE doc (id integer PRIMARY KEY, at date, newest integer, copy_of integer REFERENCES doc)",
        "CREATE TABLE version (id integer PRIMARY KEY, doc integer NOT NULL REFERENCES doc,"
        " merged_into integer REFERENCES doc, parent integer REFERENCES version)",
        "ALTER TABLE doc ADD CONSTRAINT doc_newest FOREIGN KEY (newest) REFERENCES version DEFERRABLE",
        "CREATE TABLE remark (id integer PRIMARY KEY, version integer REFERENCES version,"
        " doc integer REFERENCES doc)",
    )
    kind, text = drafted(empty_database, "public.doc")
    version, remark = sorted(kind.kind.related, key=lambda each: each.table, reverse=True)
    # Of two keys to the same parent, the one that cannot be null; of two parents, the nearer one.
    assert (version.foreign_key, version.references) == (["doc"], "public.doc")
    assert (remark.foreign_key, remark.references) == (["doc"], "public.doc")
    plain = " ".join(text.replace("#", "").split())
    assert "public.doc refers to itself by doc_copy_of_fkey" in plain
    assert "public.version refers to itself by version_parent_fkey" in plain
    assert "public.version also refers to public.doc by version_merged_into_fkey" in plain
    assert "public.remark also refers to public.version by remark_version_fkey" in plain
    assert "public.doc also refers to public.version by doc_newest" in plain


def test_what_cannot_travel_is_left_out_with_what_hangs_on_it(empty_database: str) -> None:
    execute(
        empty_database,
        "CREATE TYPE pair AS (a integer, b integer)",
        "CREATE TABLE note (id integer PRIMARY KEY, at date, code pair UNIQUE)",
        "CREATE TABLE odd (id integer PRIMARY KEY, code pair REFERENCES note (code))",
        "CREATE TABLE below (odd integer REFERENCES odd)",
        "CREATE TABLE fine (note integer REFERENCES note)",
        "CREATE TABLE family (id integer PRIMARY KEY, note integer REFERENCES note)",
        "CREATE TABLE heir () INHERITS (family)",
    )
    kind, text = drafted(empty_database, "public.note")
    assert related_of(kind) == ["public.fine"]
    plain = " ".join(text.replace("#", "").split())
    assert "Left out: public.odd, which refers to public.note (code)." in plain
    assert "Left out: public.below, which refers to public.odd (odd)." in plain
    assert "Left out: public.family" in plain
    assert "has child tables by inheritance" in plain


def test_names_that_need_quotes_survive_the_kinds_file(empty_database: str) -> None:
    odd = '"Odd ""Schema"" \\ \'x\'"'
    long = "ü" * 31 + "x"
    execute(
        empty_database,
        f"CREATE SCHEMA {odd}",
        f'CREATE TABLE {odd}."select" ("user" integer, "Räum e" text, "when""at\'\\" timestamptz,'
        ' PRIMARY KEY ("Räum e", "user"))',
        f'CREATE TABLE {odd}."{long}" ("{long}" text, "order" integer,'
        f' FOREIGN KEY ("{long}", "order") REFERENCES {odd}."select")',
        f'CREATE TABLE {odd}."z\u200d\u00a0z" ("a\u00a0b" text, b integer,'
        f' FOREIGN KEY ("a\u00a0b", b) REFERENCES {odd}."select", UNIQUE ("a\u00a0b", b))',
    )
    kind, _ = drafted(empty_database, f"{odd}.select")
    assert kind.name == "select"
    assert kind.kind.time == "when\"at'\\"
    assert related_of(kind) == [f'{odd}."z\u200d\u00a0z"', f'{odd}."{long}"']


def test_a_name_that_a_built_in_kind_has_is_not_taken(empty_database: str) -> None:
    execute(
        empty_database,
        "CREATE TABLE events (id integer PRIMARY KEY, at date)",
        'CREATE TABLE "Größe 1!" (id integer PRIMARY KEY, at date)',
        'CREATE TABLE "日本" (id integer PRIMARY KEY, at date)',
    )
    assert draft_of(empty_database, "public.events").name == "public_events"
    assert draft_of(empty_database, 'public."Größe 1!"').name == "gr_e_1"
    assert draft_of(empty_database, 'public."日本"').name == "kind"


def test_a_partition_takes_what_refers_to_its_table(empty_database: str) -> None:
    execute(
        empty_database,
        "CREATE TABLE measure (id integer, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
        "CREATE TABLE measure_20 PARTITION OF measure FOR VALUES FROM ('2020-01-01') TO ('2021-01-01')",
        "CREATE TABLE remark (measure integer, at date, FOREIGN KEY (measure, at) REFERENCES measure)",
        "CREATE TABLE own (measure integer, at date,"
        " FOREIGN KEY (measure, at) REFERENCES measure_20)",
    )
    whole, _ = drafted(empty_database, "public.measure")
    assert related_of(whole) == ["public.own", "public.remark"]
    part, _ = drafted(empty_database, "public.measure_20")
    assert related_of(part) == ["public.own", "public.remark"]


def test_a_table_that_is_not_there_is_answered_with_what_was_meant(empty_database: str) -> None:
    execute(
        empty_database,
        "CREATE SCHEMA app",
        "CREATE TABLE app.invoice (id integer PRIMARY KEY, at date)",
    )
    for text in ("invoice", "public.invoice", "Invoice"):
        problem = refused(empty_database, text)
        assert (problem.code, problem.params["found"]) == (Code.TABLE_UNKNOWN, ["app.invoice"])
        assert "app.invoice" in words(problem.code, problem.params).happened


def test_the_command_prints_what_can_be_saved_as_the_kinds_file(
    empty_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    execute(empty_database, "CREATE TABLE note (id integer PRIMARY KEY, at timestamp)")
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", empty_database)
    monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))
    assert run(["kinds", "draft", "public.note", "--name", "notes"]) == 0
    printed = capsys.readouterr().out
    assert run(["kinds", "draft", "public.note", "--name", "notes", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (
        document["text"]
        == printed
        == text_of(draft_of(empty_database, "public.note", name="notes"))
    )
    file = tmp_path / "kinds.toml"
    file.write_text(printed)
    # The check wants a control database too, for the built-in kinds; any will do.
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", empty_database)
    monkeypatch.setenv("TALLYSTICK_KINDS_FILE", str(file))
    assert run(["kinds", "check", "notes"]) == 0


def test_without_a_database_the_command_says_which_setting_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))
    assert run(["kinds", "draft", "public.note", "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "SOURCE_MISSING"
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", "host=/nowhere dbname=x")
    assert run(["kinds", "draft", "public.note", "--json"]) == 1
    error = json.loads(capsys.readouterr().err)["error"]
    assert (error["code"], error["params"]["cause"]) == ("SOURCE_FAILED", "unreachable")
    assert "TALLYSTICK_SOURCE_URL" in error["next"]
