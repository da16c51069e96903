"""Tables for the rows of an archive, made from what its manifest says of them.

A manifest is somebody else's text. Names are quoted by us; types and expressions must be spelled as the
server spells them, go to it one statement at a time, and what came of them is compared with the manifest
before anything is kept.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from shared.catalog.names import TableName, parse_table
from shared.db.statement import statement
from shared.errors import Code, Refused
from shared.restore import tables
from shared.restore.tables import Unfit
from shared.restore.target import found, transaction
from shared.restore.trouble import trouble_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shared.chain.manifest import Column, Manifest, Table
    from shared.restore.tables import Problem
    from shared.restore.target import Connection, Found

# How format_type writes: names, bare or quoted, modifiers in parentheses, brackets of arrays.
TYPE = re.compile(r'(?:[a-z0-9_$ .]|"(?:[^"]|"")+"|\([A-Za-z0-9_, -]+\)|\[\])+')
IDENTITY = {"a": "ALWAYS", "d": "BY DEFAULT"}


def created(
    connection: Connection, manifest: Manifest, names: Sequence[TableName], *, keep: bool
) -> list[str]:
    """Make the tables that are not there, in one transaction, and return their names.

    ``keep`` False tries it out and leaves nothing. Raises ``Refused`` (RESTORE_REFUSED) naming what the
    tables need and the target does not have, or what the server said.
    """
    if unknown := _unknown(connection, manifest, names):
        raise Refused(Code.RESTORE_REFUSED, problems=unknown)
    made: list[str] = []
    try:
        with transaction(connection, keep=keep):
            connection.execute(statement("shared.restore", "one_at_a_time"))
            before = found(connection, names)
            missing = [index for index, target in enumerate(before) if not target.there]
            for each in _statements(connection, manifest, names, before):
                # In the extended protocol a second statement within the text is a syntax error.
                connection.execute(each, binary=True)
            made = [str(names[index]) for index in missing]
            if wrong := _different(manifest, found(connection, names), missing):
                raise Refused(Code.RESTORE_REFUSED, problems=wrong)
    except psycopg.Error as error:
        trouble = trouble_of(error)
        if trouble.params.get("cause") in {"unreachable", "not-granted", "read-only"}:
            raise trouble from error
        detail = str(error.diag.message_primary or trouble.params.get("cause"))
        problem = {"problem": Unfit.NOT_CREATED, "detail": detail}
        raise Refused(Code.RESTORE_REFUSED, problems=[problem]) from error
    return made


def _unknown(
    connection: Connection, manifest: Manifest, names: Sequence[TableName]
) -> list[Problem]:
    """Return the types and collations that the missing tables need and that are not there."""
    with transaction(connection, keep=False):
        before = found(connection, names)
    missing = [
        table for table, target in zip(manifest.tables, before, strict=True) if not target.there
    ]
    enums = {str(name) for name in _enums(missing)}
    problems: list[Problem] = []
    for table in missing:
        for column in table.columns:
            place: Problem = {"table": table.label, "column": column.name}
            element = re.sub(r"(\[\])+$", "", column.type)
            if element not in enums and not _type_there(connection, column.type):
                problems.append(place | {"problem": Unfit.TYPE_MISSING, "type": column.type})
            collation = column.collation
            if collation is not None and not _collation_there(connection, collation):
                problems.append(
                    place | {"problem": Unfit.COLLATION_MISSING, "collation": collation}
                )
    return problems


def _type_there(connection: Connection, name: str) -> bool:
    return TYPE.fullmatch(name) is not None and _asked(connection, "type_there", name)


def _collation_there(connection: Connection, name: str) -> bool:
    return parse_table(name) is not None and _asked(connection, "collation_there", name)


def _asked(connection: Connection, question: str, name: str) -> bool:
    """Ask for a name in a transaction of its own: what is no name at all is an error to the server."""
    try:
        with transaction(connection, keep=False):
            return _answer(connection, question, name)
    except psycopg.Error:
        return False


def _answer(connection: Connection, question: str, name: str) -> bool:
    row = connection.execute(statement("shared.restore", question), {"name": name}).fetchone()
    return bool(row and row["there"])


def _enums(missing: Sequence[Table]) -> dict[TableName, tuple[str, ...]]:
    columns = (column for table in missing for column in table.columns)
    named = ((parse_table(column.type), column.labels) for column in columns)
    return {name: labels for name, labels in named if name is not None and labels is not None}


def _statements(
    connection: Connection,
    manifest: Manifest,
    names: Sequence[TableName],
    before: Sequence[Found],
) -> Iterator[sql.Composed]:
    missing = [index for index, target in enumerate(before) if not target.there]
    enums = {
        name: labels
        for name, labels in _enums([manifest.tables[index] for index in missing]).items()
        if not _answer(connection, "type_there", str(name))
    }
    schemas = {names[index].schema for index in missing} | {name.schema for name in enums}
    for schema in sorted(schemas):
        # Asked first: "if not exists" still demands the right to make one.
        if not _answer(connection, "schema_there", schema):
            yield sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema))
    for name, labels in enums.items():
        yield sql.SQL("CREATE TYPE {} AS ENUM ({})").format(
            sql.Identifier(name.schema, name.name),
            sql.SQL(", ").join(map(sql.Literal, labels)),
        )
    for index in missing:
        parts = [_column(column) for column in manifest.tables[index].columns]
        parts += _constraints(manifest, names, before, index)
        yield sql.SQL("CREATE TABLE {} ({})").format(
            _identifier(names[index]), sql.SQL(", ").join(parts)
        )


def _column(column: Column) -> sql.Composed:
    parts: list[sql.Composable] = [sql.Identifier(column.name), sql.SQL(column.type)]
    if column.collation is not None:
        collation = parse_table(column.collation)
        assert collation is not None  # noqa: S101 - asked for before
        parts.append(sql.SQL("COLLATE {}").format(_identifier(collation)))
    if column.not_null:
        parts.append(sql.SQL("NOT NULL"))
    if column.identity:
        parts.append(sql.SQL(f"GENERATED {IDENTITY[column.identity]} AS IDENTITY"))
    if column.generated is not None:
        # The expression on lines of its own: a comment at its end cannot swallow the parenthesis.
        expression = sql.SQL(column.generated)
        parts.append(sql.SQL("GENERATED ALWAYS AS (\n{}\n) STORED").format(expression))
    return sql.SQL(" ").join(parts)


def _constraints(
    manifest: Manifest, names: Sequence[TableName], before: Sequence[Found], index: int
) -> Iterator[sql.Composed]:
    """Return the key of the root, what children refer to, and the foreign keys inside the kind."""
    table = manifest.tables[index]
    unique = [manifest.key] if index == 0 else []
    if index == 0:
        yield sql.SQL("PRIMARY KEY ({})").format(_listed(manifest.key))
    for child in manifest.tables:
        if child.parent == index and not any(set(child.references) == set(each) for each in unique):
            unique.append(child.references)
            yield sql.SQL("UNIQUE ({})").format(_listed(child.references))
    if table.parent is None:
        return
    parent = before[table.parent]
    # A parent that was there already may have no such key.
    if not parent.there or parent.facts.is_unique(list(table.references)):
        yield sql.SQL("FOREIGN KEY ({}) REFERENCES {} ({})").format(
            _listed(table.foreign_key),
            _identifier(names[table.parent]),
            _listed(table.references),
        )


def _different(manifest: Manifest, now: Sequence[Found], missing: Sequence[int]) -> list[Problem]:
    """Compare what was made with what was to be made, where the server might have read more than a type."""
    problems = tables.problems(manifest, now, skip=False)
    for index in missing:
        table, target = manifest.tables[index], now[index]
        made = target.facts.columns
        if list(made) != [column.name for column in table.columns] or any(
            made[column.name]["identity"] != column.identity for column in table.columns
        ):
            problems.append({"problem": Unfit.NOT_CREATED, "detail": table.label})
        # The server fills only what the manifest says: no default was smuggled in with a type.
        allowed = {
            column.name
            for column in table.columns
            if column.identity or column.generated is not None
        }
        if extra := target.filled - allowed - _domains(table):
            detail = f"{table.label}: {', '.join(sorted(extra))}"
            problems.append({"problem": Unfit.NOT_CREATED, "detail": detail})
    return problems


def _domains(table: Table) -> set[str]:
    # A type with a schema in its name may be a domain that brings a default of its own.
    return {column.name for column in table.columns if parse_table(column.type) is not None}


def _listed(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _identifier(name: TableName) -> sql.Identifier:
    return sql.Identifier(name.schema, name.name)
