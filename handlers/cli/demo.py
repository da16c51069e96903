"""``demo``: the whole thing on a small database of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from handlers.cli.answer import Answer, answering, console


@answering
def demo(
    home: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where it lives; a fresh directory when left out."),
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep pictures of it there, as SVG.")
    ] = None,
) -> Answer:
    """Watch a small shop being archived."""
    from tempfile import mkdtemp

    from handlers.demo.show import show

    place = (home or Path(mkdtemp(prefix="tallystick-demo-"))).absolute()
    out = console(errors=True)
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        out.record = True
    return Answer(show(place, out, pictures))
