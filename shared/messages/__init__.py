"""Words for people, made from a code and its parameters out of one catalogue per language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.messages.catalogue import Entry, entry
from shared.messages.template import fill, names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# More problems than this are counted instead of told.
PROBLEMS_TOLD = 20


@dataclass(frozen=True)
class Words:
    """What happened, to what; what to do next; and the one command that does it, where one does."""

    happened: str
    next_step: str
    command: str = ""


def words(code: str, params: Mapping[str, object], language: str = "en") -> Words:
    """Return the words for a code.

    A ``cause`` among the parameters refines them; a list of ``problems`` is told one to a line. A
    parameter that is not there leaves out the part of a sentence that names it. A code without words
    is shown as it is. ``then`` says what becomes of it, which only who asks can know: ``retried``,
    ``resumed`` or ``failed`` for a job, ``command`` for one that nothing runs again.
    Raises ``LookupError`` for a language without a catalogue.
    """
    found = _found(str(code), params.get("cause"), language)
    params = {**params, "again": _again(params, language)}
    happened = fill(found.happened, params)
    problems = params.get("problems")
    if isinstance(problems, list | tuple):
        happened = "\n".join([happened, *_problems(str(code), problems, language)])
    return Words(happened, fill(found.next_step, params), _command(found.command, params))


def _found(code: str, cause: object, language: str) -> Entry:
    general = entry(language, code) or Entry(code, "")
    if not isinstance(cause, str):
        return general
    if refined := entry(language, f"{code}/{cause}"):
        return refined
    # The cause is a code of its own: what is wrong with a kind, or why a chain is broken.
    if reason := entry(language, cause):
        return Entry(f"{general.happened} {reason.happened}", reason.next_step or general.next_step)
    return general


def _again(params: Mapping[str, object], language: str) -> str:
    known = entry(language, f"then-{params.get('then')}") or entry(language, "then-unknown")
    return fill(known.happened, params) if known else ""


def _command(template: str, params: Mapping[str, object]) -> str:
    """Return a command that can be run as it is; "" where a part of it is not known."""
    needed, _ = names(template)
    known = all(params.get(name) not in (None, "") for name in needed)
    return fill(template, params) if known else ""


def _problems(code: str, problems: Sequence[object], language: str) -> list[str]:
    lines = []
    for problem in problems[:PROBLEMS_TOLD]:
        params = problem if isinstance(problem, dict) else {"problem": problem}
        name = str(params.get("problem"))
        found = entry(language, f"{code}/{name}") or entry(language, f"{code}/other")
        lines.append("  " + fill(found.happened if found else name, params))
    if left_out := len(problems) - PROBLEMS_TOLD:
        more = entry(language, "and-more")
        if more is not None and left_out > 0:
            lines.append("  " + fill(more.happened, {"count": left_out}))
    return lines
