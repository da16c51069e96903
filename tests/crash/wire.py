"""A network that goes away at the Nth message: cut once, cut for good, silent, or with its server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tests.postgres.proxy import Proxy, drop

# The server does nothing for these until another message follows: cut here is cut before that one.
# Parse, Bind, Describe, Close; Terminate has no answer and nothing comes after it.
IDLE = frozenset("PBDCX")
# The server answers these at once; the answer to any other waits for one of them.
ANSWERED = frozenset({"start", "Q", "S", "H", "p", "F"})

# How it happens. The message is not forwarded; it is, and no byte of its answer comes back; it is, and
# half of what the server answers first comes back.
BEFORE, AFTER, TORN = "before", "after", "torn"


@dataclass(frozen=True)
class Cut:
    """What happens at message ``nth``, counted from 1 over all connections.

    ``away`` says that nobody gets through afterwards; ``silent`` that instead of a cut nothing passes on
    that connection any more, and neither end is told.
    """

    nth: int
    way: str
    away: bool = False
    silent: bool = False

    def __str__(self) -> str:
        """Name it, for whoever reads the judgement."""
        after = " for good" if self.away else ""
        return f"{'silent' if self.silent else 'cut'} {self.way} message {self.nth}{after}"


class Wire(Proxy):
    """Passes messages on and counts those that make the server do something, until the cut.

    ``seen`` names them by the protocol's letter; ``struck`` is the one at which the cut was made. ``first``
    is done right before the cut, when the answer (if one is waited for) has arrived here.
    """

    def __init__(
        self, dsn: str, cut: Cut | None = None, first: Callable[[], None] = lambda: None
    ) -> None:
        self.cut = cut
        self._first = first
        self.seen: list[str] = []
        self.struck: str | None = None
        self._counting = threading.Lock()
        self._losing: set[socket.socket] = set()
        self._ended = threading.Event()
        super().__init__(dsn)

    def close(self) -> None:
        self._ended.set()
        super().close()

    def _pass(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            if answers:
                self._answer(source, target)
            else:
                self._ask(source, target)
        drop(source)
        drop(target)

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        waiting, kind = b"", ""
        while piece := client.recv(65536):
            waiting += piece
            passing = b""
            while size := _whole(waiting, started=bool(kind)):
                message, waiting = waiting[:size], waiting[size:]
                last, kind = kind, chr(message[0]) if kind else "start"
                # After a Sync a Flush has nothing left to ask for.
                cut = None if (last, kind) == ("S", "H") else self._strikes(kind)
                if cut is not None:
                    if cut.way != BEFORE:
                        passing += message
                        self._losing.add(server)
                    server.sendall(passing)
                    self.down = cut.away
                    if cut.silent:
                        self._ended.wait()
                        return
                    if cut.way == BEFORE:
                        self._first()
                        return
                    passing = b""
                    continue
                passing += message
            server.sendall(passing)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        while piece := server.recv(65536):
            if server not in self._losing:
                client.sendall(piece)
                continue
            assert self.cut is not None
            if self.cut.silent:
                continue
            self._first()
            if self.cut.way == TORN:
                client.sendall(piece[: len(piece) // 2])
            return

    def _strikes(self, kind: str) -> Cut | None:
        if kind in IDLE:
            return None
        with self._counting:
            self.seen.append(kind)
            if self.cut is None or len(self.seen) != self.cut.nth:
                return None
            self.struck = kind
            return self.cut


def _whole(waiting: bytes, *, started: bool) -> int:
    """Return the length of the first message, or 0 when it is not all there."""
    head = 1 if started else 0
    if len(waiting) < head + 4:
        return 0
    size = head + int.from_bytes(waiting[head : head + 4])
    return size if size <= len(waiting) else 0


@contextmanager
def wire(
    dsn: str, cut: Cut | None = None, first: Callable[[], None] = lambda: None
) -> Iterator[Wire]:
    """Stand between a client that uses ``.dsn`` and the server at ``dsn``."""
    made = Wire(dsn, cut, first)
    try:
        yield made
    finally:
        made.close()
