"""Pages: for each error code what it means, why it comes, and the commands that put it right."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from shared.errors import Code, Refused
from shared.messages import Words, words
from shared.messages.catalogue import entry
from shared.messages.template import names

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

SUFFIX = ".md"
NEAR_MAX = 3


@dataclass(frozen=True)
class Page:
    """One page: the code, what it means in one sentence, and the whole text as Markdown."""

    code: str
    summary: str
    text: str


def page(code: str, language: str = "en") -> Page:
    """Return the page of a code, in whatever case it is written.

    Raises ``Refused`` (CODE_UNKNOWN) with the codes that are near where there is no such page.
    """
    asked = code.strip().upper()
    known = _known(language)
    if asked not in known:
        raise Refused(Code.CODE_UNKNOWN, asked=code, near=_near(asked, list(known)))
    text = known[asked].read_text("utf-8")
    # A heading, an empty line, and then the sentence that says it all.
    return Page(asked, text.split("\n", 3)[2], text)


def listed(language: str = "en") -> list[Page]:
    """Return all pages by code; raises ``LookupError`` for a language that has none."""
    return [page(code, language) for code in sorted(_known(language))]


def in_general(code: str, language: str = "en") -> Words:
    """Return the words for a code without its parameters: their names stand for them, in capitals."""
    found = entry(language, code)
    needed = names(found.happened)[0] | names(found.next_step)[0] if found else ()
    return words(code, {name: name.upper() for name in needed}, language)


def _known(language: str) -> dict[str, Traversable]:
    directory = files("shared.messages") / "pages" / language
    if not directory.is_dir():
        raise LookupError(language)
    return {
        file.name.removesuffix(SUFFIX): file
        for file in directory.iterdir()
        if file.name.endswith(SUFFIX)
    }


def _near(asked: str, known: list[str]) -> list[str]:
    from difflib import get_close_matches  # noqa: PLC0415 - wanted for a misspelt code only

    parts = [code for code in known if asked and asked in code]
    close = get_close_matches(asked, known, NEAR_MAX)
    return list(dict.fromkeys([*close, *sorted(parts)]))[:NEAR_MAX]
