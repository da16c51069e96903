"""Whether the tables of an archive fit those of a target: every difference, before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from shared.catalog.facts import declared
from shared.catalog.names import TableName, parse_table
from shared.errors import Code, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shared.chain.manifest import Column, Manifest, Table
    from shared.restore.target import Found


class Unfit(StrEnum):
    """Why a table of the target cannot take the rows of an archive."""

    TABLE_MISSING = "table_missing"
    NOT_A_TABLE = "not_a_table"
    NOT_WRITABLE = "not_writable"
    ROW_SECURITY = "row_security"
    COLUMN_MISSING = "column_missing"
    COLUMN_EXTRA = "column_extra"
    TYPE = "type"
    COLLATION = "collation"
    LABELS = "labels"
    GENERATED = "generated"
    TYPE_MISSING = "type_missing"
    COLLATION_MISSING = "collation_missing"
    NOT_CREATED = "not_created"
    MAPPED_UNKNOWN = "mapped_unknown"
    MAPPED_TWICE = "mapped_twice"
    RECORD_DIFFERS = "record_differs"
    RECORDS_OWNER = "records_owner"
    RECORDS_KIND = "records_kind"
    RECORDS_CHANGED = "records_changed"
    RECORDS_STALE = "records_stale"
    SESSION_REPLICA = "session_replica"
    KEY_NOT_ENFORCED = "key_not_enforced"
    RULES = "rules"


class Warned(StrEnum):
    """What should be known before rows go into a table, and hinders nothing by itself."""

    TRIGGERS = "RESTORE_TRIGGERS"
    FOREIGN_KEY_OUTSIDE = "RESTORE_FOREIGN_KEY"
    NOTHING_UNIQUE = "RESTORE_NOTHING_UNIQUE"
    GENERATED_COMPARED = "RESTORE_GENERATED"
    ROOTS_REPEATED = "RESTORE_ROOTS_REPEATED"
    ARCHIVE_LEFT_OUT = "RESTORE_ARCHIVE_LEFT_OUT"


@dataclass(frozen=True)
class Notice:
    """One thing to know, with the names its words need."""

    code: Warned
    params: dict[str, Any]


Problem = dict[str, Any]


def targets(
    manifest: Manifest, table_map: Mapping[str, TableName], to_schema: str | None
) -> tuple[TableName, ...]:
    """Return where each table of an archive goes.

    Raises ``Refused`` (RESTORE_REFUSED) when a name that is mapped is none of the archive's, or two
    tables would go into one.
    """
    labels = {table.label for table in manifest.tables}
    problems = [
        {"problem": Unfit.MAPPED_UNKNOWN, "table": name, "known": sorted(labels)}
        for name in table_map
        if name not in labels
    ]
    names = tuple(
        table_map.get(table.label) or TableName(to_schema or table.schema, table.name)
        for table in manifest.tables
    )
    problems += [
        {"problem": Unfit.MAPPED_TWICE, "table": str(name)}
        for name in sorted(set(names))
        if names.count(name) > 1
    ]
    if problems:
        raise Refused(Code.RESTORE_REFUSED, problems=problems)
    return names


def table_map(pairs: Sequence[str]) -> dict[str, TableName]:
    """Read ``schema.table=schema.table``; raises ``Refused`` (RESTORE_REFUSED) for anything else."""
    found: dict[str, TableName] = {}
    for pair in pairs:
        # A quoted name may hold an equals sign: the place that leaves a name on both sides is meant.
        cuts = (at for at, letter in enumerate(pair) if letter == "=")
        read = ((parse_table(pair[:at]), parse_table(pair[at + 1 :])) for at in cuts)
        one, other = next((both for both in read if all(both)), (None, None))
        if one is None or other is None:
            problem = {
                "problem": Unfit.MAPPED_UNKNOWN,
                "table": pair,
                "known": ["schema.table=schema.table"],
            }
            raise Refused(Code.RESTORE_REFUSED, problems=[problem])
        found[str(one)] = other
    return found


def problems(manifest: Manifest, found: Sequence[Found], *, skip: bool) -> list[Problem]:
    """Return every difference that stands in the way, over all tables at once.

    COPY passes rules by, so rows come in as they are. With ``skip`` they are inserted, and what a rule did
    with a row could not be counted.
    """
    differences = [
        problem
        for table, target in zip(manifest.tables, found, strict=True)
        for problem in _table_problems(table, target)
    ]
    rules = [
        {"problem": Unfit.RULES, "table": str(target.facts.name), "rules": list(target.rules)}
        for target in found
        if skip and target.rules
    ]
    return differences + rules


def unenforced(found: Sequence[Found]) -> list[Problem]:
    """Return the foreign keys that would let a row in that breaks them."""
    return [
        {
            "problem": Unfit.KEY_NOT_ENFORCED,
            "table": str(target.facts.name),
            "constraint": constraint,
        }
        for target in found
        for constraint in target.unenforced
    ]


def warnings(manifest: Manifest, found: Sequence[Found], *, skip: bool) -> list[Notice]:
    """Return what should be known about tables that fit."""
    inside = {target.facts.name for target in found}
    told = []
    for table, target in zip(manifest.tables, found, strict=True):
        name = str(target.facts.name)
        if target.triggers:
            params = {"table": name, "triggers": list(target.triggers)}
            told.append(Notice(Warned.TRIGGERS, params))
        for key in target.facts.row["foreign_keys"]:
            parent = TableName(key["schema"], key["table"])
            if parent not in inside:
                params = {"table": name, "constraint": key["name"], "parent": str(parent)}
                told.append(Notice(Warned.FOREIGN_KEY_OUTSIDE, params))
        if skip and not any(index["unique"] for index in target.facts.row["indexes"]):
            told.append(Notice(Warned.NOTHING_UNIQUE, {"table": name}))
        if generated := [column.name for column in table.columns if column.generated is not None]:
            params = {"table": name, "columns": generated}
            told.append(Notice(Warned.GENERATED_COMPARED, params))
    return told


def _table_problems(table: Table, target: Found) -> Iterator[Problem]:
    row, name = target.facts.row, str(target.facts.name)
    if not target.there:
        yield {"problem": Unfit.TABLE_MISSING, "table": name}
        return
    checks = (
        (row["kind"] not in {"r", "p"}, Unfit.NOT_A_TABLE),
        (not target.writable, Unfit.NOT_WRITABLE),
        (row["row_security"], Unfit.ROW_SECURITY),
    )
    found = [problem for wrong, problem in checks if wrong]
    yield from ({"problem": problem, "table": name} for problem in found)
    if Unfit.NOT_A_TABLE in found:
        return
    theirs = {each: declared(column) for each, column in target.facts.columns.items()}
    for column in table.columns:
        there = theirs.get(column.name)
        if there is None:
            yield {"problem": Unfit.COLUMN_MISSING, "table": name, "column": column.name}
        else:
            yield from _column_problems(name, column, there)
    ours = {column.name for column in table.columns}
    for extra in theirs.values():
        needed = extra.not_null and extra.generated is None and extra.name not in target.filled
        if extra.name not in ours and needed:
            yield {"problem": Unfit.COLUMN_EXTRA, "table": name, "column": extra.name}


def _column_problems(table: str, archived: Column, there: Column) -> Iterator[Problem]:
    place: Problem = {"table": table, "column": archived.name}
    pairs = (
        (Unfit.TYPE, archived.type, there.type),
        (Unfit.COLLATION, archived.collation, there.collation),
        (Unfit.GENERATED, archived.generated, there.generated),
    )
    for problem, before, now in pairs:
        if before != now:
            yield place | {"problem": problem, "archived": before or "none", "now": now or "none"}
    # Labels that came since are no obstacle: every archived one still means what it meant.
    known = there.labels or ()
    if missing := [label for label in archived.labels or () if label not in known]:
        yield place | {"problem": Unfit.LABELS, "labels": missing}
