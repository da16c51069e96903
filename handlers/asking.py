"""What the event of an operator asks for: read, and refused where it cannot be meant."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from shared.errors import Code, Refused
from shared.jobs.rules import Action

TICK = "tick"
ACTIONS = (TICK, *Action)


def _no_truth_value(value: object) -> object:
    """Refuse ``true`` where a number belongs: it would count as 1, a revision that nobody saw."""
    if isinstance(value, bool):
        raise ValueError  # noqa: TRY004 - pydantic reports a ValueError with its member
    return value


Number = Annotated[int, BeforeValidator(_no_truth_value)]


class Asked(BaseModel):
    """An operator's event; a member that nobody knows is a member misspelt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: str = ""
    operation: str | None = None
    job: str = ""
    reason: str = ""
    actor: str = "operate"
    revision: Number | None = None
    max_bytes: Number | None = None


def asked(event: object) -> Asked:
    """Read an event; raises ``Refused`` (ACTION_NOT_ALLOWED) where it has no action that there is."""
    try:
        read = Asked.model_validate(event or {})
    except ValidationError as error:
        members = sorted({str(each["loc"][0]) if each["loc"] else "all" for each in error.errors()})
        raise Refused(Code.ACTION_NOT_ALLOWED, cause="event", members=members) from error
    if read.action not in ACTIONS:
        allowed = sorted(ACTIONS)
        raise Refused(Code.ACTION_NOT_ALLOWED, action=read.action, cause="unknown", allowed=allowed)
    return read
