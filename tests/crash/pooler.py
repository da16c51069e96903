"""pgbouncer in front of a server, in transaction mode: no two statements need meet the same session."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shared.db import embedded
from tests.operations.stage import wait_for

# Where Debian has it, which is not on everybody's path.
PGBOUNCER = "/usr/sbin/pgbouncer"
# Fewer sessions than there are clients at times, so that they are handed from one to another.
SESSIONS = 3


@contextmanager
def pooled(
    dsn: str,
    place: Path,
    users: Sequence[str] = (),
    *,
    mode: str = "transaction",
    sessions: int = SESSIONS,
    wait: int = 120,
) -> Iterator[str]:
    """Start a pooler that keeps its files in ``place``, and yield the way through it.

    ``wait`` seconds it lets a client wait for one of its ``sessions``.
    """
    server = conninfo_to_dict(dsn)
    user, password = str(server.get("user") or ""), str(server.get("password") or "")
    port = _free_port()
    (place / "users.txt").write_text("".join(f'"{name}" "{password}"\n' for name in (user, *users)))
    ini = place / "pgbouncer.ini"
    ini.write_text(
        f"""[databases]
* = host={server.get("host") or "127.0.0.1"} port={server.get("port") or 5432}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {place / "users.txt"}
pool_mode = {mode}
default_pool_size = {sessions}
query_wait_timeout = {wait}
server_fast_close = 1
logfile = {place / "pgbouncer.log"}
"""
    )
    # As root it refuses to run: under another id that owns the same files it does.
    with subprocess.Popen(
        [*embedded._without_root(), PGBOUNCER, "-q", str(ini)], stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(lambda: _answers(port, process))
            yield make_conninfo(dsn, host="127.0.0.1", port=port, sslmode="disable")
        finally:
            process.terminate()


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, f"pgbouncer ended with {process.returncode}"
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
