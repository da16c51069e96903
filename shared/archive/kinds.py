"""Kinds: what can be archived, as the deployment's TOML file and the built-in one say it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from shared.catalog.names import parse_table
from shared.errors import Code, Refused

if TYPE_CHECKING:
    from pathlib import Path

KIND_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
DURATION = re.compile(r"(\d{1,6})([smhd])")
UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# A condition that reads the clock would give the pages of one job different rows.
CLOCK = re.compile(
    r"\b(now|clock_timestamp|statement_timestamp|transaction_timestamp|timeofday|random)\s*\("
    r"|\b(current_date|current_time|current_timestamp|localtime|localtimestamp)\b",
    re.IGNORECASE,
)

Where = Literal["application", "control"]
TimeUnit = Literal["s", "ms", "us"]


def _table(text: str) -> str:
    name = parse_table(text)
    if name is None:
        raise ValueError("table_name")
    return str(name)


def _condition(text: str | None) -> str | None:
    if text is not None and CLOCK.search(text):
        raise ValueError("where_reads_clock")
    return text


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Related(_Strict):
    """A table whose rows travel with their parent's; None stands for what a declared foreign key says."""

    table: str
    foreign_key: list[str] | None = Field(default=None, min_length=1)
    references: str | None = None
    where: str | None = None

    _names = field_validator("table", "references")(
        lambda text: text if text is None else _table(text)
    )
    _where = field_validator("where")(_condition)


class Kind(_Strict):
    """One kind as its file says it; see the reference for what each member means.

    ``after``, ``every`` and ``batch`` are proposals for its policy and plan and no part of the
    definition that jobs are bound to.
    """

    root: str
    time: str
    key: list[str] | None = Field(default=None, min_length=1)
    namespace: str | None = None
    namespace_by: Literal["name", "id"] = "name"
    belongs_to: str = "default"
    where: str | None = None
    time_zone: str = "UTC"
    time_unit: TimeUnit | None = None
    related: list[Related] = []
    after: str | None = None
    every: str | None = None
    batch: int | None = None

    _root = field_validator("root")(_table)
    _where = field_validator("where")(_condition)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        if isinstance(value, dict) and isinstance(value.get("related"), list):
            long = [{"table": each} if isinstance(each, str) else each for each in value["related"]]
            return value | {"related": long}
        return value

    @model_validator(mode="after")
    def _each_table_once(self) -> Kind:
        tables = [self.root, *(related.table for related in self.related)]
        if len(set(tables)) != len(tables):
            raise ValueError("table_twice")
        return self

    @field_validator("after", "every")
    @classmethod
    def _duration(cls, text: str | None) -> str | None:
        if text is not None:
            seconds_of(text)
        return text

    def definition(self, source: Where) -> dict[str, Any]:
        """Return the canonical definition: what a job stores and a manifest shows."""
        return {
            "source": source,
            **self.model_dump(mode="json", exclude={"after", "every", "batch", "belongs_to"}),
        }


@dataclass(frozen=True)
class NamedKind:
    """A kind under its name; ``source`` says which database its tables are in."""

    name: str
    source: Where
    kind: Kind

    @property
    def definition(self) -> dict[str, Any]:
        """Return the canonical definition."""
        return self.kind.definition(self.source)

    @property
    def only_namespace(self) -> str | None:
        """Return the one namespace the kind belongs to; None when its rows name their own."""
        return None if self.kind.namespace else self.kind.belongs_to


def seconds_of(text: str) -> int:
    """Return the seconds of ``365d``, ``24h``, ``30m`` or ``10s``; raises ``ValueError`` for others."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise ValueError("duration")
    return int(match[1]) * UNIT_SECONDS[match[2]]


def load(path: Path | None) -> dict[str, NamedKind]:
    """Return the built-in kinds and those of the deployment's file, by name.

    Raises ``Refused`` (KINDS_INVALID) with every problem of the file, each with its place.
    """
    kinds = {each.name: each for each in builtin()}
    if path is None:
        return kinds
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = {"place": "", "problem": type(error).__name__}
        raise Refused(Code.KINDS_INVALID, file=str(path), problems=[problem]) from error
    for each in parse(text, str(path), "application"):
        if each.name in kinds:
            problem = {"place": f"kinds.{each.name}", "problem": "builtin_name"}
            raise Refused(Code.KINDS_INVALID, file=str(path), problems=[problem])
        kinds[each.name] = each
    return kinds


@cache
def builtin() -> tuple[NamedKind, ...]:
    """Return the kinds of Tallystick's own history, whose tables are in the control database."""
    text = (files("shared.archive") / "builtin.toml").read_text("utf-8")
    return parse(text, "builtin.toml", "control")


def parse(text: str, file: str, source: Where) -> tuple[NamedKind, ...]:
    """Read the text of a kinds file; raises ``Refused`` with every problem found."""
    try:
        top = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem = {"place": "", "problem": str(error)}
        raise Refused(Code.KINDS_INVALID, file=file, problems=[problem]) from error
    problems = [
        {"place": name, "problem": "unknown_member"} for name in sorted(set(top) - {"kinds"})
    ]
    tables = top.get("kinds", {})
    if not isinstance(tables, dict):
        problems.append({"place": "kinds", "problem": "not_a_table"})
        tables = {}
    found = []
    for name, value in tables.items():
        if not KIND_NAME.fullmatch(name):
            problems.append({"place": f"kinds.{name}", "problem": "name"})
        try:
            found.append(NamedKind(name, source, Kind.model_validate(value)))
        except ValidationError as error:
            problems += [_problem(name, dict(each)) for each in error.errors()]
    if problems:
        raise Refused(Code.KINDS_INVALID, file=file, problems=problems)
    return tuple(found)


def _problem(name: str, error: dict[str, Any]) -> dict[str, str]:
    place = ".".join(["kinds", name, *(str(part) for part in error["loc"])])
    cause = error.get("ctx", {}).get("error")
    return {"place": place, "problem": str(cause) if cause else str(error["type"])}
