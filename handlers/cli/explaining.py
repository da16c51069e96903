"""``help``: the page of an error code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from handlers.cli.answer import Answer, answering

if TYPE_CHECKING:
    from rich.console import Console


@answering
def help_(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="All of them are listed when left out.")
    ] = None,
) -> Answer:
    """Show what an error code means and what to do about it."""
    from shared.messages import pages

    if code is None:
        found = pages.listed()
        items = [{"code": each.code, "summary": each.summary} for each in found]
        width = max(len(each.code) for each in found)
        lines = "\n".join(f"{each.code:<{width}}  {each.summary}" for each in found)
        return Answer({"items": items}, lambda out: out.print(lines, soft_wrap=True))
    page = pages.page(code)
    told = pages.in_general(page.code)
    document = {
        "code": page.code,
        "summary": page.summary,
        "message": told.happened,
        "next": told.next_step,
        "page": page.text,
    }
    return Answer(document, lambda out: _show(out, page.text))


def _show(out: Console, text: str) -> None:
    if not out.is_terminal:
        out.print(text, end="", soft_wrap=True)
        return
    from rich.markdown import Markdown

    out.print(Markdown(text))
