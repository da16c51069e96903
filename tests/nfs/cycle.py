"""In the guest: judge what the last power cut left, then work on something new until the next one.

Postgres and the volume are on the disk. What a judgement needs from before the cut is kept on the host: the
source as it was, and what the ticks said they had done.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from shared.db import embedded
from shared.db.migrate import migrate
from shared.jobs.model import Ending
from tests.crash.judge import witness
from tests.crash.scene import DDL, KINDS, NOTES, Scene
from tests.crash.trial import recover
from tests.operations import stage

TEMPLATE = "template_of_rounds"
BATCH = 2
PROGRESS = {Ending.PROGRESSED, Ending.FINISHED}


def main(disk: Path, out: Path) -> None:
    """Go through one life of the guest; its end is the power cut."""
    server = embedded.start(disk / "postgres", durable=True)
    number = 1 + sum(1 for _ in out.glob("round-*"))
    if number == 1:
        _execute(server, f"CREATE DATABASE {TEMPLATE}")
        migrate(_at(server, TEMPLATE))
    else:
        _judge(out, number - 1)
    made = _new(server, disk, number)
    (out / f"round-{number}").write_bytes(pickle.dumps(made))
    with (out / f"told-{number}").open("w") as told:
        (out / f"ready-{number}").touch()
        while True:
            report = made.stage.tick()
            told.write(f"{report.outcome.ending}\n")
            told.flush()
            if report.outcome.ending not in PROGRESS:
                break
    (out / f"idle-{number}").touch()
    while True:
        time.sleep(60)


def _judge(out: Path, number: int) -> None:
    """Recover, ask the judge, and compare with what the ticks had said before the cut."""
    made: Scene = pickle.loads((out / f"round-{number}").read_bytes())  # noqa: S301 - our own
    told = (out / f"told-{number}").read_text().splitlines()
    said = sum(line in PROGRESS for line in told)
    kept = sum(job.batches for job in stage.jobs(made.stage))
    faults = [f"{said} units were told, and {kept} are kept"] if kept < said else []
    recover(made.stage)
    faults += made.faults()
    verdict = json.dumps({"told": said, "kept": kept, "faults": faults})
    part = out / f"verdict-{number}.part"
    part.write_text(verdict)
    part.rename(out / f"verdict-{number}")


def _new(server: str, disk: Path, number: int) -> Scene:
    name = f"round_{number}"
    _execute(server, f"DROP DATABASE IF EXISTS {name}")
    _execute(server, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
    root = disk / f"volume-{number}"
    here = stage.stage(_at(server, name), root, KINDS, *DDL)
    stage.plan(here, "notes", batch_size=BATCH)
    return Scene(here, witness(here.source, NOTES))


def _at(server: str, name: str) -> str:
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


def _execute(server: str, statement: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement.encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
