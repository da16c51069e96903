"""Kinds as their file says them: every problem named with its place, one definition per meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.archive import kinds
from shared.archive.kinds import builtin, load, parse, seconds_of
from shared.catalog.names import TableName, parse_table
from shared.errors import Code, Refused

GOOD = 'root = "public.note"\ntime = "at"\n'


def problems(text: str) -> set[tuple[str, str]]:
    with pytest.raises(Refused) as refused:
        parse(text, "kinds.toml", "application")
    assert refused.value.code is Code.KINDS_INVALID
    listed = refused.value.params["problems"]
    assert isinstance(listed, list)
    return {(each["place"], each["problem"]) for each in listed}


WRONG = {
    "no root": ('time = "at"', ("kinds.it.root", "missing")),
    "no time": ('root = "public.note"', ("kinds.it.time", "missing")),
    "a bare name": ('root = "note"\ntime = "at"', ("kinds.it.root", "table_name")),
    "a name of three parts": (
        'root = "db.public.note"\ntime = "at"',
        ("kinds.it.root", "table_name"),
    ),
    "an unknown member": (GOOD + "roots = 1", ("kinds.it.roots", "extra_forbidden")),
    "a table twice": (GOOD + 'related = ["public.note"]', ("kinds.it", "table_twice")),
    "a table twice, once quoted": (
        GOOD + "related = ['public.\"note\"']",
        ("kinds.it", "table_twice"),
    ),
    "an unknown unit": (GOOD + 'time_unit = "min"', ("kinds.it.time_unit", "literal_error")),
    "a duration that is none": (GOOD + 'after = "a year"', ("kinds.it.after", "duration")),
    "an empty key": (GOOD + "key = []", ("kinds.it.key", "too_short")),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_problem_is_named_with_its_place(what: str) -> None:
    text, expected = WRONG[what]
    assert problems(f"[kinds.it]\n{text}") == {expected}


@pytest.mark.parametrize(
    "clock",
    ["at < now()", "at < CURRENT_DATE", "at<clock_timestamp ()", "random() < 0.5", "localtime > t"],
)
def test_a_condition_may_not_read_the_clock(clock: str) -> None:
    assert problems(f'[kinds.it]\n{GOOD}where = "{clock}"') == {
        ("kinds.it.where", "where_reads_clock")
    }


def test_every_problem_is_listed_at_once() -> None:
    found = problems(f'surplus = 1\n[kinds.Bad-Name]\n{GOOD}[kinds.two]\ntime = "at"\nmore = 1')
    assert found == {
        ("surplus", "unknown_member"),
        ("kinds.Bad-Name", "name"),
        ("kinds.two.root", "missing"),
        ("kinds.two.more", "extra_forbidden"),
    }


def test_no_kind_of_a_deployment_takes_the_name_of_a_built_in_one(tmp_path: Path) -> None:
    file = tmp_path / "kinds.toml"
    file.write_text(f"[kinds.events]\n{GOOD}")
    with pytest.raises(Refused):
        load(file)
    file.write_bytes(b"\xff")
    with pytest.raises(Refused):
        load(file)
    with pytest.raises(Refused):
        load(tmp_path / "absent.toml")


def test_the_seven_built_in_kinds_are_of_the_control_database() -> None:
    assert {each.name for each in builtin()} == {
        *("tasks", "flows", "events", "audit", "deliveries", "inbox", "idempotency")
    }
    assert {each.source for each in builtin()} == {"control"}
    assert load(None) == {each.name: each for each in builtin()}


def test_short_and_long_form_are_one_definition() -> None:
    short, long = (
        parse(f"[kinds.it]\n{GOOD}related = [{related}]", "f", "application")[0].definition
        for related in ('"public.line"', '{ table = "public.line" }')
    )
    assert short == long
    assert short["source"] == "application"


def test_what_is_a_proposal_for_plans_does_not_change_the_definition() -> None:
    plain, more = (
        parse(f"[kinds.it]\n{GOOD}{text}", "f", "application")[0].definition
        for text in ("", 'after = "365d"\nevery = "24h"\nbatch = 5')
    )
    assert plain == more


def test_a_kind_belongs_to_one_namespace_unless_its_rows_name_theirs() -> None:
    (plain,) = parse(f"[kinds.it]\n{GOOD}", "f", "application")
    (own,) = parse(f'[kinds.it]\n{GOOD}belongs_to = "north"', "f", "application")
    (named,) = parse(f'[kinds.it]\n{GOOD}namespace = "owner"', "f", "application")
    assert [each.only_namespace for each in (plain, own, named)] == ["default", "north", None]


def test_durations_have_one_unit() -> None:
    assert [seconds_of(text) for text in ("10s", "30m", "24h", "365d")] == [
        *(10, 1800, 86_400, 31_536_000)
    ]
    for text in ("10", "1d12h", "-1d", "1.5h", "d", ""):
        with pytest.raises(ValueError, match="duration"):
            seconds_of(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("public.note", TableName("public", "note")),
        ('"Odd ""one"""."a.b"', TableName('Odd "one"', "a.b")),
        ("_x.a$1", TableName("_x", "a$1")),
        ("Public.note", None),
        ("note", None),
        ('public."a\nb"', None),
        ('public.""', None),
        ("public.note ", None),
        ('public."a"b"', None),
    ],
)
def test_names_of_tables_are_read_and_written_back(text: str, name: TableName | None) -> None:
    assert parse_table(text) == name
    if name is not None:
        assert parse_table(str(name)) == name


def test_a_conditions_text_is_kept_as_it_was_written() -> None:
    text = "a = 'now' -- not the clock\n  AND b"
    (kind,) = kinds.parse(f"[kinds.it]\n{GOOD}where = '''{text}'''", "f", "application")
    assert kind.definition["where"] == text
