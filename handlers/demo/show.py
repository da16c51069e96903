"""The demo, act by act: plan, tick, kill, recover, verify."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.rule import Rule
from rich.text import Text

from handlers.demo.stage import LEASE_SECONDS, Stage, build
from shared import loop, wiring
from shared import settings as settings_module
from shared.db import embedded
from shared.tick import Report, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shared.settings import Settings

REASON = "demo"
KINDS = ("orders", "tickets")
KILL_TRIES = 20
POLL_SECONDS = 0.002


def show(home: Path, console: Console) -> None:
    """Play the whole demo below ``home``; the archive stays there, the database is stopped at the end."""
    began = time.monotonic()
    try:
        stage = _a_shop(home, console)
        stage = _plans(stage, console)
        _first_ticks(stage, console)
        _killed(stage, console)
        _the_rest(stage, console)
        _proof(stage, console)
        _afterwards(stage, console, time.monotonic() - began)
    finally:
        embedded.stop(home)


def _a_shop(home: Path, console: Console) -> Stage:
    _act(
        console,
        "A shop with five years of history",
        "A Postgres of its own, with orders, lines, payments, tickets and comments.",
    )
    with console.status("filling the shop"):
        return build(home)


def _plans(stage: Stage, console: Console) -> Stage:
    _act(
        console,
        "A volume, two policies, two plans",
        "What is older than a year shall be archived, with the rows that belong to it.",
    )
    stage.run("migrate")
    made = json.loads(stage.run("volume", "init", "--root", str(stage.volume), "--json"))
    stage.environment.update(
        TALLYSTICK_ARCHIVE_ROOT=str(stage.volume), TALLYSTICK_ARCHIVE_STORAGE_ID=made["storage_id"]
    )
    for kind, batch in (("orders", "1000"), ("tickets", "500")):
        _typed(console, stage, "policy", "set", kind, "--after", "365d", "--reason", REASON)
        _typed(
            console,
            stage,
            *("plan", "set", kind, "--every", "24h", "--batch-size", batch, "--enable"),
            *("--reason", REASON),
        )
    return stage


def _first_ticks(stage: Stage, console: Console) -> None:
    _act(console, "Ticks", "Each is a process that claims one job, moves one batch, and exits.")
    for _ in range(3):
        _typed(console, stage, "tick")


def _killed(stage: Stage, console: Console) -> None:
    _act(
        console, "kill -9 in the middle of a batch", "The next tick dies while it writes its file."
    )
    victim = _kill_one(stage)
    console.print(Text(f"$ kill -9 {victim}", style="bold red"))
    left = ", ".join(file.name for file in stage.temporary)
    console.print(f"Left behind: .tmp/{left}, half written, and a claim.", highlight=False)
    with console.status(
        f"waiting {LEASE_SECONDS} s for the lease to run out; nothing else is needed"
    ):
        time.sleep(float(LEASE_SECONDS))
    # The other job may be due first: they take turns.
    for _ in KINDS:
        if "taken over" in _typed(console, stage, "tick"):
            break
    _typed(console, stage, "recovery", "list")
    console.print(f"Left in .tmp: {len(stage.temporary)} files.", highlight=False)


def _kill_one(stage: Stage) -> int:
    """Start ticks until one was killed between claiming and settling; return its process id."""
    for _ in range(KILL_TRIES):
        child = subprocess.Popen(
            stage.command("tick"),
            env=stage.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while child.poll() is None:
            if stage.temporary:
                child.send_signal(signal.SIGKILL)
            time.sleep(POLL_SECONDS)
        if child.returncode == -signal.SIGKILL and stage.temporary and _running(stage):
            return child.pid
    raise RuntimeError(KILL_TRIES)


def _running(stage: Stage) -> bool:
    jobs = json.loads(stage.run("jobs", "list", "--json"))["items"]
    return any(job["state"] == "RUNNING" for job in jobs)


def _the_rest(stage: Stage, console: Console) -> None:
    _act(console, "Until nothing is due", "The same ticks, one after the other.")
    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("roots"),
        TimeElapsedColumn(),
    )
    old = stage.counts()
    with Progress(*columns, console=console) as progress:
        bars = {kind: progress.add_task(kind, total=old[kind]) for kind in KINDS}

        def told(report: Report) -> None:
            if report.job is not None and report.job.kind in bars:
                progress.update(bars[report.job.kind], completed=report.job.roots)

        with _settings_of(stage) as settings:
            node = wiring.node(settings, stage.control)
            loop.until_idle(node, Wanted(), settings.timeout_seconds, told)


@contextmanager
def _settings_of(stage: Stage) -> Iterator[Settings]:
    """Read the settings that the demo's commands have, in this process."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(stage.environment)
    try:
        yield settings_module.load()
    finally:
        os.environ.clear()
        os.environ.update(before)


def _proof(stage: Stage, console: Console) -> None:
    _act(
        console,
        "Every file names the digest of the one before",
        "So the last digest stands for all. The database keeps it, and so may you.",
    )
    directory = max(stage.volume.glob("*-*-*"), key=lambda found: len(list(found.iterdir())))
    for name in ("manifest.json", "000001.sql.zst", "000002.sql.zst"):
        digest = hashlib.sha256((directory / name).read_bytes()).hexdigest()
        console.print(Text(f"{digest}  {name}"))
    console.print(Text("…"))
    _typed(console, stage, "archive", "tails")
    _typed(console, stage, "archive", "verify", "--all")


def _afterwards(stage: Stage, console: Console, seconds: float) -> None:
    rows = stage.counts()["all_rows"]
    _act(
        console,
        f"Done in {seconds:.0f} s",
        f"The shop still has its {rows} rows: archiving only reads.\n"
        f"The archive is in {stage.volume}; each file is a psql script:",
    )
    console.print(Text("$ zstd -dc 000001.sql.zst | less", style="bold green"))


def _act(console: Console, title: str, text: str) -> None:
    console.print()
    console.print(Rule(Text(title, style="bold"), align="left", style="cyan"))
    console.print(Text(text))


def _typed(console: Console, stage: Stage, *arguments: str) -> str:
    """Show a command as it would be typed, run it, show what it prints, and return that."""
    command = Text(f"$ tallystick {shlex.join(arguments)}", style="bold green")
    console.print(command, soft_wrap=True)
    printed = stage.run(*arguments)
    for line in printed.splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)
    return printed
