"""What lies in the directory of one archive, read as a stream: batch files, and what is none."""

from __future__ import annotations

import re
import stat
from array import array
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.chain.batch import file_number
from shared.chain.manifest import MANIFEST_NAME
from shared.volume.files import ENTRIES_MAX, entries_of, shown, too_many_entries

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

# Names that file systems and desktops give to files of their own. None is ever opened.
HARMLESS = re.compile(
    r"\.nfs[0-9a-fA-F]+|\.fuse_hidden[0-9a-fA-F]+|lost\+found|\.snapshot|\.Trash-[0-9]+"
    r"|\.DS_Store|\._.*|\.AppleDouble|\.Spotlight-V100|\.Trashes|\.fseventsd|\.TemporaryItems"
    r"|\.localized|\.directory|@eaDir|#recycle|#snapshot|@Recycle|@Recently-Snapshot"
    r"|Thumbs\.db|desktop\.ini|\$RECYCLE\.BIN|System Volume Information",
    re.DOTALL,
)


@dataclass(frozen=True)
class Listing:
    """The entries of an archive's directory.

    ``numbers`` are those of the batch files, ascending, eight bytes each; ``foreign`` are the entries of
    other names, ``irregular`` the links, directories and devices under names of ours, ``harmless`` what
    file systems and desktops leave, all sorted and as they can be shown. ``bytes`` is the size of all
    regular files, None where it was not asked for.
    """

    numbers: Sequence[int]
    has_manifest: bool
    foreign: tuple[str, ...]
    irregular: tuple[str, ...]
    harmless: tuple[str, ...]
    bytes: int | None


def listed(directory: int, *, measured: bool = False) -> Listing:
    """Read a directory once, whatever the number of its batch files.

    ``measured`` also adds up the sizes. Raises ``Verdict`` (STORAGE_LIMIT) beyond ``ENTRIES_MAX`` entries
    that are neither batch files nor the manifest, and ``OSError``.
    """
    numbers = array("Q")
    others: dict[str, list[str]] = {"foreign": [], "irregular": [], "harmless": []}
    has_manifest, total, count = False, 0, 0
    with closing(entries_of(directory)) as entries:
        for entry in entries:
            total += _size(entry) if measured else 0
            number = file_number(entry.name)
            ours = entry.name == MANIFEST_NAME or _fits(number)
            if ours and entry.is_file(follow_symlinks=False):
                has_manifest = has_manifest or number is None
                numbers.extend(() if number is None else (number,))
                continue
            what = "irregular" if ours else "harmless" if is_harmless(entry.name) else "foreign"
            others[what].append(shown(entry.name))
            count += 1
            if count > ENTRIES_MAX:
                raise too_many_entries()
    return Listing(
        numbers=array("Q", sorted(numbers)),
        has_manifest=has_manifest,
        **{what: tuple(sorted(names)) for what, names in others.items()},
        bytes=total if measured else None,
    )


def is_harmless(name: str) -> bool:
    """Tell whether file systems or desktops leave entries of this name."""
    return HARMLESS.fullmatch(name) is not None


def _fits(number: int | None) -> bool:
    return number is not None and number < 1 << 64


def _size(entry: os.DirEntry[str]) -> int:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
