"""The shape of the code, as tests that fail."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE_MAX_LINES = 400
FUNCTION_MAX_LINES = 60

# Names that say nothing draw everything in.
FORBIDDEN_MODULES = {"utils", "util", "helpers", "common", "base", "types", "manager", "misc"}

# The listing is the architecture: what stands at the root of shared is decided, not grown.
SHARED_MODULES = {
    *("clock", "declaration", "errors", "loop", "metrics", "progress", "settings", "tick"),
    "wiring",
}
SHARED_PACKAGES = {
    *(
        "archive",
        "aws",
        "catalog",
        "chain",
        "db",
        "doctor",
        "jobs",
        "messages",
        "operations",
        "plans",
        "recovery",
    ),
    *("restore", "volume"),
}

# Each pattern holds a bracket that keeps this file from matching it.
FORBIDDEN_TEXT = {
    "unfinished work": r"\b([T]ODO|[F]IXME)\b",
    "a registry's address": r"py[p]i\.org|python[h]osted|://[^ /]+/(simple|packages)/",
    "an index option": r"--(extra-)?[i]ndex-url",
    "a machine's path": r"(^|[^a-z.])/([w]ork|[f]arm)/|/tmp/[b]rief|\.[l]ibrary/",
    "a paper outside the project": r"\b([p]rotocol|[c]ontract|[d]esign)\.md\b",
}


@cache
def files() -> tuple[Path, ...]:
    """Return every file of the project that git would keep."""
    ignored = {line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    return tuple(_walk(ROOT, ignored | {".git"}))


def _walk(directory: Path, ignored: set[str]) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if path.name in ignored or path.suffix == ".pyc":
            continue
        if path.is_dir():
            yield from _walk(path, ignored)
        else:
            yield path


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def modules(*folders: str) -> list[Path]:
    wanted = tuple(f"{folder}/" for folder in folders)
    return [path for path in files() if path.suffix == ".py" and name(path).startswith(wanted)]


def test_no_module_is_over_400_lines() -> None:
    lengths = {
        name(path): len(path.read_text().splitlines())
        for path in modules("handlers", "infra", "localstack", "shared")
    }
    assert {path: lines for path, lines in lengths.items() if lines > MODULE_MAX_LINES} == {}


def test_no_function_is_over_60_lines() -> None:
    long = {}
    for path in modules("handlers", "infra", "localstack", "shared", "tests"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_MAX_LINES:
                    long[f"{name(path)}:{node.name}"] = lines
    assert long == {}


def test_no_module_has_a_name_that_says_nothing() -> None:
    found = [
        name(path)
        for path in modules("handlers", "infra", "localstack", "shared", "tests")
        if FORBIDDEN_MODULES & set(path.relative_to(ROOT).with_suffix("").parts)
    ]
    assert found == []


def test_the_root_of_shared_holds_what_was_decided() -> None:
    depths = [path.relative_to(ROOT / "shared").parts for path in modules("shared")]
    assert {parts[0].removesuffix(".py") for parts in depths if len(parts) == 1} <= {
        *SHARED_MODULES,
        "__init__",
    }
    assert {parts[0] for parts in depths if len(parts) > 1} <= SHARED_PACKAGES


def test_every_package_says_in_one_sentence_what_it_is() -> None:
    folders = {path.parent for path in modules("handlers", "shared")}
    assert [name(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []
    for folder in folders:
        text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
        sentence = re.fullmatch(r"[^.]+(\.\w[^.]*)*\.", text.partition("\n\n")[0])
        assert sentence, f"{name(folder)} does not say in one sentence what it is: {text!r}"


def test_every_statement_has_a_user() -> None:
    code = "\n".join(path.read_text() for path in modules("handlers", "shared"))
    statements = [path for path in files() if path.suffix == ".sql" and path.parent.name == "sql"]
    assert [name(path) for path in statements if f'"{path.stem}"' not in code] == []


@pytest.mark.parametrize("what", FORBIDDEN_TEXT)
def test_no_file_contains(what: str) -> None:
    pattern = re.compile(FORBIDDEN_TEXT[what], re.MULTILINE)
    found = []
    for path in files():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name(path)}: {match[0]}" for match in pattern.finditer(text)]
    assert found == []


def test_the_locks_carry_hashes_and_no_address() -> None:
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    assert locks
    for lock in locks:
        text = lock.read_text()
        pins = re.findall(r"^[a-z0-9-]+==.*(?:\n    .*)*", text, re.MULTILINE)
        assert pins
        assert [pin.partition("\n")[0] for pin in pins if "--hash=sha256:" not in pin] == []
        assert "://" not in text
        assert not re.search(r"^-", text, re.MULTILINE)
