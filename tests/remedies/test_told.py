"""Every command and every SQL that a message or a page prints is carried out by a test, as printed.

The blocks of pages are run by scenarios, what the doctor prints by the faults it finds; the rest is run here.
A new message with a command that nothing runs fails the first test: give it a place in a page, or here.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

import psycopg

from shared.messages import pages
from shared.messages.catalogue import entries
from shared.messages.template import fill
from tests.doctor.faults import FAULTS
from tests.golden.scenario import Shell
from tests.remedies.test_remedies import BLOCK, blocks
from tests.worlds import one, rows

QUOTED = re.compile(r"`([^`\n]+)`")
SQL = re.compile(r"(?:GRANT|REVOKE|ALTER|CREATE|DROP|UPDATE|SELECT|DESCRIBE|REINDEX)\s")
TOOL = re.compile(r"(?:aws|chmod|pip|pipx|ss|timedatectl|psql|zstd)\s")

# Commands that a sentence prints and no block of a page has, with what stands for their capitals.
HERE = {
    "jobs list --json": "jobs list --json",
    "jobs pause": "jobs pause {job} --reason TEXT",
    "namespaces disable": "namespaces disable default --reason TEXT",
    "plan list": "plan list",
    "plan set KIND --disable --reason TEXT": "plan set orders --disable --reason TEXT",
    "preview KIND --after 365d": "preview orders --after 365d",
}
STATEMENTS = {
    "GRANT SELECT ON TABLE SCHEMA.TABLE TO ROLE": "GRANT SELECT ON TABLE app.orders TO {role}",
    "GRANT SELECT ON TABLE {table} TO ROLE": "GRANT SELECT ON TABLE app.orders TO {role}",
    "GRANT pg_read_all_stats TO ROLE": "GRANT pg_read_all_stats TO {role}",
    "ALTER ROLE ROLE RESET zero_damaged_pages": "ALTER ROLE {role} RESET zero_damaged_pages",
    "ALTER DATABASE DATABASE RESET zero_damaged_pages": (
        "ALTER DATABASE {database} RESET zero_damaged_pages"
    ),
    "SELECT gid, prepared, owner FROM pg_prepared_xacts": (
        "SELECT gid, prepared, owner FROM pg_prepared_xacts"
    ),
    "SELECT pid, usename, xact_start FROM pg_stat_activity ORDER BY xact_start": (
        "SELECT pid, usename, xact_start FROM pg_stat_activity ORDER BY xact_start"
    ),
}
# What no test runs as printed, and why.
NOT_RUN = {
    "timedatectl set-ntp true": "it changes the clock of the machine that tests run on",
    "ss -ltnp": "it shows the sockets of the machine, and changes nothing",
    "DESCRIBE schema.table": "a query of DuckDB: reading/test_query.py describes tables",
    "aws sts get-caller-identity": "it asks an account: cloud.py runs blocks with it beside an emulator",
    "aws cloudformation list-stacks": "it asks an account, and changes nothing",
    'pipx inject tallystick "duckdb>=2.0"': "extras.py installs it by pip; pipx only says where",
    "pipx inject tallystick prometheus-client": "extras.py installs it by pip; pipx only says where",
}


def shape(command: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the words that name a command, and its options."""
    named = []
    for word in command.split():
        if not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        named.append(word)
    return tuple(named), frozenset(re.findall(r"(?<!\S)--[a-z-]+", command))


def ours(text: str) -> Iterator[str]:
    for line in text.replace("\\\n", " ").splitlines():
        yield from re.findall(r"\btallystick ([a-z][^|;&)>]*)", line.partition(" # ")[0])


def in_blocks() -> list[tuple[tuple[str, ...], frozenset[str]]]:
    return [
        shape(each) for page in pages.listed() for text in blocks(page.code) for each in ours(text)
    ]


def told() -> dict[str, str]:
    """Return everything that sentences print between backticks, and where."""
    found: dict[str, str] = {}
    for key, entry in entries("en").items():
        for text in (entry.happened, entry.next_step):
            found |= dict.fromkeys(QUOTED.findall(text), key)
    for page in pages.listed():
        found |= dict.fromkeys(QUOTED.findall(BLOCK.sub("", page.text)), f"{page.code}.md")
    return found


def covered(command: str, known: list[tuple[tuple[str, ...], frozenset[str]]]) -> bool:
    """Tell whether a command was run with at least these options; an argument may look like a word."""
    named, options = shape(command)
    return any(
        options <= had and (name[: len(named)] == named or (name and named[: len(name)] == name))
        for name, had in known
    )


def test_every_command_that_is_printed_is_carried_out() -> None:
    known = in_blocks()
    missing = {
        text: where
        for text, where in told().items()
        if text.startswith("tallystick ")
        and not covered(fill(text, {"kind": "KIND"}).removeprefix("tallystick "), known)
        and fill(text, {"kind": "KIND"}).removeprefix("tallystick ") not in HERE
    }
    assert missing == {}


def test_every_command_that_stands_beside_a_message_is_carried_out() -> None:
    """A fault of the doctor carries out its command; or a block of a page has it."""
    known, mended = in_blocks(), {key for fault in FAULTS.values() for key in fault.says}
    commands = {key: entry.command for key, entry in entries("en").items() if entry.command}
    assert len(commands) > 20
    missing = [
        (key, command)
        for key, command in commands.items()
        if key not in mended
        and not all(covered(each, known) for each in ours(command))
        and key not in BESIDE
    ]
    assert missing == []


# Beside these messages stands a command that differs from a mended fault's in one word alone.
BESIDE = {"PLAN_DISABLED/prune": "plan set --operation prune --enable --reason TEXT"}


def test_every_sql_and_every_other_tool_is_carried_out_or_says_why_not() -> None:
    run = {text for page in pages.listed() for text in blocks(page.code)}
    missing = {
        text: where
        for text, where in told().items()
        if (SQL.match(text) or TOOL.match(text))
        and " " in text.strip()
        and text not in STATEMENTS
        and text not in NOT_RUN
        and not any(text.split()[0] in block and text.split()[1] in block for block in run)
    }
    assert missing == {}


def test_nothing_that_is_printed_to_be_run_has_a_gap() -> None:
    """What a person fills in has a name in capitals. (Lines of kinds files show what is left out.)"""
    gaps = [text for text in told() if "…" in text and " = [" not in text and SQL.match(text)]
    assert gaps == []


def test_the_list_of_what_is_run_here_has_nothing_that_is_no_longer_printed() -> None:
    printed = {fill(text, {"kind": "KIND"}).removeprefix("tallystick ") for text in told()}
    assert sorted(set(HERE) - printed) == []
    assert sorted({*STATEMENTS, *NOT_RUN} - set(told())) == []


def test_commands_of_sentences_run_as_printed(shell: Shell) -> None:
    assert shell("tick").code == 0
    assert (
        shell("plan", "set", "--operation", "prune", "--every", "24h", "--reason", "TEXT").code == 0
    )
    job = json.loads(shell("jobs", "list", "--json").out)["items"][0]["id"]
    for text in (*HERE.values(), *BESIDE.values()):
        answered = shell(*shlex.split(text.format(job=job)))
        assert answered.code == 0, (text, answered)


def test_statements_of_sentences_run_as_printed(shell: Shell, database: str) -> None:
    name = one(database, "SELECT current_database()")
    role = f"told_{one(database, 'SELECT pg_backend_pid()')}"
    assert shell("plan", "list").code == 0
    rows(database, f"CREATE ROLE {role}")
    try:
        with psycopg.connect(database, autocommit=True) as connection:
            for text in STATEMENTS.values():
                connection.execute(text.format(role=role, database=name).encode())
    finally:
        rows(database, f"DROP OWNED BY {role}")
        rows(database, f"DROP ROLE {role}")
