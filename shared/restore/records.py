"""Restore records: which batches are in the target already, kept beside the rows they brought."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from shared.catalog.names import TableName
from shared.db.ours import Fault, doubts
from shared.db.statement import statement
from shared.errors import Code, Refused
from shared.restore.tables import Unfit
from shared.restore.target import transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shared.chain.verify import BatchProof
    from shared.restore.choose import Choice
    from shared.restore.tables import Problem
    from shared.restore.target import Connection

TABLE = TableName("tallystick_restore", "batch")
COLUMNS = (
    "job uuid NOT NULL",
    "seq integer NOT NULL",
    "sha256 text NOT NULL",
    "target text NOT NULL",
    "restored_at timestamp with time zone NOT NULL",
)
PROBLEMS = {Fault.OWNER: Unfit.RECORDS_OWNER, Fault.NOT_PLAIN: Unfit.RECORDS_KIND}


def purpose(names: Sequence[TableName], choice: Choice | None, left_out: str | None = None) -> str:
    """Return what a batch was restored for: into which tables, and which rows of it.

    It is part of the record's key: one customer's rows brought back are not the batch brought back, nor is a
    batch whose older roots were ``left_out``, as the digest of their keys.
    """
    value: dict[str, object] = {"tables": [str(name) for name in names]}
    if choice is not None:
        value["keys"] = sorted([list(key) for key in choice.keys], key=str)
        value["where"] = sorted([list(condition) for condition in choice.where], key=str)
    if left_out is not None:
        value["left_out"] = left_out
    return json.dumps(value, ensure_ascii=False)


def prepare(connection: Connection) -> None:
    """Make the table of records if it is not there.

    Raises ``psycopg.Error``, and ``Refused`` (RESTORE_UNSAFE) where somebody else made it meanwhile.
    """
    with transaction(connection):
        if _there(connection):
            return
        connection.execute(statement("shared.restore", "one_at_a_time"))
        if not _has_schema(connection):
            # Not IF NOT EXISTS: that asks for the right to create one even where there is one.
            connection.execute(statement("shared.restore", "records_schema"))
        connection.execute(statement("shared.restore", "records_table"))
        # Looked at again before the commit: between the first look and now a stranger may have been quicker.
        if found := unbelievable(connection):
            raise Refused(Code.RESTORE_UNSAFE, problems=found)


def unbelievable(connection: Connection) -> list[Problem]:
    """Return why the records cannot be believed, if they are there; inside ``transaction``.

    Whoever may create a schema in the target can make the table first: with a trigger that runs with the
    rights of whoever restores, or filled, so that a restore leaves batches out.
    """
    return [
        {
            "problem": PROBLEMS.get(doubt.fault, Unfit.RECORDS_CHANGED),
            "table": str(TABLE),
            "fault": str(doubt.fault),
            "names": list(doubt.names),
        }
        for doubt in doubts(connection, TABLE.schema, TABLE.name, COLUMNS)
    ]


def restored(
    connection: Connection, batches: Sequence[BatchProof], target: Callable[[int], str]
) -> dict[int, str]:
    """Return number and digest of the batches that are there already; inside ``transaction``.

    ``target`` gives what a batch is restored for, by its number.
    """
    if not batches or not _there(connection):
        return {}
    wanted = {batch.header.seq: target(batch.header.seq) for batch in batches}
    params = {"job": batches[0].header.job, "targets": sorted(set(wanted.values()))}
    rows = connection.execute(statement("shared.restore", "recorded"), params).fetchall()
    return {row["seq"]: row["sha256"] for row in rows if wanted.get(row["seq"]) == row["target"]}


def record(connection: Connection, batch: BatchProof, target: str) -> bool:
    """Record a batch in the open transaction; False when another transaction has done so."""
    params = {
        "job": batch.header.job,
        "seq": batch.header.seq,
        "sha256": batch.sha256,
        "target": target,
    }
    return connection.execute(statement("shared.restore", "record"), params).fetchone() is not None


def check(batches: Sequence[BatchProof], there: dict[int, str]) -> None:
    """Refuse a batch that was restored before with another content: it is not the same archive."""
    problems = [
        {"problem": Unfit.RECORD_DIFFERS, "seq": batch.header.seq, "table": str(TABLE)}
        for batch in batches
        if there.get(batch.header.seq, batch.sha256) != batch.sha256
    ]
    if problems:
        raise Refused(Code.RESTORE_REFUSED, problems=problems)


def _has_schema(connection: Connection) -> bool:
    row = connection.execute(
        statement("shared.restore", "schema_there"), {"name": TABLE.schema}
    ).fetchone()
    return bool(row and row["there"])


def _there(connection: Connection) -> bool:
    row = connection.execute(statement("shared.restore", "records_there")).fetchone()
    return bool(row and row["there"])
