"""How a command answers: one JSON document or something to read, errors on standard error, an exit code."""

from __future__ import annotations

import functools
import inspect
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, Protocol, runtime_checkable

import typer

from shared.errors import Code, Refused, TallystickError

if TYPE_CHECKING:
    from rich.console import Console

GOOD = 0
NOT_GOOD = 1
USAGE = 2
NOTHING_DONE = 3

# Arguments whose values a next step can name.
ABOUT = ("job", "kind")

P = ParamSpec("P")
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document and nothing else.")
]


def _nothing(_console: Console) -> None:
    """Show nothing: everything was shown on the way."""


@dataclass(frozen=True)
class Answer:
    """What a command found: the document for machines, the same for people, and how good it is.

    ``printed`` says that the document was printed already, item by item.
    """

    document: object
    show: Callable[[Console], None] = _nothing
    code: int = GOOD
    printed: bool = False


@runtime_checkable
class UsageProblem(Protocol):
    """What Typer raises for a command line it does not understand."""

    exit_code: int

    def show(self) -> None:
        """Print usage and problem to standard error."""

    def format_message(self) -> str:
        """Return the problem alone."""


def answering(command: Callable[P, Answer]) -> Callable[P, None]:
    """Give a command the option ``--json``, print what it answers, and turn errors into exit codes."""

    @functools.wraps(command)
    def answered(*args: P.args, **kwargs: P.kwargs) -> None:
        as_json = bool(kwargs["as_json"] if declared else kwargs.pop("as_json"))
        try:
            answer = command(*args, **kwargs)
            _print(answer, as_json=as_json)
        except BrokenPipeError:
            # Whoever read our output has seen enough; nothing more may be written on the way out.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(NOT_GOOD) from None
        except TallystickError as error:
            about = {name: kwargs[name] for name in ABOUT if isinstance(kwargs.get(name), str)}
            raise typer.Exit(tell(error, as_json=as_json, about=about)) from error
        except Exception as error:
            if isinstance(error, typer.Exit | typer.Abort | UsageProblem):
                raise
            raise typer.Exit(_fault(error, as_json=as_json)) from error
        raise typer.Exit(answer.code)

    signature = inspect.signature(command, eval_str=True)
    declared = "as_json" in signature.parameters
    if not declared:
        option = inspect.Parameter(
            "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption
        )
        signature = signature.replace(parameters=[*signature.parameters.values(), option])
    answered.__signature__ = signature  # type: ignore[attr-defined]
    return answered


def console(*, errors: bool = False) -> Console:
    """Return a console on one of the standard streams; plain text where that is no terminal."""
    from rich.console import Console

    return Console(stderr=errors, highlight=False, markup=False, emoji=False)


def tell(
    error: TallystickError, *, as_json: bool, about: Mapping[str, object] | None = None
) -> int:
    """Print an error with its words to standard error and return the exit code.

    ``about`` is what the command was about, for the words.
    """
    from handlers import shape

    told = shape.error(error, about)
    if as_json:
        print_json_error(told)
    else:
        out = console(errors=True)
        out.print(told["message"], style="red", soft_wrap=True)
        if told["next"]:
            out.print(told["next"], soft_wrap=True)
        code = told["code"]
        out.print(f"({code}: tallystick help {code})", style="dim", soft_wrap=True)
    return USAGE if isinstance(error, Refused) else NOT_GOOD


def print_json_error(told: dict[str, Any]) -> None:
    """Print an error as one line of JSON, the last on standard error."""
    typer.echo(json_text({"error": told}), err=True)


def json_text(document: object, indent: int | None = None) -> str:
    """Return a document as JSON in which only what can be printed stands as itself."""
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=str)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


@contextmanager
def json_items(name: str) -> Iterator[Callable[[object], None]]:
    """Print a document whose one member is a list, each item when it is known, so that none is kept.

    Also after an error what was printed is one document, with the items up to there; without any item nothing
    is printed.
    """
    begun = False

    def add(item: object) -> None:
        nonlocal begun
        between = "," if begun else f'{{\n  "{name}": ['
        begun = True
        lines = json_text(item, indent=2).replace("\n", "\n    ")
        typer.echo(f"{between}\n    {lines}", nl=False)

    try:
        yield add
    finally:
        if begun:
            typer.echo("\n  ]\n}")


def usage_problem(problem: UsageProblem, *, as_json: bool) -> int:
    """Tell what is wrong with the command line, and return the exit code."""
    if as_json:
        told = {"code": "USAGE", "params": {}, "message": problem.format_message()}
        print_json_error(told | {"next": "Add --help to the command to see how it is used."})
    else:
        problem.show()
    return problem.exit_code


def _fault(error: Exception, *, as_json: bool) -> int:
    logging.getLogger("tallystick").debug("a fault", exc_info=error)
    return tell(TallystickError(Code.INTERNAL_ERROR, type=type(error).__name__), as_json=as_json)


def _print(answer: Answer, *, as_json: bool) -> None:
    if as_json:
        if not answer.printed:
            typer.echo(json_text(answer.document, indent=2))
    else:
        answer.show(console())
    sys.stdout.flush()
