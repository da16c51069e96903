"""``db`` and ``migrate``: the embedded Postgres, and the schema of whichever database is in use."""

from __future__ import annotations

from typing import Annotated

import typer

from handlers.cli.answer import GOOD, NOT_GOOD, Answer, answering

app = typer.Typer(
    help="The embedded Postgres, used where no database is set.", no_args_is_help=True
)


@app.command("start")
@answering
def start() -> Answer:
    """Start the embedded Postgres, with fsync on.

    It stays up until `tallystick db stop`.
    """
    from handlers.cli.session import configured
    from shared.db import embedded

    settings = configured()
    was_up = embedded.url(settings.home) is not None
    url = embedded.start(settings.home)
    state = "It was up already" if was_up else "Started"
    return Answer(
        {"url": url, "running": True, "fsync": True},
        lambda out: out.print(
            f"{state} (fsync on): {url}\nStop it with `tallystick db stop`.", soft_wrap=True
        ),
    )


@app.command("stop")
@answering
def stop() -> Answer:
    """Stop the embedded Postgres."""
    from handlers.cli.session import configured
    from shared.db import embedded

    stopped = embedded.stop(configured().home)
    text = "Stopped." if stopped else "It was not running."
    return Answer({"stopped": stopped}, lambda out: out.print(text))


@app.command("url")
@answering
def url() -> Answer:
    """Print the URL of the embedded Postgres.

    Exit code 1 when it is not running.
    """
    from handlers.cli.session import configured
    from shared.db import embedded

    found = embedded.url(configured().home)
    text = found or "It is not running. Start it with `tallystick db start`."
    return Answer(
        {"url": found, "running": found is not None},
        lambda out: out.print(text, soft_wrap=True),
        GOOD if found else NOT_GOOD,
    )


@answering
def migrate(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 1 when something is missing.")
    ] = False,
) -> Answer:
    """Bring the schema of the database up to date.

    Safe when two run at once.
    """
    from handlers.cli.session import configured, database_url, is_there
    from shared.db import migrate as migrations

    settings, done = configured(), tuple[int, ...]()
    if check and not is_there(settings):
        schema = migrations.compare({})
    else:
        url = database_url(settings)
        done = () if check else migrations.migrate(url)
        schema = migrations.check(url)
    version = max(schema.applied, default=0)
    document = {"version": version, "applied": list(done), "pending": list(schema.pending)}
    if schema.pending:
        text = f"Missing: {_versions(schema.pending)}. `tallystick migrate` applies it."
    elif done:
        text = f"Applied {_versions(done)}; the schema is up to date."
    else:
        text = f"The schema is up to date (version {version})."
    code = NOT_GOOD if schema.pending else GOOD
    return Answer(document, lambda out: out.print(text, soft_wrap=True), code)


def _versions(versions: tuple[int, ...]) -> str:
    return "version " + ", ".join(str(version) for version in versions)
