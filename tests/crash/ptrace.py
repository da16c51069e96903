"""The few requests of ptrace(2) that following a process needs; Linux on x86-64 only.

``strace`` kills at the entry of a call only, counts for each thread by itself, and cannot let a call do its
work and then report an error; all three are needed here.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
from dataclasses import dataclass

SEIZE, INTERRUPT, SYSCALL, GET_REGISTERS, SET_REGISTERS = 0x4206, 0x4207, 24, 12, 13
GET_SYSCALL_INFO = 0x420E
# Stops at calls are told from signals; new threads are followed; the traced die with their tracer.
SYSGOOD, FOLLOW_THREADS, KILL_ON_EXIT = 0x1, 0x8, 0x100000
ENTRY, EXIT = 1, 2
ALL_CHILDREN = 0x40000000
STOPPED_AT_CALL = signal.SIGTRAP | 0x80

# Where the registers are in the block that the kernel gives, in words of eight bytes.
REGISTERS, RESULT, SECOND, NUMBER = 27, 10, 13, 15
NO_CALL = 2**64 - 1
SHUTDOWN, BOTH_WAYS = 48, 2

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


@dataclass(frozen=True)
class Call:
    """A system call as a thread stops at it: at its entry with number and arguments, or at its exit."""

    at_entry: bool
    number: int
    args: tuple[int, ...]

    @property
    def result(self) -> int:
        """Return, at its exit, what it gave; a negative error number for a failure."""
        return self.number - 2**64 if self.number >= 2**63 else self.number


@dataclass(frozen=True)
class Stop:
    """Why the kernel woke us: a thread ended (``status``), stopped at a call, or got a signal."""

    thread: int
    status: int | None
    at_call: bool
    signal: int


def require_linux_x86() -> None:
    """Say plainly where this cannot run."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise RuntimeError("kills and faults at system calls need Linux on x86-64")


def seize(pid: int) -> None:
    """Begin to follow a child of ours, and stop it."""
    _ptrace(SEIZE, pid, 0, SYSGOOD | FOLLOW_THREADS | KILL_ON_EXIT)
    _ptrace(INTERRUPT, pid, 0, 0)
    os.waitpid(pid, ALL_CHILDREN)


def go_on(thread: int, delivered: int = 0) -> None:
    """Let a stopped thread run to its next stop; one that was killed meanwhile is none of our business."""
    try:
        _ptrace(SYSCALL, thread, 0, delivered)
    except ProcessLookupError:
        return


def next_stop() -> Stop:
    """Wait for whatever happens next to any thread that is followed."""
    thread, status = os.waitpid(-1, ALL_CHILDREN)
    if not os.WIFSTOPPED(status):
        return Stop(thread, status, at_call=False, signal=0)
    number, event = os.WSTOPSIG(status), status >> 16
    if event:
        return Stop(thread, None, at_call=False, signal=0)
    if number == STOPPED_AT_CALL:
        return Stop(thread, None, at_call=True, signal=0)
    return Stop(thread, None, at_call=False, signal=number)


def call_of(thread: int) -> Call:
    """Return the call at which a thread stands."""
    buffer = ctypes.create_string_buffer(88)
    _ptrace(GET_SYSCALL_INFO, thread, len(buffer), ctypes.addressof(buffer))
    where, number, *args = struct.unpack_from("<B23xQ6Q", buffer.raw)
    return Call(where == ENTRY, number, tuple(args))


def prevent(thread: int) -> None:
    """At the entry of a call: let the kernel do nothing."""
    _set(thread, NUMBER, NO_CALL)


def shut_instead(thread: int) -> None:
    """At the entry of a call on a socket: let the kernel end the connection, and do nothing else."""
    _set(thread, SECOND, BOTH_WAYS)
    _set(thread, NUMBER, SHUTDOWN)


def answer(thread: int, value: int) -> None:
    """At the exit of a call: let it return ``value``, a negative error number for a failure."""
    _set(thread, RESULT, value & NO_CALL)


def _set(thread: int, register: int, value: int) -> None:
    registers = (ctypes.c_uint64 * REGISTERS)()
    _ptrace(GET_REGISTERS, thread, 0, ctypes.addressof(registers))
    registers[register] = value
    _ptrace(SET_REGISTERS, thread, 0, ctypes.addressof(registers))


def _ptrace(request: int, pid: int, address: int, data: int) -> None:
    ctypes.set_errno(0)
    if _libc.ptrace(request, pid, address, data) == -1 and (number := ctypes.get_errno()):
        raise OSError(number, os.strerror(number))
