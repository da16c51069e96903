"""A loop of ticks prints each tick when it has ended and keeps none, so memory stays flat."""

from __future__ import annotations

import json
import weakref

import pytest

from handlers import shape
from handlers.cli.answer import json_items, json_text
from shared import loop
from shared.tick import Report
from tests.golden.scenario import Shell

ITEMS = [{"text": 'a\nb "\u001b', "list": [1, {"x": []}]}, {}, [None, True]]


class Shape(dict[str, object]):
    """A dictionary that can be referred to without keeping it."""


def test_items_one_by_one_print_what_the_whole_document_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = ""
    with json_items("ticks") as add:
        for item in ITEMS:
            add(item)
            new = capsys.readouterr().out
            assert new
            shown += new
    shown += capsys.readouterr().out
    assert shown == json_text({"ticks": ITEMS}, indent=2) + "\n"


def broken_off(*items: int) -> None:
    with json_items("ticks") as add:
        for item in items:
            add(item)
        raise KeyError


def test_what_was_printed_before_an_error_is_one_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(KeyError):
        broken_off(1)
    assert json.loads(capsys.readouterr().out) == {"ticks": [1]}
    with pytest.raises(KeyError):
        broken_off()
    assert capsys.readouterr().out == ""


def test_a_loop_of_ticks_keeps_no_report(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[weakref.ref[Shape]] = []
    printed: list[str] = []
    spelled, ticked = shape.report, loop.watched

    def watched(*args: object) -> Report:
        # What the tick before left behind, when the next one begins.
        assert all(item() is None for item in made)
        printed.append(capsys.readouterr().out)
        report: Report = ticked(*args)  # type: ignore[arg-type]
        return report

    def report(of: Report) -> Shape:
        item = Shape(spelled(of))
        made.append(weakref.ref(item))
        return item

    monkeypatch.setattr(loop, "watched", watched)
    monkeypatch.setattr(shape, "report", report)
    answer = shell("tick", "--until-idle", "--json")
    assert answer.code == 0
    # Each tick was printed before the next one began.
    assert all(printed[1:])
    whole = json.loads("".join(printed) + answer.out)
    assert len(whole["ticks"]) == len(printed) == len(made) - 1 > 2
