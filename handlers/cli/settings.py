"""``settings``: what is in force, and where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handlers.cli.answer import Answer, answering

if TYPE_CHECKING:
    from rich.console import Console

MASK = "********"


@answering
def settings() -> Answer:
    """Show the settings in force and their origin.

    Secrets are masked.
    """
    from pydantic import SecretStr

    from handlers.cli.session import configured
    from handlers.cli.table import cell
    from shared.settings import PREFIX, origins

    found = configured()
    values = {name: MASK if isinstance(value, SecretStr) else value for name, value in found}
    items = [
        {
            "name": PREFIX + name.upper(),
            "value": value if isinstance(value, int | float | None) else str(value),
            "origin": origins(found)[name],
        }
        for name, value in values.items()
    ]

    def show(out: Console) -> None:
        # Values stand last and are never broken: paths are there to be copied.
        width = max(len(PREFIX + name) for name in values)
        for item in items:
            out.print(
                f"{item['name']:<{width}}  {item['origin']:<11}  {cell(item['value'])}",
                soft_wrap=True,
            )

    return Answer({"items": items}, show)
