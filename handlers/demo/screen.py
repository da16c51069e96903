"""What the demo's audience sees: the title of an act, a command as it is typed, and what it prints."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.rule import Rule
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, MONOKAI
from rich.text import Text

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from handlers.demo.stage import Stage

COMMAND = "bold green"
DANGER = "bold red"
THEMES = {"light": DEFAULT_TERMINAL_THEME, "dark": MONOKAI}
# A picture asks nobody's server for its letters; any fixed-width font will do.
FONT_FACES = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


@dataclass(frozen=True)
class Screen:
    """A console, the stage whose commands are shown on it, and where pictures of it go, if anywhere.

    Pictures need a console that records.
    """

    console: Console
    stage: Stage
    pictures: Path | None = None

    def act(self, title: str, text: str) -> None:
        """Open an act with its title and what it is about."""
        act(self.console, title, text)

    def typed(
        self, *arguments: str, expected: int = 0, aliases: dict[str, str] | None = None
    ) -> str:
        """Show a command as it would be typed, run it, show what it prints, and return that.

        ``aliases`` are the variables that stand for long arguments, by what they stand for; raises
        ``subprocess.CalledProcessError`` for another exit code than ``expected``.
        """
        shown = [(aliases or {}).get(each) or shlex.quote(each) for each in arguments]
        self.command(f"tallystick {' '.join(shown)}")
        printed = self.stage.run(*arguments, expected=expected)
        for line in printed.splitlines():
            self._print(Text(line.rstrip()))
        return printed

    def command(self, text: str, style: str = COMMAND) -> None:
        """Show a command that is not run here, or that runs in a way of its own."""
        self._print(Text(f"$ {text}", style=style))

    def said(self, text: str) -> None:
        """Show a line of the demo's own."""
        self._print(Text(text))

    def _print(self, text: Text) -> None:
        # A terminal wraps by itself, so that what is copied from it is whole; a picture cannot.
        self.console.print(text, soft_wrap=self.pictures is None)

    def drop(self) -> None:
        """Leave what was shown since the last picture out of the next one."""
        if self.pictures is not None:
            self.console.export_text(clear=True)

    def keep(self, name: str) -> None:
        """Keep what was shown since the last picture as two, one for light pages and one for dark."""
        if self.pictures is None:
            return
        for theme, colours in THEMES.items():
            picture = self.console.export_svg(title="make demo", theme=colours, clear=False)
            file = self.pictures / f"{name}-{theme}.svg"
            file.write_text(FONT_FACES.sub("", picture), "utf-8")
        self.drop()


def act(console: Console, title: str, text: str) -> None:
    """Open an act while there is no stage yet."""
    console.print()
    console.print(Rule(Text(title, style="bold"), align="left", style="cyan"))
    console.print(Text(text))
