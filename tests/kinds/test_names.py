"""A name that no archive can hold stops nothing but its own table, and the message shows which it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.archive import kinds as kinds_file
from shared.errors import Code, Refused
from shared.messages import words
from tests.golden.scenario import Shell
from tests.kinds.drafts import accepted, draft_of, execute, findings_of, text_of

STAY = "CREATE TABLE stay (id integer PRIMARY KEY, left_on date)"
ODD = 'CREATE TABLE "bill\n2020\x01" (stay integer REFERENCES stay)'
BELOW = 'ALTER TABLE "bill\n2020\x01" ADD id integer PRIMARY KEY'
DEEPER = 'CREATE TABLE note (bill integer REFERENCES "bill\n2020\x01")'


@pytest.fixture
def odd(empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of a source in which a table with a line feed in its name refers to a good one."""
    execute(empty_database, STAY, ODD, BELOW, DEEPER, "INSERT INTO stay VALUES (1, '2020-01-01')")
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", empty_database)
    monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))
    return empty_database


def test_a_table_with_a_line_feed_in_its_name_is_left_out_by_name(odd: str) -> None:
    draft = draft_of(odd, "public.stay")
    assert draft.kind.related == []
    text = text_of(draft)
    accepted(odd, text)
    plain = " ".join(text.replace("#", "").split())
    assert 'control characters: table public."bill\\n2020\\x01".' in plain
    # What hangs on it is left out with it.
    assert "Left out: public.note" in plain


@pytest.mark.parametrize(
    "command",
    ["kinds draft", "preview", "archive export"],
)
def test_the_good_table_can_be_worked_with(
    odd: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    options = ["--until", "2021-01-01", "--directory", str(tmp_path / "out")]
    more = options if command == "archive export" else []
    answered = Shell(capsys)(*command.split(), "public.stay", *more)
    assert answered.code == 0, answered.err
    told = answered.out + answered.err
    assert ("bill\\n2020\\x01" in told) if command != "preview" else ("bill 2020?" in told)


def test_the_table_itself_is_refused_by_its_name(
    odd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answered = Shell(capsys)("kinds", "draft", 'public."bill\n2020\x01"', "--json")
    assert answered.code == 2
    error = json.loads(answered.err)["error"]
    assert (error["code"], error["params"]["cause"]) == ("DRAFT_REFUSED", "NAME_UNPRINTABLE")
    assert "bill\\n2020\\x01" in error["message"]


def test_a_column_with_a_control_character_is_named(empty_database: str) -> None:
    execute(empty_database, 'CREATE TABLE stay (id integer PRIMARY KEY, at date, "a\tb" integer)')
    (kind,) = kinds_file.parse(
        '[kinds.it]\nroot = "public.stay"\ntime = "at"\n', "kinds.toml", "application"
    )
    (found,) = [each for each in findings_of(empty_database, kind) if each.refuses]
    assert words(str(found.problem), found.params).happened.endswith(
        "column a\\tb of table public.stay."
    )


@pytest.mark.parametrize(
    ("written", "problem", "shown"),
    [
        ('"public.ünï"', "table_name", "write 'public.\"ünï\"'"),
        ('"public.Order"', "table_name", "write 'public.\"Order\"'"),
        ('"Mixed.it\'s"', "table_name", 'write "\\"Mixed\\".\\"it\'s\\""'),
        ('"public.a.b"', "table_name", "write 'public.\"a.b\"'"),
        ('"note"', "table_name", "note is not written so"),
        ("'public.\"a'", "table_name", 'write "public.a"'),
        ('"public.\\"x\\ny\\""', "table_control", 'public."x\\ny" holds a control character'),
    ],
)
def test_a_name_that_is_not_understood_is_shown_as_the_file_should_have_it(
    written: str, problem: str, shown: str
) -> None:
    text = f'[kinds.it]\nroot = {written}\ntime = "at"\n'
    with pytest.raises(Refused) as caught:
        kinds_file.parse(text, "kinds.toml", "application")
    problems = caught.value.params["problems"]
    assert isinstance(problems, list)
    (found,) = problems
    assert found["problem"] == problem
    assert shown in words(Code.KINDS_INVALID, caught.value.params).happened
    if "written" in found:
        kinds_file.parse(text.replace(written, found["written"]), "kinds.toml", "application")


def test_a_name_on_the_command_line_is_shown_as_the_shell_wants_it(empty_database: str) -> None:
    execute(empty_database, 'CREATE TABLE "ünï" (id integer PRIMARY KEY, at date)')
    with pytest.raises(Refused) as caught:
        draft_of(empty_database, "public.ünï")
    told = words(caught.value.code, caught.value.params)
    assert "'public.\"ünï\"'" in told.next_step
