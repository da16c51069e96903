"""The source: reached, readable for every kind, and with indexes that serve."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.archive.examine import Problem, tables_of
from shared.archive.source import snapshot
from shared.archive.survey import survey
from shared.archive.window import standby
from shared.db.statement import statement
from shared.doctor.clocks import Reading, reading
from shared.doctor.finding import Finding, Severity, Subject
from shared.doctor.grants import quoted, source_grants
from shared.errors import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.archive.kinds import NamedKind
    from shared.archive.source import SourceConnection
    from shared.archive.survey import Survey
    from shared.clock import Deadline
    from shared.db.connect import Row
    from shared.errors import Trouble

READER = "tallystick doctor"
STATEMENT_SECONDS = 5.0
# A standby that far behind keeps windows from being read up to their end.
LAG_SECONDS = 300.0
# What may well be meant so. The others that do not refuse will be felt.
NOTES = frozenset(
    {
        Problem.NOT_FOLLOWED,
        Problem.PARTITIONS_NOT_FOLLOWED,
        Problem.PARTITION_ALONE,
        Problem.SELF_REFERENCE,
        Problem.SECOND_PATH,
        Problem.PAGE_READS_ALL,
    }
)
OF_SOURCE = frozenset({Code.EXPORT_FAILED, Code.CREDENTIAL_MISSING})
# Told by the GRANTs that are missing, for all tables at once.
GRANTED = frozenset({Problem.NOT_READABLE, Problem.ACTIVITY_HIDDEN})


@dataclass(frozen=True)
class SourceFacts:
    """What the source says of itself and of us, and of our privileges on the tables of kinds.

    ``standby`` says how far it has come, by the rule that ticks go by.
    """

    row: Row
    standby: Row
    clock: Reading
    privileges: tuple[Row, ...]


def look(source: SourceConnection, kinds: Iterable[NamedKind]) -> SourceFacts:
    """Ask the source; raises ``Trouble`` when it does not answer."""
    tables = [table for kind in kinds for table in tables_of(kind.definition)]
    asked = {
        "schemas": [table.schema for table in tables],
        "names": [table.name for table in tables],
    }
    connection = source.open()
    with snapshot(connection, [], name=READER, seconds=STATEMENT_SECONDS, lock=False):
        before = time.time()
        row = connection.execute(statement("shared.doctor", "source_facts")).fetchone()
        after = time.time()
        place = standby(connection, None)
        privileges = connection.execute(
            statement("shared.doctor", "source_privileges"), asked
        ).fetchall()
    assert row is not None  # noqa: S101 - a select without a table gives a row
    return SourceFacts(row, place, reading(before, row["now"], after), tuple(privileges))


def judged(facts: SourceFacts) -> list[Finding]:
    """Return what is to be known of a source and granted in it."""
    findings = []
    row = facts.row
    if facts.standby["standby"]:
        lag = facts.standby["lag_seconds"]
        severity = Severity.INFO if lag is not None and lag < LAG_SECONDS else Severity.WARNING
        params = {"lag": lag, "delay": row["streaming_delay"]}
        if lag is None:
            params["cause"] = "hidden" if facts.standby["hidden"] else "unknown"
        findings.append(Finding(Code.SOURCE_STANDBY, Subject.SOURCE, severity, params))
    if lines := source_grants(facts.privileges):
        params = {"cause": "source", "role": row["role"]}
        findings.append(Finding(Code.GRANT_MISSING, Subject.SOURCE, Severity.ERROR, params, lines))
    if facts.privileges and not row["sees_activity"]:
        line = f"GRANT pg_read_all_stats TO {quoted(row['role'])};"
        findings.append(
            Finding(Problem.ACTIVITY_HIDDEN, Subject.SOURCE, Severity.WARNING, {}, (line,))
        )
    return findings


def surveyed(source: SourceConnection, kind: NamedKind, deadline: Deadline) -> Survey:
    """Hold a kind against its tables in the time there is; raises ``Trouble``."""
    return survey(source, kind, seconds=min(STATEMENT_SECONDS, deadline.left()), counting=False)


def judged_kind(found: Survey, role: str, *, planned: bool) -> list[Finding]:
    """Return what stands in the way of a kind; without an enabled plan nothing is stopped by it yet."""
    findings = []
    for each in found.findings:
        if each.problem in GRANTED:
            continue
        params = {"kind": found.kind.name, **each.params}
        severity = _severity(each.problem, refuses=each.refuses, planned=planned)
        sql = _mending(each.problem, each.params, role)
        findings.append(Finding(each.problem, Subject.SOURCE, severity, params, sql))
    return findings


def trouble_found(trouble: Trouble, kind: str | None = None) -> Finding:
    """Tell what the source said, as commands that read it do: there is no job to try it again."""
    params = dict(trouble.params) | ({"kind": kind} if kind else {})
    code = Code.SOURCE_FAILED if trouble.code in OF_SOURCE else trouble.code
    return Finding(code, Subject.SOURCE, Severity.ERROR, params)


def _severity(problem: Problem, *, refuses: bool, planned: bool) -> Severity:
    if refuses:
        return Severity.ERROR if planned else Severity.WARNING
    return Severity.INFO if problem in NOTES else Severity.WARNING


def _mending(problem: Problem, params: dict[str, Any], role: str) -> tuple[str, ...]:
    if problem in {Problem.NO_INDEX_FOR_ORDER, Problem.NO_INDEX_FOR_JOIN}:
        return (f"{params['sql']};",)
    if problem is Problem.ROW_SECURITY:
        return (f"ALTER ROLE {quoted(role)} BYPASSRLS;",)
    return ()
