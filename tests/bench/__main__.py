"""Measures beside peers in one run: ``python -m tests.bench [NAME…]``; prints tables, asserts no figure."""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from pathlib import Path

from shared.db import embedded
from tests.bench import (
    archiving,
    claiming,
    finding,
    importing,
    listing,
    memory,
    places,
    returning,
    starting,
)
from tests.bench.ground import text

BENCHES = {
    "archive": archiving.measure,
    "places": places.measure,
    "memory": memory.measure,
    "return": returning.measure,
    "find": finding.measure,
    "claim": claiming.measure,
    "list": listing.measure,
    "start": starting.measure,
    "import": importing.measure,
}


def main() -> None:
    """Run the benches asked for, or all, each on databases of its own."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    names = parser.parse_args().names or list(BENCHES)
    with tempfile.TemporaryDirectory(prefix="tallystick-bench-") as home:
        # Durable: a commit costs here what it costs its users.
        server = embedded.start(Path(home))
        try:
            print(
                f"{os.cpu_count()} cores of {platform.machine()}, {platform.system()}, Python"
                f" {platform.python_version()}, Postgres {text(server, 'SHOW server_version')},"
                f" {_load()} before."
            )
            for name in names:
                print(f"\n## {name}\n", flush=True)
                for line in BENCHES[name](server, Path(home)):
                    print(line, flush=True)
                print(f"{_load()} after.", flush=True)
        finally:
            embedded.stop(Path(home))


def _load() -> str:
    return f"Load {os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    main()
