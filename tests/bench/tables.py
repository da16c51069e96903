"""Markdown, as the documentation takes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table; a column whose name begins with ``>`` is set to the right."""
    yield ""
    yield _line([column.removeprefix(">") for column in columns])
    yield _line(["--:" if column.startswith(">") else "---" for column in columns])
    for row in rows:
        yield _line(row)
    yield ""


def megabytes(size: int) -> str:
    """Return a size in megabytes of a million bytes."""
    return f"{size / 1e6:.0f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
