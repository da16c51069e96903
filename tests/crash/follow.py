"""Follow a process through its system calls, and do to it what is asked for at one of them."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.crash import ptrace

# Number and name on x86-64, and what says which file a call is about: its first argument is a descriptor,
# or a directory and a name; a link has two such pairs and is named by the second.
BY_DESCRIPTOR = {
    0: "read",
    1: "write",
    3: "close",
    5: "fstat",
    42: "connect",
    44: "sendto",
    45: "recvfrom",
    72: "fcntl",
    74: "fsync",
    217: "getdents64",
}
BY_NAME = {
    257: ("openat", 0),
    258: ("mkdirat", 0),
    262: ("newfstatat", 0),
    263: ("unlinkat", 0),
    265: ("linkat", 2),
    280: ("utimensat", 0),
}
HERE = -100
NAME_MAX_BYTES = 4096
# Calls that change what is on the volume, or make it durable.
CHANGING = {"openat", "write", "fsync", "mkdirat", "linkat", "unlinkat"}
# Names that differ from run to run.
VARYING = (
    (re.compile(r"^\.tmp/[0-9a-f]{32}$"), ".tmp/*"),
    (re.compile(r"^\.evidence/.+\.jsonl$"), ".evidence/*"),
    (re.compile(r"^[0-9a-f-]{73}"), "job"),
)
SOCKET = "the database"


@dataclass(frozen=True)
class Act:
    """What is to happen at the ``nth`` call of a ``kind`` that touches the volume or the database.

    ``how``: ``kill-before`` and ``kill-after`` it; ``fail`` instead of it or ``fail-after`` it did its work,
    with ``errno``; ``lie``: say it was done; ``hold`` the process before it.
    """

    kind: str
    nth: int
    how: str
    errno: int = 0


@dataclass(frozen=True)
class Change:
    """A call that did its work on the volume: its names as they are, and the bytes it wrote.

    ``call`` is its place among the calls followed; ``other`` is the source of a link, ``create`` tells
    whether an opening may make its file.
    """

    call: int
    kind: str
    path: str
    other: str = ""
    create: bool = False
    data: bytes = b""


@dataclass
class Followed:
    """A process that is followed; ``calls`` are those so far that touch the volume or the database.

    ``changes`` are those among them that changed the volume, or made it durable, and were done.
    """

    pid: int
    root: str
    acts: tuple[Act, ...]
    calls: list[tuple[str, str]] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    hits: list[tuple[str, str]] = field(default_factory=list)
    status: int | None = None
    held: int | None = None
    _counts: Counter[str] = field(default_factory=Counter)
    _at_exit: dict[int, Act] = field(default_factory=dict)
    _begun: dict[int, Change] = field(default_factory=dict)

    def run(self) -> None:
        """Let the process run until it is held or has ended."""
        if self.held is not None:
            thread, self.held = self.held, None
            ptrace.go_on(thread)
        while self.status is None and self.held is None:
            stop = ptrace.next_stop()
            if stop.status is not None:
                if stop.thread == self.pid:
                    self.status = stop.status
                continue
            if stop.at_call:
                try:
                    self._at_call(stop.thread)
                except ProcessLookupError:
                    # Killed while it stood there; its end comes by itself.
                    continue
            if self.held is None:
                ptrace.go_on(stop.thread, stop.signal)

    def _at_call(self, thread: int) -> None:
        call = ptrace.call_of(thread)
        if not call.at_entry:
            if (begun := self._begun.pop(thread, None)) and call.result >= 0:
                data = begun.data[: call.result]
                self.changes.append(replace(begun, data=data))
            self._on_exit(thread)
            return
        touched = self._touched(thread, call)
        if touched is None:
            return
        kind = touched[0]
        self.calls.append(touched)
        self._counts[kind] += 1
        if kind in CHANGING and touched[1] != SOCKET:
            self._begun[thread] = self._change(thread, call, kind)
        for act in self.acts:
            if (act.kind, act.nth) == (kind, self._counts[kind]):
                self.hits.append(touched)
                self._on_entry(thread, act)

    def _on_entry(self, thread: int, act: Act) -> None:
        if act.how == "kill-before":
            os.kill(self.pid, signal.SIGKILL)
        elif act.how == "hold":
            self.held = thread
        else:
            if act.errno == errno.ECONNRESET and act.how == "fail":
                # A reset ends the connection. After a send that failed libpq waits for that end for ever.
                ptrace.shut_instead(thread)
            elif act.how in {"fail", "lie"}:
                ptrace.prevent(thread)
            self._at_exit[thread] = act

    def _on_exit(self, thread: int) -> None:
        act = self._at_exit.pop(thread, None)
        if act is None:
            return
        if act.how == "kill-after":
            os.kill(self.pid, signal.SIGKILL)
        else:
            ptrace.answer(thread, -act.errno)

    def _touched(self, thread: int, call: ptrace.Call) -> tuple[str, str] | None:
        """Return the name of a call and what it touches; None for what is nothing to us."""
        if kind := BY_DESCRIPTOR.get(call.number):
            return self._named(kind, _target(thread, call.args[0]))
        if call.number not in BY_NAME:
            return None
        kind, pair = BY_NAME[call.number]
        directory, address = call.args[pair : pair + 2]
        return self._named(kind, self._path(thread, directory, address))

    def _path(self, thread: int, directory: int, address: int) -> str:
        name = _text(thread, address) if address else ""
        if name.startswith("/"):
            return name
        base = _target(thread, directory)
        return f"{base}/{name}" if name else base

    def _change(self, thread: int, call: ptrace.Call, kind: str) -> Change:
        at = len(self.calls) - 1
        if kind in {"write", "fsync"}:
            path = _target(thread, call.args[0])
            data = _memory(thread, call.args[1], call.args[2]) if kind == "write" else b""
            return Change(at, kind, self._inside(path), data=data)
        path = self._path(thread, *call.args[2:4] if kind == "linkat" else call.args[:2])
        other = self._path(thread, *call.args[:2]) if kind == "linkat" else "."
        create = kind == "openat" and bool(call.args[2] & os.O_CREAT)
        return Change(at, kind, self._inside(path), self._inside(other), create)

    def _inside(self, path: str) -> str:
        return path[len(self.root) + 1 :] or "."

    def _named(self, kind: str, path: str) -> tuple[str, str] | None:
        if path.startswith("socket:"):
            return kind, SOCKET
        if path != self.root and not path.startswith(self.root + "/"):
            return None
        name = path[len(self.root) + 1 :]
        for pattern, instead in VARYING:
            name = pattern.sub(instead, name)
        return kind, name or "."


def _target(thread: int, descriptor: int) -> str:
    number = descriptor & 0xFFFFFFFF
    name = "cwd" if number == HERE & 0xFFFFFFFF else f"fd/{number}"
    try:
        return str(Path(f"/proc/{thread}/{name}").readlink())
    except OSError:
        # A number that is no open descriptor; the call will say so itself.
        return ""


def _memory(thread: int, address: int, count: int) -> bytes:
    with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(count)


def _text(thread: int, address: int) -> str:
    with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return os.fsdecode(memory.read(NAME_MAX_BYTES).split(b"\0", 1)[0])
