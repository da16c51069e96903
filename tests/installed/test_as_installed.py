"""What a user gets by pip: the README as printed, the help of every command, and what installs an extra."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.installed.environment import Installed
from tests.installed.shelf import EXTRAS, ROOT
from tests.operations.stage import execute
from tests.remedies.extras import free_port
from tests.worlds import altered

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

SECTION = "On a database of your own"
SHOP = (
    (
        "CREATE TABLE invoice (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
        " invoice_date date NOT NULL, total numeric(10, 2))"
    ),
    "CREATE INDEX ON invoice (invoice_date, id)",
    "CREATE TABLE invoice_line (invoice_id bigint NOT NULL REFERENCES invoice, item text)",
    "CREATE INDEX ON invoice_line (invoice_id)",
    (
        "INSERT INTO invoice (invoice_date, total)"
        " SELECT date '2020-01-01' + n / 5, n / 3.0 FROM generate_series(1, 5000) AS n"
    ),
    "INSERT INTO invoice_line SELECT id, 'item of ' || id FROM invoice",
    "ANALYZE",
)
# What a reader puts in the place of an example, and does where a comment says so.
OWN = (
    ("postgresql://reader@db.example/shop", '"$SHOP"'),
    ("postgresql://…/jobs", '"$SHOP"'),
    ("--root /mnt/archive", '--root "$PWD/archive" > exports; . ./exports'),
    ("$EDITOR kinds.toml", "sed -i -e 's/^# after/after/' -e 's/^# every/every/' kinds.toml"),
)
# Every command there is, asked for its help; run in the environment.
HELP = """

from handlers.cli import command, run

def walk(found, path):
    assert run([*path, "--help"]) == 0, path
    for name, inner in getattr(found, "commands", {}).items():
        walk(inner, [*path, name])

walk(command(), [])
"""


def blocks() -> str:
    text = (ROOT / "README.md").read_text("utf-8")
    section = text.split(f"## {SECTION}\n")[1].split("\n## ")[0]
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))
    for printed, meant in OWN:
        script = altered(script, printed, meant)
    return script


def test_the_readme_works_as_printed_with_no_extra(
    plain: Installed, database: str, empty_database: str
) -> None:
    execute(database, "DROP SCHEMA tallystick CASCADE", *SHOP)
    done = plain.shell(blocks(), {"SHOP": database, "SCRATCH_DATABASE": empty_database})
    for shown in ("item of 4711", "5000 roots", "finished", "0 errors"):
        assert shown in done.stdout, done.stdout


def test_every_command_has_its_help_and_nothing_that_is_not_installed_is_in_its_way(
    plain: Installed,
) -> None:
    told = plain.shell("tallystick --help && tallystick --version && tallystick doctor --help")
    assert "archive" in told.stdout
    done = plain.shell('python -c "$HELP"', {"HELP": HELP})
    assert done.stdout.count("Usage: tallystick") > 40


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_wheel_can_be_had_with_an_extra_alone(
    wheel: Path, plain: Installed, extra: str
) -> None:
    done = plain.shell('python -m pip install --dry-run "$WANTED"', {"WANTED": f"{wheel}[{extra}]"})
    assert "Would install" in done.stdout
    assert "tallystick" not in done.stdout.rpartition("Would install")[2]


def an_archive(plain: Installed, dsn: str) -> None:
    execute(dsn, *SHOP)
    plain.shell(
        "tallystick kinds draft public.invoice > kinds.toml;"
        " tallystick archive export invoice --until 2021-01-01 --directory invoices",
        {"TALLYSTICK_SOURCE_URL": dsn, "TALLYSTICK_KINDS_FILE": str(plain.work / "kinds.toml")},
    )


def nothing_first(_plain: Installed, _dsn: str) -> None:
    """Nothing has to be there before."""


READ = """
import os
from urllib.request import urlopen
print(urlopen("http://127.0.0.1:" + os.environ["PORT"]).read().decode())
"""
SERVED = """
tallystick run --metrics-port $PORT >loop 2>&1 & loop=$!
for turn in $(seq 300); do
  if python -c "$READ" 2>/dev/null; then break; fi
  kill -0 $loop; sleep 0.1
done
kill -TERM $loop; wait $loop
"""
POWERTOOLS = (
    """python -c 'from handlers import observing; observing.require(); print("observed")'"""
)

Before = Callable[[Installed, str], None]
# Of each extra: what comes first, the command that cannot do without it, the one that then works, and what
# that prints.
WITHOUT: dict[str, tuple[Before, str, str, str]] = {
    "embedded": (
        nothing_first,
        "tallystick migrate",
        "tallystick migrate; tallystick jobs list; tallystick db stop",
        "There are no jobs yet",
    ),
    "query": (
        an_archive,
        "tallystick archive query invoices 'SELECT 1'",
        "tallystick archive query invoices 'SELECT count(*) FROM invoice'",
        "1829",
    ),
    "metrics": (
        nothing_first,
        "tallystick run --metrics-port 1",
        f"tallystick migrate; {SERVED}",
        "tallystick_",
    ),
    "aws": (
        nothing_first,
        "tallystick doctor --aws --stack shop",
        POWERTOOLS,
        "observed",
    ),
}


def advice(told: str) -> str:
    """Return the command that a message says to run, and check that no shell reads its brackets."""
    (command,) = re.findall(r"`([^`]*pip install [^`]*)`", " ".join(told.split()))
    # zsh takes a bracket that is not quoted for a pattern, and bash if a file is named like that.
    assert re.search(r"'tallystick\[[a-z]+\]'", command), command
    assert shlex.split(command)[-1] in {f"tallystick[{extra}]" for extra in EXTRAS}
    return str(command)


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_a_message_says_to_install_makes_the_command_work(
    fresh: Installed, empty_database: str, extra: str
) -> None:
    before, lacking, works, printed = WITHOUT[extra]
    before(fresh, empty_database)
    given: Mapping[str, str] = {"PORT": str(free_port()), "READ": READ}
    if extra == "metrics":
        given = {**given, "TALLYSTICK_DATABASE_URL": empty_database}
        fresh.shell("tallystick migrate", given)
    told = fresh.shell(lacking, given, code=2).stderr
    assert f"{'EMBEDDED' if extra == 'embedded' else extra.upper() + '_EXTRA'}_MISSING" in told
    fresh.shell(advice(told), given)
    assert printed in fresh.shell(works, given).stdout
