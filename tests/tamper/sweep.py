"""A small archive, and every way to flip a bit of it or to cut one of its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shared.chain.manifest import Table
from tests.tamper.shelf import Entries, batch, entries
from tests.unit.chain.scribe import MANIFEST, chain, column

# As little as an archive can be, so that all of it can be tried.
TASKS = Table("app", "tasks", None, (), (), (column("id"), column("at")))
SMALL = replace(MANIFEST, tables=(TASKS,), time="at", definition={})
PAGES = ((b"1\t2026-01-01\n",), (b"2\t2026-01-02\n3\t2026-01-03\n",), (b"",))
ARCHIVE = entries(*chain(SMALL, PAGES))


def flips(archive: Entries, bits: range = range(8)) -> Iterator[tuple[str, int, Entries]]:
    """Yield each file's name, each place in it, and the archive with one bit there flipped."""
    for name in archive:
        data = batch(archive, name)
        for at, byte in enumerate(data):
            for bit in bits:
                flipped = data[:at] + bytes([byte ^ 1 << bit]) + data[at + 1 :]
                yield name, at, {**archive, name: flipped}


def one_bit_flips(archive: Entries) -> Iterator[tuple[str, int, Entries]]:
    """As ``flips``, one bit of each byte: another one each time, so that all eight have their turn."""
    for name in archive:
        data = batch(archive, name)
        for at, byte in enumerate(data):
            flipped = data[:at] + bytes([byte ^ 1 << at % 8]) + data[at + 1 :]
            yield name, at, {**archive, name: flipped}


def cuts(archive: Entries) -> Iterator[tuple[str, int, Entries]]:
    """Yield each file's name, each length below its own, and the archive with it cut to that."""
    for name in archive:
        data = batch(archive, name)
        for length in range(len(data)):
            yield name, length, {**archive, name: data[:length]}
