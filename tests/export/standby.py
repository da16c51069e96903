"""A standby of a test's server."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from shared.db import embedded
from tests.conftest import TEST_PG_BIN
from tests.worlds import one


@contextmanager
def standby_of(url: str, home: Path) -> Iterator[str]:
    """Copy the server at ``url`` below ``home``, start it as its standby, and yield the URL of the copy."""
    binaries = Path(TEST_PG_BIN) if TEST_PG_BIN else embedded._wheel_binaries()
    data = embedded.Embedded(home).data
    data.parent.mkdir(mode=0o700)
    copy = [str(binaries / "pg_basebackup"), "-D", str(data), "-R", "-X", "stream", "-c", "fast"]
    done = subprocess.run(
        [*copy, "--no-sync", "-d", url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    started = embedded.start(
        home, durable=False, binaries=Path(TEST_PG_BIN) if TEST_PG_BIN else None
    )
    try:
        yield psycopg.conninfo.make_conninfo(started, dbname=one(url, "SELECT current_database()"))
    finally:
        embedded.stop(home)
