"""How old and how often, as a kinds file says it: of each kind, of the node's volume, of our own history."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from shared.jobs import rules

DURATION = re.compile(r"(\d{1,6})([smhd])")
UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SIZE = re.compile(r"(\d{1,7})(KiB|MiB|GiB|TiB)")
UNIT_BYTES = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
DAY_SECONDS = UNIT_SECONDS["d"]

Scope = Literal["new", "all"]


class Strict(BaseModel):
    """What the tables of a kinds file are read with: no other member, no other type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Timed(Strict):
    """How often a plan makes a job, and how much the job may do; None takes the plan's default."""

    every: str | None = None
    batch: int | None = None
    max_bytes: str | None = None
    enabled: bool = True

    @field_validator("every")
    @classmethod
    def _every(cls, text: str | None) -> str | None:
        lowest, highest = rules.INTERVAL_MIN_SECONDS, rules.INTERVAL_MAX_SECONDS
        if text is not None and not lowest <= seconds_of(text) <= highest:
            raise ValueError("every_range")
        return text

    @field_validator("batch")
    @classmethod
    def _batch(cls, roots: int | None) -> int | None:
        if roots is not None and not 1 <= roots <= rules.BATCH_MAX:
            raise ValueError("batch_range")
        return roots

    @field_validator("max_bytes")
    @classmethod
    def _max_bytes(cls, text: str | None) -> str | None:
        if text is not None and not rules.BUDGET_MIN <= bytes_of(text) <= rules.BUDGET_MAX:
            raise ValueError("size_range")
        return text

    @property
    def interval_seconds(self) -> int | None:
        """Return ``every`` in seconds."""
        return None if self.every is None else seconds_of(self.every)

    @property
    def budget(self) -> int | None:
        """Return ``max_bytes`` in bytes."""
        return None if self.max_bytes is None else bytes_of(self.max_bytes)


class Retention(Timed):
    """When rows are old, too: a policy (``after``) and a plan (``every``), each only where it is said."""

    after: str | None = None
    scope: Scope | None = None

    @field_validator("after")
    @classmethod
    def _after(cls, text: str | None) -> str | None:
        if text is not None:
            days, rest = divmod(seconds_of(text), DAY_SECONDS)
            if rest or days > rules.AFTER_MAX_DAYS:
                raise ValueError("after_range")
        return text

    @model_validator(mode="after")
    def _plan_has_a_policy(self) -> Retention:
        if self.every is not None and self.after is None:
            raise ValueError("every_alone")
        return self

    @property
    def after_days(self) -> int | None:
        """Return ``after`` in days."""
        return None if self.after is None else seconds_of(self.after) // DAY_SECONDS


class Scan(Timed):
    """How often the volume of the node is scanned; ``batch`` counts files."""

    every: str


class Prune(Timed):
    """How often rows of our own history that were archived are removed; ``batch`` counts rows."""

    every: str


class History(Retention):
    """How long our own history stays in the database."""

    after: str
    every: str


def seconds_of(text: str) -> int:
    """Return the seconds of ``365d``, ``24h``, ``30m`` or ``10s``; raises ``ValueError`` for others."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise ValueError("duration")
    return int(match[1]) * UNIT_SECONDS[match[2]]


def bytes_of(text: str) -> int:
    """Return the bytes of ``256MiB`` or ``1GiB``; raises ``ValueError`` for others."""
    match = SIZE.fullmatch(text)
    if match is None:
        raise ValueError("unit_of_size")
    return int(match[1]) * UNIT_BYTES[match[2]]
