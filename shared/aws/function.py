"""Functions of AWS Lambda: invoked while one waits for the answer, or asked for one more invocation."""

from __future__ import annotations

import base64
import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.aws.client import answers, client
from shared.errors import Code, Refused, Uncertain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The platform lets no function run for longer than 900.
ANSWER_SECONDS = 930.0
# What the platform says when it starts nothing, and what that is to whoever asked.
NOT_STARTED = {
    "ResourceNotFoundException": Code.FUNCTION_UNKNOWN,
    "TooManyRequestsException": Code.FUNCTION_THROTTLED,
}
# How its names for a mount's trouble begin, whether an answer, a state or a message has them; and our cause.
MOUNT_CAUSES = {
    "EFSIO": "io",
    "EFSMountConnectivity": "connectivity",
    "EFSMountFailure": "failure",
    "EFSMountTimeout": "timeout",
}
# Why it is throttled, where that is what was reserved for this function alone: perhaps nothing.
RESERVED = "ReservedFunctionConcurrentInvocationLimitExceeded"


@dataclass(frozen=True)
class Invoked:
    """What came of an invocation: its payload, whether that is an error, and the end of its log."""

    function: str
    version: str | None
    payload: Any
    is_error: bool
    log: tuple[str, ...]


def ask(function: str, event: Mapping[str, object]) -> None:
    """Have a function, by name or ARN, invoked with an event at some time soon; whatever comes of it.

    Raises as ``answers`` does. An answer that was lost may have been a yes.
    """
    service = client("lambda")
    with answers("lambda", resource=function):
        service.invoke(
            FunctionName=function, InvocationType="Event", Payload=json.dumps(event).encode()
        )


def invoke(function: str, event: object) -> Invoked:
    """Invoke a function, by name or ARN, once, and wait for what comes of it.

    Nothing is repeated: an invocation whose answer is long in coming is still at work. Raises ``Refused``
    (FUNCTION_UNKNOWN, FUNCTION_THROTTLED, FUNCTION_NOT_MOUNTED) where it was not started, ``Uncertain``
    (INVOCATION_LOST) where the answer was lost, and as ``answers`` does.
    """
    service = client("lambda", attempts=1, read_seconds=ANSWER_SECONDS)
    with answers("lambda", resource=function), _started(function):
        answer = service.invoke(
            FunctionName=function, LogType="Tail", Payload=json.dumps(event).encode()
        )
        payload = answer["Payload"].read()
    tail = base64.b64decode(answer.get("LogResult", "")).decode(errors="replace")
    return Invoked(
        function,
        answer.get("ExecutedVersion"),
        json.loads(payload) if payload else None,
        "FunctionError" in answer,
        tuple(tail.splitlines()),
    )


def mount_cause(said: str | None) -> str | None:
    """Return our cause of a mount's trouble that the platform names somewhere in what it says."""
    return next((cause for name, cause in MOUNT_CAUSES.items() if name in (said or "")), None)


@contextmanager
def _started(function: str) -> Iterator[None]:
    from botocore import exceptions  # noqa: PLC0415 - with boto3

    try:
        yield
    except exceptions.ClientError as error:
        said = error.response["Error"]["Code"]
        cause = mount_cause(said)
        code = Code.FUNCTION_NOT_MOUNTED if cause else NOT_STARTED.get(said)
        if code is None:
            raise
        if error.response.get("Reason") == RESERVED:
            cause = "reserved"
        raise Refused(
            code, function=function, cause=cause, detail=error.response["Error"].get("Message")
        ) from error
    except exceptions.HTTPClientError as error:
        # It was sent: the connection stood.
        raise Uncertain(Code.INVOCATION_LOST, function=function) from error
