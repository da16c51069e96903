"""Starts LocalStack's core, in its own environment, so that it can reach this machine only.

Every other address it tries is noted in the file that is named first, and refused.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

HERE = {"", None, "0.0.0.0", "127.0.0.1", "::1", "localhost"}  # noqa: S104 - compared with, not listened on
LOOKED_UP = ("socket.getaddrinfo", "socket.gethostbyname")
SENT = ("socket.connect", "socket.sendto")


def guard(noted: Path) -> None:
    """Refuse and note, for the life of this process, every address but those of this machine."""
    noted.touch()

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event in SENT:
            _, address = arguments
            # Sockets of files, and those of the kernel, go nowhere.
            host = address[0] if isinstance(address, tuple) else None
        elif event in LOOKED_UP:
            host = arguments[0]
        else:
            return
        if host not in HERE:
            with noted.open("a") as lines:
                lines.write(f"{event} {host}\n")
            raise ConnectionRefusedError(host)

    sys.addaudithook(look)


if __name__ == "__main__":
    guard(Path(sys.argv.pop(1)))
    runpy.run_module("localstack.runtime.main", run_name="__main__", alter_sys=True)
