"""The demo's second half: what the archive proves, what it notices, and what comes back out of it."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from handlers.demo.screen import Screen
    from shared.db.connect import Row

KEY = "4721"
SHOWN_DIGITS = 16


class DifferenceError(Exception):
    """What was restored is not what was archived; the demo has found a fault in Tallystick."""


def chained(screen: Screen) -> None:
    """Show that each file names the digest of the one before, and verify all."""
    screen.act(
        "Every file names the digest of the one before",
        "So the last digest stands for all. The database keeps it, and so may you.",
    )
    directory = _archive_of(screen, "orders")
    for name in ("manifest.json", "000001.sql.zst", "000002.sql.zst"):
        screen.said(f"{hashlib.sha256((directory / name).read_bytes()).hexdigest()}  {name}")
    screen.said("…")
    screen.typed("archive", "tails")
    screen.typed("archive", "verify", "--all")


def tampered(screen: Screen) -> str:
    """Flip one bit in a copy of an archive, show that it is noticed, and return the file's name."""
    screen.act(
        "One bit of a copy is flipped", "In the middle of a file, in the middle of the chain."
    )
    copy = screen.stage.home / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(_archive_of(screen, "orders"), copy)
    victim = sorted(copy.glob("*.sql.zst"))[3]
    screen.command(f"cp -r volume/… copy  # and one bit of copy/{victim.name} is flipped")
    spoilt = bytearray(victim.read_bytes())
    spoilt[len(spoilt) // 2] ^= 1
    victim.write_bytes(spoilt)
    screen.typed("archive", "verify", str(copy), expected=1, aliases={str(copy): copy.name})
    shutil.rmtree(copy)
    return victim.name


def restored(screen: Screen) -> list[dict[str, Any]]:
    """Bring all back into an empty database, compare it with the shop, and return the comparison."""
    screen.act(
        "All of it back, into an empty database",
        "Tables are made from the manifest; then every row is compared with the shop's.",
    )
    empty = screen.stage.make_database("demo_restored")
    for kind in ("orders", "tickets"):
        screen.typed(
            *("archive", "restore", kind, "--to", empty, "--create-tables"),
            aliases={empty: '"$EMPTY"'},
        )
    until = {kind: _cutoff(screen, kind) for kind in ("orders", "tickets")}
    compared = _compared(
        screen.stage.digests(screen.stage.shop, until), screen.stage.digests(empty, until)
    )
    screen.said(f"\n{'TABLE':<12}{'ROWS':>8}  {'SHA-256 IN THE SHOP':<{SHOWN_DIGITS + 5}}RESTORED")
    for row in compared:
        there, here = (str(row[name])[:SHOWN_DIGITS] for name in ("shop", "restored"))
        screen.said(f"{row['table']:<12}{row['rows']:>8}  {there + '…':<{SHOWN_DIGITS + 5}}{here}…")
    if different := [row["table"] for row in compared if row["shop"] != row["restored"]]:
        raise DifferenceError(different)
    screen.said("Nothing differs.")
    return compared


def found(screen: Screen) -> None:
    """Find one order with its lines and payment."""
    screen.act("One order, out of all of them", "With the lines and the payment that belong to it.")
    screen.typed("archive", "find", "orders", KEY)


def _compared(shop: list[Row], restored: list[Row]) -> list[dict[str, Any]]:
    theirs = {row["table"]: row["sha256"] for row in restored}
    return [
        {
            "table": row["table"],
            "rows": row["rows"],
            "shop": row["sha256"],
            "restored": theirs.get(row["table"]),
        }
        for row in shop
    ]


def _cutoff(screen: Screen, kind: str) -> str:
    manifest = json.loads((_archive_of(screen, kind) / "manifest.json").read_bytes())
    return str(manifest["window"]["cutoff"])


def _archive_of(screen: Screen, kind: str) -> Path:
    """Return the directory of a kind's one archive."""
    for manifest in screen.stage.volume.glob("*-*/manifest.json"):
        if json.loads(manifest.read_bytes())["kind"] == kind:
            return manifest.parent
    raise FileNotFoundError(kind)
