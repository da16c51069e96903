"""What the event of an operator asks for: read, and refused where it cannot be meant."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from shared.errors import Code, Refused
from shared.jobs.rules import Action

TICK = "tick"
ACTIONS = (TICK, *Action)


class Asked(BaseModel):
    """An operator's event; a member that nobody knows is a member misspelt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: str = ""
    operation: str | None = None
    job: str = ""
    reason: str = ""
    actor: str = "operate"
    revision: int | None = None
    max_bytes: int | None = None


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
