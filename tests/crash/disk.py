"""What a power cut leaves of a volume: whatever was not made durable may be gone, in any order.

A model, and a strict one: a name is durable once its directory was synced, the bytes of a file once the file
was, and neither says anything about the other. Real file systems keep more; none may keep less.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.follow import Change

# Path below the root to the bytes of a file; None for a directory.
Tree = Mapping[str, bytes | None]
ROOT = "."


@dataclass
class File:
    """Bytes that are durable, and bytes written since."""

    synced: bytes = b""
    written: bytes = b""

    def survivors(self) -> list[bytes]:
        """Return what may be there after a cut: nothing new, a part, the size without the bytes, all."""
        whole = self.synced + self.written
        torn = self.synced + self.written[: len(self.written) // 2]
        hollow = self.synced + bytes(len(self.written))
        return list(dict.fromkeys((self.synced, torn, hollow, whole)))


@dataclass
class Directory:
    """Names that are durable, and changes of names since: a number of a node, or None for a removal."""

    synced: dict[str, int] = field(default_factory=dict)
    changed: list[tuple[str, int | None]] = field(default_factory=list)

    def now(self) -> dict[str, int]:
        return _applied(self.synced, self.changed)

    def survivors(self) -> list[dict[str, int]]:
        """Return the names that may be there after a cut, the fewest changes first."""
        found: list[dict[str, int]] = []
        for count in range(len(self.changed) + 1):
            for some in itertools.combinations(self.changed, count):
                names = _applied(self.synced, some)
                if names not in found:
                    found.append(names)
        return found


class Disk:
    """A volume, of which everything was durable when it was looked at."""

    def __init__(self, tree: Tree) -> None:
        """Begin with what is there."""
        self.nodes: list[File | Directory] = [Directory()]
        for path, content in sorted(tree.items()):
            node = Directory() if content is None else File(content)
            self._parent(path).synced[_name(path)] = self._added(node)

    def replay(self, changes: Iterable[Change]) -> Disk:
        """Do again what a process did."""
        for change in changes:
            self._do(change)
        return self

    def tree(self) -> Tree:
        """Return what a process sees, which is no matter of durability."""
        names = {
            number: node.now()
            for number, node in enumerate(self.nodes)
            if isinstance(node, Directory)
        }
        contents = {
            number: node.synced + node.written
            for number, node in enumerate(self.nodes)
            if isinstance(node, File)
        }
        return dict(_walked(0, names, contents))

    def survivors(self) -> list[Tree]:
        """Return every tree that a power cut may leave, what keeps least first."""
        found: list[Tree] = []
        directories = {
            n: x.survivors() for n, x in enumerate(self.nodes) if isinstance(x, Directory)
        }
        files = {n: x.survivors() for n, x in enumerate(self.nodes) if isinstance(x, File)}
        for contents in itertools.product(*files.values()):
            for names in itertools.product(*directories.values()):
                tree = dict(
                    _walked(
                        0,
                        dict(zip(directories, names, strict=True)),
                        dict(zip(files, contents, strict=True)),
                    )
                )
                if tree not in found:
                    found.append(tree)
        return found

    def _do(self, change: Change) -> None:
        if change.kind == "openat":
            parent = self._parent(change.path)
            if change.create and _name(change.path) not in parent.now():
                parent.changed.append((_name(change.path), self._added(File())))
        elif change.kind == "mkdirat":
            self._parent(change.path).changed.append((_name(change.path), self._added(Directory())))
        elif change.kind == "linkat":
            number = self._parent(change.other).now()[_name(change.other)]
            self._parent(change.path).changed.append((_name(change.path), number))
        elif change.kind == "unlinkat":
            self._parent(change.path).changed.append((_name(change.path), None))
        elif change.kind == "write":
            node = self._at(change.path)
            assert isinstance(node, File)
            node.written += change.data
        else:
            self._synced(self._at(change.path))

    def _synced(self, node: File | Directory) -> None:
        if isinstance(node, File):
            node.synced, node.written = node.synced + node.written, b""
        else:
            node.synced, node.changed = node.now(), []

    def _added(self, node: File | Directory) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _at(self, path: str) -> File | Directory:
        if path == ROOT:
            return self.nodes[0]
        return self.nodes[self._parent(path).now()[_name(path)]]

    def _parent(self, path: str) -> Directory:
        node = self._at(str(Path(path).parent))
        assert isinstance(node, Directory)
        return node


def looked_at(root: Path) -> Tree:
    """Return what is below a directory."""
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in root.rglob("*")
    }


def laid_out(tree: Tree, root: Path) -> None:
    """Make a volume as a cut left it."""
    root.mkdir(mode=0o700)
    for path, content in sorted(tree.items()):
        if content is None:
            (root / path).mkdir(mode=0o700)
        else:
            (root / path).write_bytes(content)
            (root / path).chmod(0o600)


def _walked(
    at: int,
    names: Mapping[int, Mapping[str, int]],
    contents: Mapping[int, bytes],
    below: str = "",
) -> Iterator[tuple[str, bytes | None]]:
    for name, number in sorted(names[at].items()):
        yield below + name, contents.get(number)
        if number in names:
            yield from _walked(number, names, contents, f"{below}{name}/")


def _applied(names: Mapping[str, int], changes: Iterable[tuple[str, int | None]]) -> dict[str, int]:
    left = dict(names)
    for name, number in changes:
        if number is None:
            left.pop(name, None)
        else:
            left[name] = number
    return left


def _name(path: str) -> str:
    return Path(path).name
