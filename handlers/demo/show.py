"""The demo, act by act: plan, tick, kill, recover, prove, restore, find."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from handlers.demo import proof
from handlers.demo.screen import DANGER, Screen, act
from handlers.demo.stage import LEASE_SECONDS, Stage, build, text_of
from shared import loop, wiring
from shared import settings as settings_module
from shared.db import embedded
from shared.tick import Report, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import Console

    from shared.settings import Settings

REASON = "one year online"
KINDS = ("orders", "tickets")
KILL_TRIES = 20
POLL_SECONDS = 0.002


def show(home: Path, console: Console, pictures: Path | None) -> dict[str, Any]:
    """Play the whole demo below ``home``, and return what it came to.

    The archive stays there, the database is stopped at the end. Pictures of the acts that say most are
    kept in ``pictures``, where that is not None.
    """
    began = time.monotonic()
    try:
        screen = Screen(console, _a_shop(home, console), pictures)
        _plans(screen)
        _first_ticks(screen)
        screen.drop()
        _killed(screen)
        screen.keep("killed")
        _the_rest(screen)
        proof.chained(screen)
        screen.drop()
        caught = proof.tampered(screen)
        compared = proof.restored(screen)
        screen.keep("restored")
        proof.found(screen)
        seconds = round(time.monotonic() - began, 1)
        rows = screen.stage.counts()["all_rows"]
        _afterwards(screen, rows, seconds)
    finally:
        embedded.stop(home)
    return {
        "home": str(home),
        "volume": str(screen.stage.volume),
        "seconds": seconds,
        "rows_in_the_shop": rows,
        "flipped_and_caught": caught,
        "restored": compared,
    }


def _a_shop(home: Path, console: Console) -> Stage:
    act(
        console,
        "A shop with five years of history",
        "A Postgres of its own, with orders, lines, payments, tickets and comments.",
    )
    with console.status("filling the shop"):
        return build(home, console.width)


def _plans(screen: Screen) -> None:
    screen.act(
        "A volume, two policies, two plans",
        "What is older than a year goes, with the rows that belong to it.",
    )
    stage = screen.stage
    stage.run("migrate")
    made = json.loads(stage.run("volume", "init", "--root", str(stage.volume), "--json"))
    stage.environment.update(
        TALLYSTICK_ARCHIVE_ROOT=str(stage.volume), TALLYSTICK_ARCHIVE_STORAGE_ID=made["storage_id"]
    )
    screen.typed("apply", "--reason", REASON)


def _first_ticks(screen: Screen) -> None:
    screen.act("Ticks", "Each is a process that claims one job, moves one batch, and exits.")
    for _ in range(3):
        screen.typed("tick")


def _killed(screen: Screen) -> None:
    screen.act("kill -9 in the middle of a batch", "The next tick dies while it writes its file.")
    stage = screen.stage
    screen.command(f"kill -9 {_kill_one(stage)}", style=DANGER)
    left = ", ".join(file.name for file in stage.temporary)
    screen.said(f"Left behind: .tmp/{left}, half written, and a claim.")
    screen.said(f"Waiting {LEASE_SECONDS} s for the lease to run out; nothing else is needed.")
    time.sleep(float(LEASE_SECONDS))
    # The other job may be due first: they take turns.
    for _ in KINDS:
        if "taken over" in screen.typed("tick"):
            break
    screen.typed("recovery", "list")
    screen.said(f"Left in .tmp: {len(stage.temporary)} files.")


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


def _the_rest(screen: Screen) -> None:
    screen.act("Until nothing is due", "The same ticks, one after the other.")
    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("roots"),
        TimeElapsedColumn(),
    )
    stage = screen.stage
    old = stage.counts()
    with Progress(*columns, console=screen.console) as progress:
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


def _afterwards(screen: Screen, rows: int, seconds: float) -> None:
    screen.act(
        f"Done in {seconds:.0f} s",
        f"The shop still has its {rows} rows: archiving only reads. The archive is in",
    )
    screen.said(
        f"{screen.stage.volume}\n\nOn a database of your own; SELECT is enough, and a standby will do:"
    )
    for line in text_of("yours.sh").splitlines():
        screen.command(line)
