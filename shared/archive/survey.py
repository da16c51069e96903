"""What can be said of kinds by looking at the databases their tables are in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from psycopg import sql

from shared.archive.copying import copied
from shared.archive.examine import Finding, Problem, examine, tables_of
from shared.archive.page import related_select, root_select
from shared.archive.served import OF_INDEXES, index_findings
from shared.archive.shape import Opening, Shape, TimeSort
from shared.archive.source import snapshot
from shared.archive.staying import staying, zone_note
from shared.archive.timeless import clock_readers
from shared.archive.window import prepared
from shared.db.statement import statement
from shared.errors import Code, Refused, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import psycopg

    from shared.archive.kinds import NamedKind
    from shared.archive.source import SourceConnection
    from shared.chain.manifest import Table
    from shared.db.connect import Row

READER = "tallystick survey"
STATEMENT_SECONDS = 10.0
# A prepared transaction is committed within seconds, or somebody has forgotten it.
PREPARED_SECONDS = 300
# A place in time that every database can write; nothing is read up to it.
ANY_CUTOFF = {
    TimeSort.INSTANT: "1970-01-01 00:00:00+00",
    TimeSort.LOCAL: "1970-01-01 00:00:00",
    TimeSort.DATE: "1970-01-01",
    TimeSort.NUMBER: "0",
}


@dataclass(frozen=True)
class Survey:
    """What was found about one kind; ``there`` says whether its root table is.

    ``notes`` say how the kind is read, where that is worth knowing and nothing is wrong.
    """

    kind: NamedKind
    there: bool
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...] = ()

    @property
    def refuses(self) -> bool:
        """Tell whether the kind cannot be archived."""
        return any(finding.refuses for finding in self.findings)


def chosen(kinds: Mapping[str, NamedKind], name: str, namespace: str | None = None) -> NamedKind:
    """Return a kind by name, for a namespace.

    Raises ``Refused`` when there is no such kind, or it belongs to another namespace.
    """
    kind = kinds.get(name)
    if kind is None:
        raise Refused(Code.KIND_UNKNOWN, kind=name, known=sorted(kinds))
    owner = kind.only_namespace
    if namespace is not None and owner not in (None, namespace):
        raise Refused(Code.NAMESPACE_MISMATCH, kind=name, belongs_to=owner, namespace=namespace)
    return kind


def require_table(connection: psycopg.Connection[Row], kind: NamedKind) -> None:
    """Raise ``Refused`` for a built-in kind whose table comes with a later version."""
    if kind.source == "control" and not roots_there(connection, [kind])[kind.name]:
        raise Refused(Code.KIND_TABLE_MISSING, kind=kind.name, table=kind.kind.root)


def roots_there(connection: psycopg.Connection[Row], kinds: Iterable[NamedKind]) -> dict[str, bool]:
    """Say of each kind, by name, whether its root table is in the database."""
    roots = {kind.name: tables_of(kind.definition)[0] for kind in kinds}
    with snapshot(
        connection, list(roots.values()), name=READER, seconds=STATEMENT_SECONDS, lock=False
    ) as facts:
        found = {each.name: bool(each.row["found"]) for each in facts}
    return {name: found[root] for name, root in roots.items()}


def survey(
    source: SourceConnection,
    kind: NamedKind,
    *,
    seconds: float = STATEMENT_SECONDS,
    counting: bool = True,
) -> Survey:
    """Compare a kind with its tables, its conditions included, and return everything found.

    ``seconds`` bounds each statement; ``counting`` also counts rows that stay behind. Raises ``Trouble``
    when the database cannot be asked.
    """
    connection = source.open()
    definition = kind.definition
    with snapshot(
        connection, tables_of(definition), name=READER, seconds=seconds, lock=False
    ) as facts:
        shape, findings = examine(definition, facts)
        there = bool(facts[0].row["found"])
        visible = connection.execute(statement("shared.archive", "sees_activity")).fetchone()
        findings += _left_prepared(connection, definition)
    if there and visible is not None and not visible["sees"]:
        findings += (Finding(Problem.ACTIVITY_HIDDEN),)
    encoding = connection.info.parameter_status("server_encoding")
    if there and encoding == "SQL_ASCII":
        findings += (Finding(Problem.ENCODING_NONE, {"encoding": encoding}),)
    if shape is not None:
        invalid = _queries(connection, shape, seconds)
        if not invalid:
            # The catalog shows which indexes there are; the planner knows which of them serve.
            findings = tuple(each for each in findings if each.problem not in OF_INDEXES)
            findings += index_findings(connection, _opening(shape), facts, seconds)
        findings += invalid
        findings += _time_zone(connection, definition["time_zone"], seconds)
    notes: tuple[Finding, ...] = ()
    # What the server does not accept cannot be counted either.
    if shape is not None and not any(found.refuses for found in findings):
        notes = zone_note(connection, shape, definition["time_zone"], seconds)
        if counting:
            findings += staying(connection, shape, facts, seconds)
    return Survey(kind, there, findings, notes)


def _left_prepared(
    connection: psycopg.Connection[Row], definition: dict[str, Any]
) -> tuple[Finding, ...]:
    """Name the prepared transactions that keep windows from being fixed, and seem to be forgotten."""
    return tuple(
        Finding(
            Problem.TRANSACTION_PREPARED,
            {
                "table": each["table"],
                "transaction": each["transaction"],
                "since": each["since"],
                "owner": each["owner"],
            },
        )
        for each in prepared(connection, tables_of(definition))
        if each["age"] >= PREPARED_SECONDS
    )


def _queries(
    connection: psycopg.Connection[Row], shape: Shape, seconds: float
) -> tuple[Finding, ...]:
    """Have the server plan each query of a page and read no row, the words of the deployment included."""
    opening = _opening(shape)
    tried_on = partial(_tried, connection, seconds)
    root = root_select(opening, None, 0)
    tried = [tried_on(Problem.WHERE_INVALID, shape.tables[0], root)]
    for index, relation in enumerate(shape.relations[1:], start=1):
        table, found = relation.table, None
        if relation.where is not None:
            own = sql.SQL("SELECT 1 FROM {} AS c WHERE (\n{}\n)").format(
                sql.Identifier(table.schema, table.name), sql.SQL(relation.where)
            )
            found = tried_on(Problem.WHERE_INVALID, table, own)
        if found is None and tried[0] is None:
            joined = related_select(opening, index, None, None, 0)
            found = tried_on(Problem.JOIN_INVALID, table, joined)
        tried.append(found)
    refused = tuple(finding for finding in tried if finding is not None)
    if refused:
        return refused
    readers = clock_readers(connection, shape, name=READER, seconds=seconds)
    return tuple(
        Finding(Problem.WHERE_READS_CLOCK, {"table": table.label, "calls": calls})
        for table, calls in readers
    )


def _tried(
    connection: psycopg.Connection[Row],
    seconds: float,
    problem: Problem,
    table: Table,
    query: sql.Composed,
) -> Finding | None:
    try:
        with snapshot(connection, [], name=READER, seconds=seconds, lock=False):
            # Copied, as a page is: what a query may hold and COPY may not would show here.
            for _ in copied(
                connection, sql.SQL("COPY ({} LIMIT 0) TO STDOUT").format(_whole(query))
            ):
                pass
    except Verdict as verdict:
        detail = verdict.params.get("detail")
        return Finding(problem, {"table": table.label, "detail": detail})
    return None


def _time_zone(
    connection: psycopg.Connection[Row], name: str, seconds: float
) -> tuple[Finding, ...]:
    query = sql.SQL("COPY (SELECT now() AT TIME ZONE {}) TO STDOUT").format(sql.Literal(name))
    try:
        with snapshot(connection, [], name=READER, seconds=seconds, lock=False):
            for _ in copied(connection, query):
                pass
    except Verdict:
        return (Finding(Problem.TIME_ZONE, {"time_zone": name}),)
    return ()


def _whole(query: sql.Composed) -> sql.Composed:
    return sql.SQL("SELECT * FROM ({}) AS page").format(query)


def _opening(shape: Shape) -> Opening:
    return Opening(
        shape=shape,
        after=None,
        cutoff=ANY_CUTOFF[shape.time_sort],
        namespace_value="",
        database="",
        encoding="",
        late_rows=None,
    )
