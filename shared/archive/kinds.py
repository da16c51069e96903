"""Kinds: what can be archived, as the deployment's TOML file and the built-in one say it."""

from __future__ import annotations

import hashlib
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from shared.archive.retention import History, Prune, Retention, Scan, Strict
from shared.archive.written import quoted
from shared.catalog.names import CONTROL, likely, parse_table, visible
from shared.errors import Code, Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

KIND_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
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
        raise ValueError("table_control" if CONTROL.search(text) else "table_name")
    return str(name)


def _condition(text: str | None) -> str | None:
    if text is not None and CLOCK.search(text):
        raise ValueError("where_reads_clock")
    return text


class Related(Strict):
    """A table whose rows travel with their parent's; None stands for what a declared foreign key says."""

    table: str
    foreign_key: list[str] | None = Field(default=None, min_length=1)
    references: str | None = None
    where: str | None = None

    _names = field_validator("table", "references")(
        lambda text: text if text is None else _table(text)
    )
    _where = field_validator("where")(_condition)


class Kind(Retention):
    """One kind as its file says it; see the reference for what each member means.

    How old and how often is what ``apply`` makes its policy and plan of, and no part of the definition
    that jobs are bound to.
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
    related: list[Related] = Field(default=[])

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

    def definition(self, source: Where) -> dict[str, Any]:
        """Return the canonical definition: what a job stores and a manifest shows."""
        return {
            "source": source,
            **self.model_dump(mode="json", exclude={*Retention.model_fields, "belongs_to"}),
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


@dataclass(frozen=True)
class KindsFile:
    """A kinds file: its own kinds, and what it says of the node's volume and of our own history.

    ``history_of`` holds what is said of each built-in kind, ``named`` those that have a table of their own,
    ``prune`` how often archived rows of our own history are removed. All are empty without ``[history]``.
    """

    path: Path
    sha256: str
    kinds: tuple[NamedKind, ...]
    scan: Scan | None
    prune: Prune | None
    history_of: Mapping[str, Retention]
    named: frozenset[str]

    def elsewhere(self, namespace: str) -> tuple[NamedKind, ...]:
        """Return the kinds that the file has policies for, but in other namespaces."""
        return tuple(
            each
            for each in self.kinds
            if each.kind.after is not None and each.only_namespace not in (None, namespace)
        )


def load(path: Path | None) -> dict[str, NamedKind]:
    """Return the built-in kinds and those of the deployment's file, by name.

    Raises ``Refused`` (KINDS_INVALID) with every problem of the file, each with its place.
    """
    own = read(path).kinds if path is not None else ()
    return {each.name: each for each in (*builtin(), *own)}


def read(path: Path) -> KindsFile:
    """Return what the deployment's file says; raises ``Refused`` (KINDS_INVALID) with every problem."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = {"place": "", "problem": type(error).__name__}
        raise Refused(Code.KINDS_INVALID, file=str(path), problems=[problem]) from error
    return file_of(text, path)


def differing(asked: Iterable[NamedKind], node: Mapping[str, NamedKind]) -> list[NamedKind]:
    """Return the kinds of a file that are to have a policy, and that a node knows otherwise or not at all."""
    return [
        each
        for each in asked
        if each.kind.after is not None
        and (
            (known := node.get(each.name)) is None
            or (known.definition, known.only_namespace) != (each.definition, each.only_namespace)
        )
    ]


@cache
def builtin() -> tuple[NamedKind, ...]:
    """Return the kinds of Tallystick's own history, whose tables are in the control database."""
    text = (files("shared.archive") / "builtin.toml").read_text("utf-8")
    return parse(text, "builtin.toml", "control")


def parse(text: str, file: str, source: Where) -> tuple[NamedKind, ...]:
    """Read the kinds of a text; raises ``Refused`` with every problem found."""
    top, problems = _members(text, file, frozenset({"kinds"}))
    found = _kinds(top, source, problems)
    _refuse(file, problems)
    return found


def file_of(text: str, path: Path) -> KindsFile:
    """Read the text of a deployment's kinds file; raises ``Refused`` with every problem found."""
    file = str(path)
    top, problems = _members(text, file, frozenset({"kinds", "scan", "history"}))
    ours = frozenset(each.name for each in builtin())
    kinds = _kinds(top, "application", problems)
    problems += [
        {"place": f"kinds.{each.name}", "problem": "builtin_name"}
        for each in kinds
        if each.name in ours
    ]
    scan = _read_table(Scan, top["scan"], "scan", problems) if "scan" in top else None
    history, prune, named = _history(top.get("history"), ours, problems)
    _refuse(file, problems)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return KindsFile(path, digest, kinds, scan, prune, history, named)


def _members(
    text: str, file: str, known: frozenset[str]
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    try:
        top = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem = {"place": "", "problem": str(error)}
        raise Refused(Code.KINDS_INVALID, file=file, problems=[problem]) from error
    return top, [{"place": name, "problem": "unknown_member"} for name in sorted(set(top) - known)]


def _kinds(
    top: dict[str, Any], source: Where, problems: list[dict[str, str]]
) -> tuple[NamedKind, ...]:
    tables = top.get("kinds", {})
    if not isinstance(tables, dict):
        problems.append({"place": "kinds", "problem": "not_a_table"})
        return ()
    found = []
    for name, value in tables.items():
        if not KIND_NAME.fullmatch(name):
            problems.append({"place": f"kinds.{name}", "problem": "name"})
        kind = _read_table(Kind, value, f"kinds.{name}", problems)
        if kind is not None:
            found.append(NamedKind(name, source, kind))
    return tuple(found)


def _history(
    value: object, ours: frozenset[str], problems: list[dict[str, str]]
) -> tuple[dict[str, Retention], Prune | None, frozenset[str]]:
    """Return what is said of each built-in kind, of pruning, and which kinds have a table of their own."""
    nothing: tuple[dict[str, Retention], None, frozenset[str]] = ({}, None, frozenset())
    if value is None:
        return nothing
    members = value if isinstance(value, dict) else {}
    tables = {
        name: each
        for name, each in members.items()
        if name in {*ours, "prune"} and isinstance(each, dict)
    }
    general = {name: each for name, each in members.items() if name not in tables}
    read = _read_table(History, general if isinstance(value, dict) else value, "history", problems)
    if read is None:
        return nothing
    found: dict[str, Retention] = {}
    for name in ours:
        place = f"history.{name}"
        own = _read_table(History, general | tables.get(name, {}), place, problems)
        if own is not None:
            found[name] = own
    # How much is removed at a time is no matter of how much is archived at a time.
    often = {"every": read.every, "enabled": read.enabled} | tables.get("prune", {})
    prune = _read_table(Prune, often, "history.prune", problems)
    return found, prune, frozenset(tables) & ours


Table = TypeVar("Table", bound=Strict)


def _read_table(
    model: type[Table], value: object, place: str, problems: list[dict[str, str]]
) -> Table | None:
    """Read one table of the file; its problems join the others, each with its place."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems += [_problem(place, dict(each)) for each in error.errors()]
        return None


def _refuse(file: str, problems: list[dict[str, str]]) -> None:
    if problems:
        raise Refused(Code.KINDS_INVALID, file=file, problems=problems)


def _problem(place: str, error: dict[str, Any]) -> dict[str, str]:
    where = ".".join([place, *(str(part) for part in error["loc"])])
    cause = error.get("ctx", {}).get("error")
    problem = str(cause) if cause else str(error["type"])
    return {"place": where, "problem": problem, **_shown(problem, error["input"])}


def _shown(problem: str, value: object) -> dict[str, str]:
    """Return the name of a table that was not understood, and how the file should write it."""
    if problem not in {"table_name", "table_control"} or not isinstance(value, str):
        return {}
    meant = likely(value) if problem == "table_name" else None
    return {"table": visible(value)} | ({"written": quoted(str(meant))} if meant else {})
