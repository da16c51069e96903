"""Functions of AWS Lambda: asked for one more invocation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from shared.aws.client import answers, client

if TYPE_CHECKING:
    from collections.abc import Mapping


def ask(function: str, event: Mapping[str, object]) -> None:
    """Have a function, by name or ARN, invoked with an event at some time soon; whatever comes of it.

    Raises as ``answers`` does. An answer that was lost may have been a yes.
    """
    service = client("lambda")
    with answers("lambda", resource=function):
        service.invoke(
            FunctionName=function, InvocationType="Event", Payload=json.dumps(event).encode()
        )
