"""The database that rows are restored into: one connection, pinned transactions, and what it has."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from shared.catalog.facts import Facts, inspected
from shared.chain.batch import PINS
from shared.db.connect import CONNECT_SECONDS, Row
from shared.db.pins import STATEMENTS, pinned
from shared.db.statement import statement
from shared.restore.trouble import target_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shared.catalog.names import TableName

Connection = psycopg.Connection[Row]

# A batch takes as long as it takes, whatever limits the role has for its own work; and what was said to be
# restored is on the disk. The limit for locks stays the role's: a wait that it ends is a cause of its own.
SETTINGS = (
    *PINS,
    *STATEMENTS,
    ("statement_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("synchronous_commit", "on"),
    ("application_name", "'tallystick restore'"),
)
# Whether rows may be written is left to the role: a default of read only refuses the restore.
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"


@dataclass(frozen=True)
class Found:
    """A table of the target: its facts, and what writing into it depends on.

    ``filled`` are columns that the server fills where no value is given; ``sequences`` those that do it.
    ``rules`` are those on INSERT, which COPY passes by. ``unenforced`` are foreign keys whose triggers are
    disabled.
    """

    facts: Facts
    writable: bool
    triggers: tuple[str, ...]
    rules: tuple[str, ...]
    unenforced: tuple[str, ...]
    filled: frozenset[str]
    sequences: tuple[dict[str, Any], ...]

    @property
    def there(self) -> bool:
        """Tell whether there is anything under the name."""
        return bool(self.facts.row["found"])


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """Open the target and close it again; raises ``Trouble`` (RESTORE_FAILED) where that fails.

    A server that is busy with a trigger or a full disk may not take a byte for minutes, so unlike
    everywhere else silence alone ends nothing.
    """
    with target_errors():
        connection = psycopg.connect(
            url,
            autocommit=True,
            prepare_threshold=None,
            row_factory=dict_row,
            client_encoding="utf8",
            connect_timeout=CONNECT_SECONDS,
        )
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def transaction(connection: Connection, *, keep: bool = True) -> Iterator[None]:
    """Open a transaction under the settings that give text its meaning; commits at the end.

    ``keep`` False rolls back instead, so that trying something out leaves nothing. Settings are local to the
    transaction: a pooler may stand in front. Raises ``psycopg.Error``.
    """
    connection.execute("; ".join((BEGIN, *pinned(connection, SETTINGS))).encode())
    try:
        yield
    except BaseException:
        _roll_back(connection)
        raise
    # COMMIT POINT: rows and their record become true together. After a crash before it nothing of the
    # batch is there; after it, the record makes the next run pass over the batch.
    connection.execute("COMMIT" if keep else "ROLLBACK")


def found(connection: Connection, tables: Sequence[TableName]) -> list[Found]:
    """Return what the target has under these names, in their order; inside ``transaction``."""
    facts = inspected(connection, tables)
    asked = {
        "schemas": [table.schema for table in tables],
        "names": [table.name for table in tables],
    }
    beside = connection.execute(statement("shared.restore", "beside"), asked).fetchall()
    return [
        Found(
            each,
            row["writable"],
            tuple(row["triggers"]),
            tuple(row["rules"]),
            tuple(row["unenforced"]),
            frozenset(row["filled"]),
            tuple(row["sequences"]),
        )
        for each, row in zip(facts, beside, strict=True)
    ]


def enforces_keys(connection: Connection) -> bool:
    """Tell whether foreign keys and ordinary triggers hold in this session; inside ``transaction``.

    ``session_replication_role`` may be set for a role or a database, and only a superuser may set it back.
    """
    row = connection.execute(statement("shared.restore", "session")).fetchone()
    return row is not None and row["replication_role"] != "replica"


def is_empty(connection: Connection, table: TableName) -> bool:
    """Tell whether a table has no row; inside ``transaction``."""
    query = sql.SQL("SELECT EXISTS (SELECT FROM {}) AS filled").format(
        sql.Identifier(table.schema, table.name)
    )
    row = connection.execute(query).fetchone()
    return row is not None and not row["filled"]


def _roll_back(connection: Connection) -> None:
    try:
        connection.execute("ROLLBACK")
    except psycopg.Error:
        connection.close()
