"""Options that many commands share."""

from __future__ import annotations

from typing import Annotated

import typer

ReasonOption = Annotated[
    str, typer.Option("--reason", help="Why, in one line; it is kept in the audit.")
]
ActorOption = Annotated[
    str | None, typer.Option("--actor", help="Who does it.", show_default="the OS user")
]
RevisionOption = Annotated[
    int | None,
    typer.Option(
        "--revision", min=0, help="Refuse if it was changed since this revision was seen."
    ),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", help="May be left out while there is only one."),
]
EnableOption = Annotated[
    bool | None, typer.Option("--enable/--disable", help="Switch it on or off.")
]
StackOption = Annotated[
    str | None, typer.Option("--stack", help="Which stack on AWS.", show_default="TALLYSTICK_STACK")
]
RemoteOption = Annotated[
    bool, typer.Option("--remote", help="Have the stack on AWS do it (TALLYSTICK_STACK).")
]
NoSourceOption = Annotated[
    bool, typer.Option("--no-source", help="Leave out what only the source can tell.")
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=100, help="At most this many.")]
