"""An archive as a value: the entries of its directory, to be changed by pure functions and laid out."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.chain.batch import file_name
from shared.chain.canonical import canonical_json, parse_json, sha256_hex
from shared.chain.frame import decompressed
from shared.chain.manifest import MANIFEST_NAME
from tests.unit.chain.scribe import chain, stored


@dataclass(frozen=True)
class Link:
    """A symbolic link to another entry, whose bytes lie outside the directory."""

    data: bytes


@dataclass(frozen=True)
class Hard:
    """Another name of an entry's file."""

    name: str


@dataclass(frozen=True)
class Odd:
    """What is no file: ``pipe``, ``socket``, ``directory`` or ``device``."""

    what: str


Entries = Mapping[str, bytes | Link | Hard | Odd]
Change = Callable[[Entries], Entries]


def entries(manifest: bytes, files: list[bytes]) -> Entries:
    batches = {file_name(seq): data for seq, data in enumerate(files, start=1)}
    return {MANIFEST_NAME: manifest, **batches}


WHOLE = entries(*chain())
OPEN = entries(*chain(final=False))


def batch(archive: Entries, name: str) -> bytes:
    data = archive[name]
    assert isinstance(data, bytes)
    return data


def tail(archive: Entries) -> str:
    return sha256_hex(batch(archive, max(archive, key=lambda name: (name != MANIFEST_NAME, name))))


def text(data: bytes) -> bytes:
    return b"".join(decompressed([data]))


def relinked(archive: Entries, first: int = 1) -> Entries:
    """Link every batch from ``first`` on to the file before it, as whoever rewrites a chain would."""
    made = dict(archive)
    seq = first
    while (name := file_name(seq)) in made:
        before = batch(made, file_name(seq - 1) if seq > 1 else MANIFEST_NAME)
        heading, _, rest = text(batch(made, name)).partition(b"\n")
        mark, _, spelled = heading.rpartition(b" {")
        header = parse_json(b"{" + spelled)
        assert isinstance(header, dict)
        header["prev"] = sha256_hex(before)
        made[name] = stored(mark + b" " + canonical_json(header) + b"\n" + rest)
        seq += 1
    return made


def lay(archive: Entries, directory: Path) -> Path:
    """Make the directory; links lead to a place beside it."""
    directory.mkdir(parents=True)
    for name, entry in archive.items():
        path = directory / name
        if isinstance(entry, bytes):
            path.write_bytes(entry)
        elif isinstance(entry, Link):
            outside = directory.with_name(f"{directory.name}-outside")
            outside.write_bytes(entry.data)
            path.symlink_to(outside)
        elif isinstance(entry, Hard):
            path.hardlink_to(directory / entry.name)
        else:
            ODD[entry.what](path)
    return directory


def _socket(path: Path) -> None:
    # Bound by a short name: a socket's path is limited to some hundred bytes.
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


ODD: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "socket": _socket,
    "directory": Path.mkdir,
    "device": lambda path: os.mknod(path, 0o20600, os.makedev(1, 3)),
}
