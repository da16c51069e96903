"""Lists for people: columns without lines, whole ids, plain on a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

SHORT_ID = 8
COLOURS = {
    "FAILED": "red",
    "BROKEN": "red",
    "UNREADABLE": "red",
    "error": "red",
    "PAUSED": "yellow",
    "warning": "yellow",
    "SUCCEEDED": "green",
    "SOUND": "green",
    "RUNNING": "cyan",
}


def table(
    console: Console,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    empty: str,
    *,
    folds: Sequence[str] = (),
) -> None:
    """Print rows under their columns; a column whose name begins with > is aligned to the right.

    ``folds`` are the columns that may be broken over lines when the width is too small; no other ever is.
    """
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    if not rows:
        console.print(empty, soft_wrap=True)
        return
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        name = column.removeprefix(">")
        made.add_column(
            name,
            justify="right" if column.startswith(">") else "left",
            no_wrap=name not in folds,
            overflow="fold",
        )
    for row in rows:
        made.add_row(*(Text(cell(value), style=COLOURS.get(str(value), "")) for value in row))
    if console.is_terminal:
        console.print(made)
        return
    # On a pipe, the last column's padding would only be in the way of those who cut lines apart.
    with console.capture() as captured:
        console.print(made)
    lines = (line.rstrip() for line in captured.get().splitlines())
    console.print("\n".join(lines), soft_wrap=True)


def facts(console: Console, pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair to a line."""
    pairs = list(pairs)
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        console.print(f"{name:<{width}}  {cell(value)}", soft_wrap=True)


def cell(value: object) -> str:
    """Return a value as a list shows it."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    # Names may come from a hostile file, and this goes to terminals.
    if not text.replace("\n", "").isprintable():
        text = "".join(char if char.isprintable() or char == "\n" else "?" for char in text)
    return text


def short(value: str | None) -> str | None:
    """Return the beginning of an id, long enough to name the job by."""
    return value[:SHORT_ID] if value else None


def minute(time: str | None) -> str | None:
    """Return an RFC 3339 time as a list shows it: to the second, in UTC."""
    return time[:19].replace("T", " ") if time else None
