"""Measures against a peer in one run: ``python -m tests.bench [NAME…]``; prints ratios, asserts nothing."""

from __future__ import annotations

import argparse
import platform
import tempfile
from pathlib import Path

from shared.db import embedded
from tests.bench import archiving, claiming

BENCHES = {"archive": archiving.measure, "claim": claiming.measure}


def main() -> None:
    """Run the benches asked for, or all, each on databases of its own."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    names = parser.parse_args().names or list(BENCHES)
    print(f"{platform.machine()}, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory(prefix="tallystick-bench-") as home:
        # Durable: a commit costs here what it costs its users.
        server = embedded.start(Path(home))
        try:
            for name in names:
                for line in BENCHES[name](server, Path(home)):
                    print(f"{name}: {line}", flush=True)
        finally:
            embedded.stop(Path(home))


if __name__ == "__main__":
    main()
