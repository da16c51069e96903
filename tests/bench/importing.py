"""How long a function takes to load its handler from its package, beside the libraries it needs."""

from __future__ import annotations

import json
import platform
import subprocess
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from infra import packaging
from tests.bench.cost import Cost, best_in_turn
from tests.bench.tables import table

ROUNDS = 25
LIBRARIES = "import psycopg, pydantic_settings; from aws_lambda_powertools import Logger"
HANDLER = "import handlers.archive"
WHOLE = f"{HANDLER}; from handlers import observing; observing.require()"
PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[1])
clock, cpu = time.perf_counter(), time.process_time()
{imports}
print([time.perf_counter() - clock, time.process_time() - cpu])
"""


def measure(_server: str, home: Path) -> Iterator[str]:
    """Import in turn, from the package of this interpreter and from the platform's where both are at hand."""
    for target in _targets():
        with zipfile.ZipFile(packaging.pack(target, {}, home / "zips")) as file:
            file.extractall(home / target.name)
        yield f"From tallystick-{target.name}.zip, best of {ROUNDS} rounds in turn."
        yield from _compared(target.interpreter, home / target.name)


def _targets() -> list[packaging.Target]:
    known = packaging.targets(packaging.found(None) or "")
    runs_here = [each for each in known.values() if each.machine == platform.machine()]
    return [known["local"], *(each for each in runs_here if each.interpreter)]


def _compared(interpreter: str, folder: Path) -> Iterator[str]:
    programs = {
        "psycopg, pydantic-settings and the Powertools logger": LIBRARIES,
        "the handler of the schedule": HANDLER,
        "…and what its first invocation loads": WHOLE,
    }
    runs = {name: partial(_once, interpreter, folder, each) for name, each in programs.items()}
    best = best_in_turn(runs, ROUNDS)
    alone = next(iter(best.values()))
    yield from table(
        ["", ">Seconds", ">CPU s", ">Times the libraries", ">of CPU"],
        [
            [
                name,
                f"{cost.seconds:.3f}",
                f"{cost.cpu_seconds:.3f}",
                f"{cost.seconds / alone.seconds:.2f}",
                f"{cost.cpu_seconds / alone.cpu_seconds:.2f}",
            ]
            for name, cost in best.items()
        ],
    )


def _once(interpreter: str, folder: Path, imports: str) -> Cost:
    program = PROGRAM.format(imports=imports)
    said = subprocess.run(
        [interpreter, "-I", "-S", "-c", program, folder],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    seconds, cpu_seconds = json.loads(said)
    return Cost(seconds, cpu_seconds, 0)
