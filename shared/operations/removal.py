"""Rows of our own tables, held against what an archive says of them, and removed where it says the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from shared.chain.batch import PINS
from shared.db.statement import statement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.chain.manifest import Table
    from shared.db.connect import Database
    from shared.restore.rows import Value

SCHEMA = "tallystick"
# Values are compared as the text they were archived as, so the settings that text depends on are the same.
SETTINGS = tuple(f"SET LOCAL {name} = {value}" for name, value in PINS)


@dataclass(frozen=True)
class Rule:
    """Rows ``t`` that stay although an archive has them, under the name of the reason.

    ``for_now`` says that the reason goes away by itself, so the file is worth another look later.
    """

    reason: str
    condition: str
    for_now: bool = False


ANCHOR = Rule(
    # Their tails are what every chain is held against, now and in a hundred years.
    "anchor",
    "t.operation = 'archive'",
)
NEWEST = Rule(
    # The next job of a plan begins where its newest closed one ended.
    "newest",
    """t.plan_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM tallystick.job AS later
        WHERE later.plan_id = t.plan_id
          AND later.storage_id IS NOT DISTINCT FROM t.storage_id
          AND later.closed_at IS NOT NULL
          AND (later.closed_at > t.closed_at OR later.closed_at = t.closed_at AND later.id < t.id))""",
    for_now=True,
)
# Every table that may be pruned, and what stays of it. A table that is not here is never touched.
STAYS: dict[str, tuple[Rule, ...]] = {
    "job": (ANCHOR, NEWEST),
    "unit": (),
    "recovery_event": (),
    "audit_entry": (),
    "receipt": (),
}
ROOTS = tuple(f"{SCHEMA}.{name}" for name in STAYS)
DIFFERS = "differs"
REFERRED = "referred"
LEFT = "left"


@dataclass(frozen=True)
class Today:
    """A table as it is now, beside the columns an archive has of it.

    ``places`` are those of the archived columns that the table still has; ``lacking`` the columns that
    came since, of which the archive knows nothing. ``key`` is the primary key.
    """

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...]
    referring: tuple[dict[str, Any], ...]
    places: tuple[int, ...]
    archived: tuple[str, ...]

    @classmethod
    def of(cls, control: Database, table: Table) -> Today | None:
        """Look at a table of an archive; None when there is nothing of it to be removed."""
        if table.schema != SCHEMA or table.name not in STAYS:
            return None
        params = {"table": table.name}
        found = control.transact(
            statement("shared.operations", "table_now"), params, repeatable=True
        )
        if not found or not set(found[0]["key"]) <= set(table.copied) or not found[0]["key"]:
            return None
        columns = found[0]["columns"]
        kept = [place for place, name in enumerate(table.copied) if name in columns]
        return cls(
            name=table.name,
            columns=columns,
            key=tuple(found[0]["key"]),
            referring=tuple(found[0]["referring"]),
            places=tuple(kept),
            archived=tuple(table.copied[place] for place in kept),
        )

    @property
    def lacking(self) -> list[str]:
        """Return the columns that the archive does not have."""
        return [name for name in self.columns if name not in self.archived]

    def params(self, rows: Sequence[tuple[Value, ...]]) -> dict[str, object]:
        """Return archived rows as parameters, one array of texts for each column."""
        return {f"c{place}": [row[place] for row in rows] for place in self.places}


def removal(today: Today, *, counted: bool) -> str:
    """Return the statement that removes the given rows, where all of them is as it was archived.

    Every row removed hangs on the row of the claim, locked in the same statement: a holder whose lease is
    over, or whose job an operator took, removes nothing, and neither can happen until the statement has
    committed. The tables are locked before that row, so nobody waits for a statement that itself waits.
    """
    also = ""
    if counted:
        also = """, counted AS (
            INSERT INTO tallystick.pruned (namespace_id, kind, roots)
            SELECT %(namespace_id)s, %(kind)s, count(*) FROM removed HAVING count(*) > 0
            ON CONFLICT (namespace_id, kind)
            DO UPDATE SET roots = pruned.roots + excluded.roots, updated_at = clock_timestamp()
        )"""
    text = """
        WITH held AS MATERIALIZED (
            SELECT id FROM tallystick.job
            WHERE id = %(job_id)s AND owner = %(owner)s AND generation = %(generation)s
              AND state = 'RUNNING' AND due_at > clock_timestamp()
              AND batches = %(seq)s AND last_sha256 IS NOT DISTINCT FROM %(tail)s
            FOR NO KEY UPDATE
        ), proven AS MATERIALIZED ({proven}), removed AS (
            DELETE FROM {table} AS t
            USING held, proven AS p
            WHERE {matched} AND {same} AND NOT ({stays})
            RETURNING 1
        ){also}
        SELECT EXISTS (SELECT FROM held) AS held, (SELECT count(*) FROM removed) AS removed"""
    stays = sql.SQL(" OR ").join(
        sql.SQL("({})").format(condition) for _, condition in _conditions(today)
    )
    composed = sql.SQL(text).format(
        **_parts(today), stays=stays if _conditions(today) else sql.SQL("false"), also=sql.SQL(also)
    )
    return composed.as_string(None)


def remainder(today: Today) -> str:
    """Return the statement that looks which of the given rows are there, and counts them by reason.

    ``LEFT`` is the reason of a row that has none to be there.
    """
    reasons = sql.SQL(" ").join(
        sql.SQL("WHEN {} THEN {}").format(condition, sql.Literal(reason))
        for reason, condition in _conditions(today)
    )
    text = """
        WITH proven AS MATERIALIZED ({proven})
        SELECT CASE WHEN NOT ({same}) THEN {differs} {reasons} ELSE {left} END AS reason,
               count(*) AS rows
        FROM {table} AS t JOIN proven AS p ON {matched}
        GROUP BY 1"""
    composed = sql.SQL(text).format(
        **_parts(today), reasons=reasons, differs=sql.Literal(DIFFERS), left=sql.Literal(LEFT)
    )
    return composed.as_string(None)


def _conditions(today: Today) -> list[tuple[str, sql.Composable]]:
    """Return what keeps a row, with the name of the reason; a row that is referred to stays, too."""
    rules: list[tuple[str, sql.Composable]] = [
        (rule.reason, sql.SQL(rule.condition)) for rule in STAYS[today.name]
    ]
    referring = [
        (
            REFERRED,
            sql.SQL("EXISTS (SELECT FROM {} AS c WHERE {})").format(
                sql.Identifier(key["schema"], key["table"]),
                sql.SQL(" AND ").join(
                    sql.SQL("{} = {}").format(sql.Identifier("c", own), sql.Identifier("t", theirs))
                    for own, theirs in zip(key["columns"], key["references"], strict=True)
                ),
            ),
        )
        for key in today.referring
    ]
    return rules + referring


def _parts(today: Today) -> dict[str, sql.Composable]:
    names = {name: f"c{place}" for name, place in zip(today.archived, today.places, strict=True)}
    arrays = sql.SQL(", ").join(
        sql.SQL("{}::text[]").format(sql.Placeholder(name)) for name in names.values()
    )
    return {
        "table": sql.Identifier(SCHEMA, today.name),
        "proven": sql.SQL("SELECT * FROM unnest({}) AS p ({})").format(
            arrays, sql.SQL(", ").join(map(sql.Identifier, names.values()))
        ),
        "matched": sql.SQL(" AND ").join(
            sql.SQL("{} = CAST({} AS {})").format(
                sql.Identifier("t", name),
                sql.Identifier("p", names[name]),
                sql.SQL(today.columns[name]),
            )
            for name in today.key
        ),
        "same": sql.SQL(" AND ").join(
            [_equal(name, names[name]) for name in today.archived]
            + [sql.SQL("{} IS NULL").format(sql.Identifier("t", name)) for name in today.lacking]
        ),
    }


def _equal(column: str, archived: str) -> sql.Composed:
    # `format` prints a value as COPY does, where a cast would write a boolean in another way; and bytes
    # are compared, whatever the collation of the column thinks is equal.
    return sql.SQL(
        "CASE WHEN {0} IS NOT NULL THEN format('%%s', {0}) END COLLATE \"C\" IS NOT DISTINCT FROM {1}"
    ).format(sql.Identifier("t", column), sql.Identifier("p", archived))
