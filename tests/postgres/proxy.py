"""A network between a client and Postgres that loses what it is told to lose."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from psycopg.conninfo import conninfo_to_dict, make_conninfo

# The server's word that a transaction is committed, as it stands on the wire.
COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"
HOLD_SECONDS = 2


class Proxy:
    """Passes bytes on; after ``pass_commits``, ``lose_commits`` answers to COMMIT are swallowed and
    their connections cut.

    While ``down``, new connections are refused and those that speak are cut. With ``hold_until``,
    answers are held back until a client has sent those bytes: one that waits for an answer before it
    sends them waits for ever.
    """

    def __init__(self, dsn: str) -> None:
        self.server = conninfo_to_dict(dsn)
        self.lose_commits = 0
        self.pass_commits = 0
        self.down = False
        self.hold_until: bytes | None = None
        self.arrived = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        port = self.listener.getsockname()[1]
        self.dsn = make_conninfo(dsn, host="127.0.0.1", port=port, sslmode="disable")
        self.open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # Closing alone would leave the thread that accepts where it is, and the port with it.
        drop(self.listener)
        for each in self.open:
            drop(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.down:
                drop(client)
                continue
            try:
                server = self._connect()
            except OSError:
                drop(client)
                continue
            self.open += [client, server]
            for source, target in ((client, server), (server, client)):
                passing = threading.Thread(
                    target=self._pass, args=(source, target, source is server), daemon=True
                )
                passing.start()

    def _connect(self) -> socket.socket:
        host, port = str(self.server.get("host") or ""), int(self.server.get("port") or 5432)
        if not host.startswith("/"):
            return socket.create_connection((host or "127.0.0.1", port))
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(f"{host}/.s.PGSQL.{port}")
        except OSError:
            server.close()
            raise
        return server

    def _pass(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                if self.down:
                    break
                if self.hold_until is not None:
                    if not answers and self.hold_until in piece:
                        self.arrived.set()
                    if answers and not self.arrived.wait(HOLD_SECONDS):
                        break
                if answers and self.lose_commits and COMMITTED in piece:
                    if not self.pass_commits:
                        self.lose_commits -= 1
                        break
                    self.pass_commits -= 1
                target.sendall(piece)
        drop(source)
        drop(target)


def drop(each: socket.socket) -> None:
    """End a connection, or the listening for them."""
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


@contextmanager
def between(dsn: str) -> Iterator[Proxy]:
    """Stand between a client that uses ``proxy.dsn`` and the server at ``dsn``."""
    proxy = Proxy(dsn)
    try:
        yield proxy
    finally:
        proxy.close()
