"""Kinds as their file says them: every problem named with its place, one definition per meaning."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from shared.archive import kinds
from shared.archive.kinds import builtin, load, parse
from shared.archive.retention import seconds_of
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


NOT_TO_BE_APPLIED = {
    "after that is not whole days": ('after = "36h"', ("it.after", "after_range")),
    "after of more than a century": ('after = "36501d"', ("it.after", "after_range")),
    "every below an hour": ('after = "1d"\nevery = "59m"', ("it.every", "every_range")),
    "every above a month": ('after = "1d"\nevery = "31d"', ("it.every", "every_range")),
    "a batch of none": ("batch = 0", ("it.batch", "batch_range")),
    "a batch too large": ("batch = 100001", ("it.batch", "batch_range")),
    "a size without a unit": ('max_bytes = "1048576"', ("it.max_bytes", "unit_of_size")),
    "a budget too small": ('max_bytes = "1023KiB"', ("it.max_bytes", "size_range")),
    "a budget too large": ('max_bytes = "2TiB"', ("it.max_bytes", "size_range")),
    "a scope that is none": ('scope = "some"', ("it.scope", "literal_error")),
    "how often without how old": ('every = "24h"', ("it", "every_alone")),
    "a switch that is none": ('enabled = "no"', ("it.enabled", "bool_type")),
}


@pytest.mark.parametrize("what", NOT_TO_BE_APPLIED)
def test_what_no_policy_or_plan_could_be_is_refused_when_the_file_is_read(what: str) -> None:
    text, (place, problem) = NOT_TO_BE_APPLIED[what]
    assert problems(f"[kinds.it]\n{GOOD}{text}") == {(f"kinds.{place}", problem)}


def test_every_member_that_apply_reads_is_understood_and_is_no_part_of_the_definition() -> None:
    text = (
        'after = "365d"\nevery = "12h"\nbatch = 7\nmax_bytes = "256MiB"\nscope = "all"\n'
        "enabled = false"
    )
    plain, full = (parse(f"[kinds.it]\n{GOOD}{more}", "f", "application")[0] for more in ("", text))
    assert plain.definition == full.definition
    kind = full.kind
    assert (kind.after_days, kind.interval_seconds, kind.batch, kind.budget) == (
        *(365, 43200),
        *(7, 256 * 2**20),
    )
    assert (kind.scope, kind.enabled) == ("all", False)


def of_file(text: str) -> kinds.KindsFile:
    return kinds.file_of(text, Path("kinds.toml"))


def file_problems(text: str) -> set[tuple[str, str]]:
    with pytest.raises(Refused) as refused:
        of_file(text)
    listed = refused.value.params["problems"]
    assert isinstance(listed, list)
    return {(each["place"], each["problem"]) for each in listed}


def test_the_tables_of_scan_and_history_are_read() -> None:
    found = of_file(
        '[scan]\nevery = "168h"\n[history]\nafter = "90d"\nevery = "24h"\n'
        '[history.events]\nafter = "30d"\nenabled = false'
    )
    assert found.scan is not None
    assert found.scan.interval_seconds == 604_800
    assert found.prune is not None
    assert (found.prune.interval_seconds, found.prune.batch, found.prune.enabled) == (
        *(86400, None),
        True,
    )
    assert found.named == {"events"}
    assert set(found.history_of) == {each.name for each in builtin()}
    events, audit = found.history_of["events"], found.history_of["audit"]
    assert (events.after_days, events.interval_seconds, events.enabled) == (30, 86400, False)
    assert (audit.after_days, audit.interval_seconds, audit.enabled) == (90, 86400, True)
    plain = of_file("")
    assert (plain.scan, plain.prune, plain.history_of) == (None, None, {})


def test_archived_history_is_removed_as_often_as_it_is_archived_unless_the_file_says_otherwise() -> (
    None
):
    text = '[history]\nafter = "90d"\nevery = "24h"\nbatch = 7\n[history.prune]\n'
    found = [of_file(text + more).prune for more in ('every = "48h"', "enabled = false\nbatch = 9")]
    assert [each and (each.interval_seconds, each.batch, each.enabled) for each in found] == [
        (172800, None, True),
        (86400, 9, False),
    ]
    assert of_file(text).named == frozenset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("scan = 1", {("scan", "model_type")}),
        ("[scan]", {("scan.every", "missing")}),
        ('[scan]\nevery = "1h"\nafter = "1d"', {("scan.after", "extra_forbidden")}),
        ("history = 1", {("history", "model_type")}),
        ('[history]\nafter = "90d"', {("history.every", "missing")}),
        (
            '[history]\nafter = "90d"\nevery = "1h"\n[history.invoices]\nafter = "1d"',
            {("history.invoices", "extra_forbidden")},
        ),
        (
            '[history]\nafter = "90d"\nevery = "1h"\n[history.audit]\nafter = "1h"',
            {("history.audit.after", "after_range")},
        ),
        (
            '[history]\nafter = "90d"\nevery = "1h"\n[history.prune]\nafter = "1d"',
            {("history.prune.after", "extra_forbidden")},
        ),
        (f"[kinds.events]\n{GOOD}", {("kinds.events", "builtin_name")}),
        ("[others]", {("others", "unknown_member")}),
    ],
)
def test_a_problem_of_the_whole_file_is_named_with_its_place(
    text: str, expected: set[tuple[str, str]]
) -> None:
    assert file_problems(text) == expected


def test_the_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    file = tmp_path / "kinds.toml"
    file.write_bytes(b'[scan]\r\nevery = "1h"\r\n')
    assert kinds.read(file).sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
