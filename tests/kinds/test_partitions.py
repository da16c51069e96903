"""No row is archived twice or left behind because its table is a partition of another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from handlers.cli import run
from shared.archive import kinds as kinds_file
from shared.archive.examine import Finding, Problem
from shared.messages import words
from tests.kinds.drafts import draft_of, drafted, execute, findings_of, related_of
from tests.worlds import one

STAY = (
    "CREATE TABLE stay (id integer PRIMARY KEY, code text NOT NULL UNIQUE, left_on date NOT NULL)"
)
# Nested, so that a partition's ancestor is not its parent.
BILL = (
    STAY,
    "CREATE TABLE bill (id integer, stay integer, due date) PARTITION BY RANGE (due)",
    (
        "CREATE TABLE bill_20 PARTITION OF bill FOR VALUES FROM ('2020-01-01') TO ('2021-01-01')"
        " PARTITION BY RANGE (due)"
    ),
    "CREATE TABLE bill_20_h1 PARTITION OF bill_20 FOR VALUES FROM ('2020-01-01') TO ('2020-07-01')",
    "CREATE TABLE bill_20_h2 PARTITION OF bill_20 FOR VALUES FROM ('2020-07-01') TO ('2021-01-01')",
    "CREATE TABLE bill_21 PARTITION OF bill FOR VALUES FROM ('2021-01-01') TO ('2022-01-01')",
)
KIND = '[kinds.stay]\nroot = "public.stay"\ntime = "left_on"\n'


def related(*tables: str) -> str:
    forms = ", ".join(
        f'{{ table = "public.{table}", foreign_key = ["stay"], references = "public.stay" }}'
        for table in tables
    )
    return f"{KIND}related = [{forms}]\n"


def found(database: str, text: str) -> tuple[Finding, ...]:
    (kind,) = kinds_file.parse(text, "kinds.toml", "application")
    return findings_of(database, kind)


def named(findings: tuple[Finding, ...], problem: Problem) -> list[dict[str, object]]:
    return [each.params for each in findings if each.problem is problem]


def test_without_the_rule_rows_of_a_partition_come_twice(
    empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(
        empty_database,
        *BILL,
        "INSERT INTO stay VALUES (1, 'a', '2020-01-01')",
        "INSERT INTO bill VALUES (1, 1, '2020-02-01')",
    )
    monkeypatch.setattr("shared.archive.examine.overlaps", lambda _: [])
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", empty_database)
    kinds = tmp_path / "kinds.toml"
    kinds.write_text(related("bill", "bill_20_h1"))
    place = tmp_path / "stays"
    options = ["--kind-file", str(kinds), "--until", "2021-01-01", "--directory", str(place)]
    assert run(["archive", "export", "stay", *options]) == 0
    target = ["--to", empty_database, "--create-tables", "--to-schema", "back"]
    execute(empty_database, "CREATE SCHEMA back")
    assert run(["archive", "restore", str(place), *target]) == 0
    assert one(empty_database, "SELECT count(*) FROM back.bill") == 1
    assert one(empty_database, "SELECT count(*) FROM back.bill_20_h1") == 1


@pytest.mark.parametrize("partition", ["bill_20", "bill_20_h1", "bill_21"])
def test_a_partition_beside_its_table_is_refused_at_any_depth(
    empty_database: str, partition: str
) -> None:
    execute(empty_database, *BILL)
    findings = found(empty_database, related("bill", partition))
    params = {"table": f"public.{partition}", "ancestor": "public.bill"}
    assert named(findings, Problem.ROWS_INCLUDED) == [params]
    assert any(each.refuses for each in findings)
    told = words("ROWS_INCLUDED", params)
    assert f"Leave public.{partition} out" in told.next_step


def test_a_root_that_is_a_partition_of_a_related_table_is_refused(empty_database: str) -> None:
    execute(
        empty_database,
        "CREATE TABLE log (id integer, at date, before integer, PRIMARY KEY (id, at))"
        " PARTITION BY RANGE (at)",
        "CREATE TABLE log_20 PARTITION OF log FOR VALUES FROM ('2020-01-01') TO ('2021-01-01')",
    )
    text = (
        '[kinds.log]\nroot = "public.log_20"\ntime = "at"\n'
        'related = [{ table = "public.log", foreign_key = ["before", "at"] }]\n'
    )
    (params,) = named(found(empty_database, text), Problem.ROWS_INCLUDED)
    assert params == {"table": "public.log_20", "ancestor": "public.log"}


def test_a_table_beside_one_that_it_inherits_from_is_refused_for_that_too(
    empty_database: str,
) -> None:
    execute(
        empty_database,
        STAY,
        "CREATE TABLE bill (id integer, stay integer REFERENCES stay)",
        "CREATE TABLE paid (FOREIGN KEY (stay) REFERENCES stay) INHERITS (bill)",
    )
    findings = found(empty_database, related("bill", "paid"))
    assert named(findings, Problem.ROWS_INCLUDED) == [
        {"table": "public.paid", "ancestor": "public.bill"}
    ]
    assert not [
        each
        for each in found(empty_database, related("paid"))
        if each.problem is Problem.ROWS_INCLUDED
    ]


def test_a_partition_with_a_key_of_its_own_is_no_matter_where_its_table_travels(
    empty_database: str,
) -> None:
    execute(
        empty_database,
        *BILL,
        "ALTER TABLE bill_20_h1 ADD CONSTRAINT own FOREIGN KEY (stay) REFERENCES stay",
        "ALTER TABLE bill_21 ADD CONSTRAINT same FOREIGN KEY (stay) REFERENCES stay",
    )
    findings = found(empty_database, related("bill"))
    assert {each.problem for each in findings} == {
        Problem.NO_INDEX_FOR_ORDER,
        Problem.NO_INDEX_FOR_JOIN,
    }


def test_partitions_that_refer_while_their_table_stays_are_named_once_with_what_to_write(
    empty_database: str,
) -> None:
    execute(
        empty_database,
        *BILL,
        "ALTER TABLE bill_20_h1 ADD CONSTRAINT own FOREIGN KEY (stay) REFERENCES stay",
        "ALTER TABLE bill_21 ADD CONSTRAINT same FOREIGN KEY (stay) REFERENCES stay",
    )
    (params,) = named(found(empty_database, KIND), Problem.PARTITIONS_NOT_FOLLOWED)
    assert params["child"] == "public.bill"
    assert params["parts"] == ["public.bill_20_h1", "public.bill_21"]
    assert not named(found(empty_database, KIND), Problem.NOT_FOLLOWED)
    # What it says to write is right as it stands.
    following = found(empty_database, f"{KIND}related = [{params['related']}]\n")
    assert not [each for each in following if each.refuses]
    assert not named(following, Problem.PARTITIONS_NOT_FOLLOWED)


def test_one_partition_by_itself_is_allowed_and_said_to_be_alone(empty_database: str) -> None:
    execute(empty_database, *BILL)
    findings = found(empty_database, related("bill_20_h1", "bill_21"))
    assert not [each for each in findings if each.refuses]
    alone = named(findings, Problem.PARTITION_ALONE)
    assert [(each["table"], each["whole"]) for each in alone] == [
        ("public.bill_20_h1", "public.bill"),
        ("public.bill_21", "public.bill"),
    ]


def test_a_draft_takes_the_whole_table_where_only_some_partitions_declare_the_key(
    empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(
        empty_database,
        *BILL,
        "ALTER TABLE bill_20 ADD CONSTRAINT own FOREIGN KEY (stay) REFERENCES stay",
        "INSERT INTO stay SELECT n, 'c' || n, '2020-01-01' FROM generate_series(1, 20) AS n",
        "INSERT INTO bill SELECT n, n % 20 + 1, '2020-01-05'::date + n * 7"
        " FROM generate_series(0, 99) AS n",
    )
    kind, text = drafted(empty_database, "public.stay")
    (payment,) = kind.kind.related
    assert (payment.table, payment.foreign_key, payment.references) == (
        "public.bill",
        ["stay"],
        "public.stay",
    )
    plain = " ".join(text.replace("#", "").split())
    assert "Partitions that do not declare it: 1 (public.bill_21)." in plain
    # A partition made after the draft travels too.
    execute(
        empty_database,
        "CREATE TABLE bill_22 PARTITION OF bill FOR VALUES FROM ('2022-01-01') TO ('2023-01-01')",
        "INSERT INTO bill VALUES (100, 1, '2022-05-01')",
    )
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", empty_database)
    place = tmp_path / "stays"
    options = ["--until", "2021-01-01", "--directory", str(place)]
    assert run(["archive", "export", "public.stay", *options]) == 0
    execute(empty_database, "DROP TABLE bill, stay")
    into = ["archive", "restore", str(place), "--to", empty_database, "--create-tables"]
    assert run(into) == 0
    assert one(empty_database, "SELECT count(*) FROM bill") == 101
    assert one(empty_database, "SELECT count(DISTINCT id) FROM bill") == 101


def test_partitions_refer_to_what_they_declare_and_not_to_the_primary_key(
    empty_database: str,
) -> None:
    execute(
        empty_database,
        STAY,
        "CREATE TABLE bill (id integer, stay text) PARTITION BY LIST (id)",
        "CREATE TABLE bill_1 PARTITION OF bill FOR VALUES IN (1)",
        "CREATE TABLE bill_2 PARTITION OF bill FOR VALUES IN (2)",
        "ALTER TABLE bill_1 ADD FOREIGN KEY (stay) REFERENCES stay (code)",
    )
    kind, _ = drafted(empty_database, "public.stay")
    assert related_of(kind) == ["public.bill"]
    # By the primary key the server could not join them: text and integer.
    assert not [each for each in findings_of(empty_database, kind) if each.refuses]


def test_partitions_of_what_travels_already_are_not_drafted_beside_it(empty_database: str) -> None:
    execute(
        empty_database,
        *BILL,
        "ALTER TABLE bill ADD FOREIGN KEY (stay) REFERENCES stay",
        "CREATE TABLE note (id integer, bill integer)",
        "ALTER TABLE bill_21 ADD UNIQUE (id)",
        "ALTER TABLE bill_21 ADD FOREIGN KEY (id) REFERENCES stay",
        "ALTER TABLE note ADD FOREIGN KEY (bill) REFERENCES bill_21 (id)",
    )
    draft = draft_of(empty_database, "public.stay")
    assert [each.table for each in draft.kind.related] == ["public.bill"]
    # A note belongs to a row of one partition, whose key does not hold for the whole table.
    (left_out,) = draft.left_out
    assert (str(left_out[0].child), left_out[1].problem) == ("public.note", "PARENT_NOT_UNIQUE")
    second = [each.params for each in draft.findings if each.problem is Problem.SECOND_PATH]
    assert [each["child"] for each in second] == ["public.bill_21"]
