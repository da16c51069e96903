"""How a directory is mounted, from the system's own table, and what of that an archive cannot live with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from shared.doctor.finding import Finding, Severity, Subject
from shared.errors import Code

TABLE = Path("/proc/self/mounts")
# Spaces and the like are written in octal there.
ESCAPED = re.compile(r"\\([0-7]{3})")
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
# Inode numbers there may be made up by the client and differ after the next mount.
UNSURE_INODES = frozenset({"cifs", "smb3", "9p", "vboxsf", "exfat", "vfat"})
NETWORK = frozenset({"nfs", "nfs4"})
UNSHARED_LOCKS = frozenset({"nolock", "local_lock=all", "local_lock=posix"})


@dataclass(frozen=True)
class Mount:
    """One line of the table of mounts."""

    point: str
    kind: str
    options: frozenset[str]


def mounts() -> tuple[Mount, ...]:
    """Return the mounts of this system; none where it keeps no such table."""
    try:
        text = TABLE.read_text("utf-8", "backslashreplace")
    except OSError:
        return ()
    return parsed(text)


def parsed(text: str) -> tuple[Mount, ...]:
    """Read a table of mounts, one to a line; passes over what is no line of one."""
    return tuple(filter(None, map(_line, text.splitlines())))


def holding(table: tuple[Mount, ...], directory: Path) -> Mount | None:
    """Return the mount that a directory, written without links, lies on; later ones cover earlier ones."""
    found = None
    for mount in table:
        inside = PurePosixPath(directory).is_relative_to(mount.point)
        if inside and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def judged(mount: Mount) -> list[Finding]:
    """Return what is wrong with a mount for a volume of archives."""
    network = mount.kind in NETWORK
    checks = (
        (network and bool(mount.options & UNSHARED_LOCKS), "locks-not-shared", Severity.ERROR),
        (network and "soft" in mount.options, "soft", Severity.WARNING),
        (mount.kind in IN_MEMORY, "in-memory", Severity.WARNING),
        (mount.kind in UNSURE_INODES, "inodes", Severity.WARNING),
    )
    params = {"mount": mount.point, "kind": mount.kind}
    return [
        Finding(Code.VOLUME_MOUNT, Subject.VOLUME, severity, {"cause": cause, **params})
        for wrong, cause, severity in checks
        if wrong
    ]


def _line(line: str) -> Mount | None:
    parts = line.split(" ")
    if len(parts) < 4:  # noqa: PLR2004 - device, point, kind, options
        return None
    point = ESCAPED.sub(lambda match: chr(int(match[1], 8)), parts[1])
    return Mount(point, parts[2], frozenset(parts[3].split(",")))
