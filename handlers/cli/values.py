"""Sizes and durations as people write them."""

from __future__ import annotations

import re

import typer

UNITS = {
    "": 1,
    "b": 1,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
SIZE = re.compile(r"([0-9]{1,15}) ?(B|KiB|MiB|GiB|TiB)?", re.IGNORECASE)
DURATION = re.compile(r"([0-9]{1,9}) ?([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DAY_SECONDS = 86400
SHA256 = re.compile(r"[0-9a-f]{64}")
STORAGE_ID = re.compile(r"[0-9a-f]{32}")


def size(text: str) -> int:
    """Return the bytes of ``256MiB``, ``10GiB`` or ``1048576``."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        problem = f"{text!r} is no size; write bytes, or a number with KiB, MiB, GiB or TiB: 256MiB"
        raise typer.BadParameter(problem)
    return int(match[1]) * UNITS[(match[2] or "").lower()]


def duration(text: str) -> int:
    """Return the seconds of ``10s``, ``30m``, ``24h`` or ``365d``."""
    match = DURATION.fullmatch(text.strip())
    if match is None:
        problem = f"{text!r} is no duration; write a number with s, m, h or d: 24h"
        raise typer.BadParameter(problem)
    return int(match[1]) * SECONDS[match[2]]


def days(text: str) -> int:
    """Return the days of ``365d``; a duration that is not whole days is refused."""
    seconds = duration(text)
    if seconds % DAY_SECONDS:
        problem = f"{text!r} is not a whole number of days: write 365d"
        raise typer.BadParameter(problem)
    return seconds // DAY_SECONDS


def as_duration(seconds: int) -> str:
    """Return seconds as they are written for us, exactly: ``90m``, ``24h``, ``7d``."""
    for unit, size_ in (("d", DAY_SECONDS), ("h", 3600), ("m", 60)):
        # A day is written 24h, as everybody does.
        if seconds % size_ == 0 and (unit != "d" or seconds > DAY_SECONDS):
            return f"{seconds // size_}{unit}"
    return f"{seconds}s"


def as_size(number: int) -> str:
    """Return bytes as they are written for us, exactly: ``256MiB``, or a plain number."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if number and number % UNITS[unit.lower()] == 0:
            return f"{number // UNITS[unit.lower()]}{unit}"
    return str(number)


def sha256(text: str) -> str:
    """Return a digest in lowercase hex digits."""
    digest = text.strip().lower()
    if not SHA256.fullmatch(digest):
        problem = f"{text!r} is no SHA-256: 64 hex digits"
        raise typer.BadParameter(problem)
    return digest


def storage_id(text: str) -> str:
    """Return the identity of a volume, 32 lowercase hex digits."""
    given = text.strip()
    if not STORAGE_ID.fullmatch(given):
        problem = f"{text!r} is no storage id: 32 lowercase hex digits"
        raise typer.BadParameter(problem)
    return given
