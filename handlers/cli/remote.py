"""Commands carried out on AWS: ``invoke``, and what ``--remote`` means to the others."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handlers.cli.answer import GOOD, NOT_GOOD, Answer, answering
from handlers.cli.options import StackOption

if TYPE_CHECKING:
    from rich.console import Console

    from handlers.shape import Json
    from shared.aws.function import Invoked
    from shared.errors import TallystickError

OPERATE = "operate"
# The text of an error of ours, on the platform.
CODED = re.compile(r"([A-Z][A-Z_]+): (.+)", re.DOTALL)


def event(text: str) -> Any:  # noqa: ANN401 - JSON
    """Return the event that a piece of JSON is."""
    try:
        return json.loads(text)
    except ValueError as error:
        problem = f"{text!r} is no JSON"
        raise typer.BadParameter(problem) from error


@answering
def invoke(
    function: Annotated[
        str,
        typer.Argument(
            metavar="FUNCTION",
            help="archive, scan, prune, operate or migrate of the stack; without one, a name or an ARN.",
        ),
    ],
    event: Annotated[
        str, typer.Option(parser=event, metavar="JSON", help="What it is invoked with.")
    ] = "{}",
    stack: StackOption = None,
) -> Answer:
    """Invoke a function on AWS, once, and show what it answers.

    The end of its log stands below. Exit code 1 when it ended in an error.
    """
    from shared.aws.function import invoke

    found = invoke(_named(function, stack), event)
    document = {
        "function": found.function,
        "version": found.version,
        "is_error": found.is_error,
        "payload": found.payload,
        "log": list(found.log),
    }
    return Answer(document, lambda out: _show(out, document), NOT_GOOD if found.is_error else GOOD)


def operated(action: str, **members: object) -> Json:
    """Have the stack's own function carry out an operator's action, and return what it answers.

    Members that are None are left out. An error there is raised here: ours as it is, any other as
    FUNCTION_FAILED. Raises ``Refused`` (STACK_MISSING) where nothing says which stack is meant.
    """
    from shared.aws import function
    from shared.aws import stack as stacks

    stack = required(None)
    given = {name: value for name, value in members.items() if value is not None}
    found = function.invoke(stacks.function(stack, OPERATE), {"action": action, **given})
    if found.is_error:
        raise failure(found)
    answered: Json = found.payload
    return answered


def failure(found: Invoked) -> TallystickError:
    """Return the error that an invocation ended in; one of ours keeps its code, its class and its words."""
    from shared import errors

    said = found.payload if isinstance(found.payload, dict) else {}
    kind, text = str(said.get("errorType", "")), str(said.get("errorMessage", ""))
    coded, ours = CODED.fullmatch(text), getattr(errors, kind, None)
    if (
        coded is None
        or coded[1] not in errors.Code.__members__
        or not isinstance(ours, type)
        or not issubclass(ours, errors.TallystickError)
    ):
        code, log = errors.Code.FUNCTION_FAILED, list(found.log)
        return errors.TallystickError(
            code, function=found.function, type=kind, detail=text, log=log
        )
    error = ours(errors.Code(coded[1]))
    error.words = coded[2]
    return error


def required(stack: str | None) -> str:
    """Return the stack that was named, else that of the settings; raises ``Refused`` (STACK_MISSING)."""
    from handlers.cli.session import configured
    from shared.errors import Code, Refused

    named = stack or configured().stack
    if named is None:
        raise Refused(Code.STACK_MISSING)
    return named


def _named(function: str, stack: str | None) -> str:
    from handlers.cli.session import configured
    from shared.aws import stack as stacks

    return stacks.function(stack or configured().stack, function)


def _show(out: Console, document: Json) -> None:
    style = "red" if document["is_error"] else ""
    text = json.dumps(document["payload"], indent=2, ensure_ascii=False)
    out.print(text, style=style, soft_wrap=True)
    if document["log"]:
        out.print("\nThe end of its log")
        for line in document["log"]:
            out.print(f"  {line}", style="dim", soft_wrap=True)
