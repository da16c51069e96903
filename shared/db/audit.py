"""Every change an operator makes is signed, and leaves an entry with what was before and after."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from shared.db.statement import statement
from shared.errors import Code, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    import psycopg

REASON_MAX_BYTES = 1024
ACTOR_MAX_BYTES = 256
# Controls, separators of lines and paragraphs, halves of surrogate pairs.
NOT_IN_A_LINE = frozenset({"Cc", "Zl", "Zp", "Cs"})

_dumps = partial(json.dumps, default=str)


@dataclass(frozen=True)
class Signature:
    """Who changes something, why, and which revision of it they saw (None: whichever is there).

    Both are one line of UTF-8 that is more than space: the reason at most 1024 bytes long, the actor at most
    256. Else ``Refused`` (REASON_INVALID).
    """

    actor: str
    reason: str
    revision: int | None = None

    def __post_init__(self) -> None:
        """Refuse a reason that explains nothing, and what does not fit one line."""
        if not _is_one_line(self.reason, REASON_MAX_BYTES):
            raise Refused(Code.REASON_INVALID, limit=REASON_MAX_BYTES)
        if not _is_one_line(self.actor, ACTOR_MAX_BYTES):
            raise Refused(Code.REASON_INVALID, cause="actor", limit=ACTOR_MAX_BYTES)


@dataclass(frozen=True)
class Change:
    """One change to one subject; ``before`` is None when the subject is new."""

    action: str
    subject: str
    subject_id: str
    namespace_id: UUID | None
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None


def _is_one_line(text: str, limit: int) -> bool:
    size = len(text.encode(errors="surrogatepass"))
    whole = all(unicodedata.category(character) not in NOT_IN_A_LINE for character in text)
    return bool(text.strip()) and size <= limit and whole


def record(
    connection: psycopg.Connection[dict[str, object]], signature: Signature, change: Change
) -> None:
    """Write the entry into the transaction that makes the change, so neither exists without the other."""
    connection.execute(
        statement("shared.db", "audit"),
        {
            "namespace_id": change.namespace_id,
            "actor": signature.actor,
            "action": change.action,
            "subject": change.subject,
            "subject_id": change.subject_id,
            "revision_seen": signature.revision,
            "reason": signature.reason,
            "before": Jsonb(change.before, _dumps) if change.before is not None else None,
            "after": Jsonb(change.after, _dumps) if change.after is not None else None,
        },
    )
