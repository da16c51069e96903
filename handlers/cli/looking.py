"""How an outlook reads: what is left, how long it takes, and why nothing happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from handlers.shape import Json


def left(item: Json | None) -> tuple[str | None, ...]:
    """Return of an outlook how far behind, how much is left, how long that takes, and the next run."""
    if item is None:
        return (None,) * 4
    run = item["next_run_seconds"]
    next_run = None if run is None else _time(run) if run > 0 else "due"
    return _time(item["behind_seconds"]), _roots(item), _time(item["drain_seconds"]), next_run


def reason(out: Console, item: Json | None) -> None:
    """Print the reason of an outlook, and what to do where somebody must; and what is not known."""
    if item is None:
        return
    out.print(f"  {item['message']}", soft_wrap=True)
    if item["attention"]:
        out.print(f"    {item['next']}", soft_wrap=True)
    if item["unknown"]:
        told = item["unknown"]["message"]
        out.print(f"  How much is left is not known: {told}", soft_wrap=True)


def standing(out: Console, item: Json | None) -> None:
    """Print in a line when a tick last came by, and what is left of the budgets."""
    if item is None:
        return
    job, volume = _room(item)
    text = f"  Last tick: {_ago(item)}. Budget left: {job} of a job, {volume or '-'} of the volume."
    out.print(text, soft_wrap=True)


def told(out: Console, item: Json) -> None:
    """Print an outlook whole."""
    from handlers.cli.table import facts

    behind, to_go, drained, _ = left(item)
    pace = item["roots_per_second"]
    job, volume = _room(item)
    reason(out, item)
    facts(
        out,
        [
            ("  behind", behind),
            ("  roots to go", to_go),
            ("  ticks to go", item["ticks_to_go"]),
            ("  pace", f"{pace:.3g} roots a second" if pace else None),
            ("  drained in", drained),
            ("  left of its budget", job),
            ("  left of the volume", volume),
            ("  last tick", _ago(item)),
        ],
    )


def _room(item: Json) -> tuple[str, str | None]:
    from shared.messages.template import size_text

    volume = item["volume_bytes_left"]
    return (
        size_text(max(0, item["job_bytes_left"])),
        None if volume is None else size_text(volume),
    )


def _ago(item: Json) -> str:
    ago = _time(item["last_tick_seconds"])
    return f"{ago} ago" if ago else "never"


def _roots(item: Json) -> str | None:
    if item["roots_to_go"] is None:
        return "?" if item["unknown"] else None
    return f"{'' if item['exact'] else '~'}{item['roots_to_go']}"


def _time(seconds: float | None) -> str | None:
    from shared.messages.template import seconds_text

    # Nobody waits for hundredths of a second here.
    return None if seconds is None else seconds_text(round(seconds)) if seconds >= 1 else "0 s"
