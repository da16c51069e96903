"""The command line: the same handlers from a shell, one file per group of commands."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handlers.cli import (
    applying,
    archive,
    database,
    demo,
    doctoring,
    drafting,
    explaining,
    jobs,
    kinds,
    namespaces,
    plan,
    policy,
    recovery,
    remote,
    settings,
    ticking,
    volume,
)
from handlers.cli.answer import UsageProblem, usage_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="tallystick",
    help="Durable batch jobs on a tick: aged Postgres rows become a chained archive on a volume.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
GROUPS = {
    "db": database.app,
    "kinds": kinds.app,
    "volume": volume.app,
    "policy": policy.app,
    "plan": plan.app,
    "namespaces": namespaces.app,
    "jobs": jobs.app,
    "archive": archive.app,
    "recovery": recovery.app,
}
for name, group in GROUPS.items():
    app.add_typer(group, name=name)
app.command("migrate")(database.migrate)
app.command("apply")(applying.apply)
app.command("tick")(ticking.tick)
app.command("run")(ticking.run)
app.command("invoke")(remote.invoke)
app.command("doctor")(doctoring.doctor)
app.command("settings")(settings.settings)
app.command("demo")(demo.demo)
app.command("preview")(drafting.preview)
app.command("help")(explaining.help_)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"tallystick {version('tallystick')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


@cache
def command() -> Any:  # noqa: ANN401 - Typer keeps the class to itself
    """Return all commands as one; made once for a process, which takes longer than most of them."""
    return typer.main.get_command(app)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; whatever goes wrong is told on standard error."""
    try:
        code = command().main(list(arguments), prog_name="tallystick", standalone_mode=False)
    except typer.Abort:
        return 1
    except Exception as error:
        # What Typer raises for a command line that is wrong; errors of commands were told already.
        if not isinstance(error, UsageProblem):
            raise
        return usage_problem(error, as_json="--json" in arguments)
    return code if isinstance(code, int) else 0


def main() -> None:
    """Run the command of this process."""
    sys.exit(run(sys.argv[1:]))
