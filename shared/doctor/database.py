"""The control database: reached, migrated, and everything granted that work on it needs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.db import migrate
from shared.db.statement import statement
from shared.doctor.clocks import Reading, reading
from shared.doctor.finding import Finding, Severity, Subject, of_error
from shared.doctor.grants import control_grants, prune_grants
from shared.errors import Code, Refused
from shared.operations.removal import STAYS

if TYPE_CHECKING:
    from datetime import datetime

    from shared.db.connect import Database
    from shared.doctor.installation import Installation


@dataclass(frozen=True)
class ControlFacts:
    """What the control database says of itself and of us.

    ``applied`` are the digests of its migrations, None where they may not be read.
    """

    row: dict[str, Any]
    clock: Reading
    applied: dict[int, str] | None

    @property
    def now(self) -> datetime:
        """Return the database's time when it was asked."""
        found: datetime = self.row["now"]
        return found


def not_configured(installation: Installation) -> Finding:
    """Say that there is no database; whoever only exports from a source needs none."""
    severity = Severity.INFO if installation.sources else Severity.ERROR
    params = {"cause": "none-running"}
    return Finding(Code.DATABASE_URL_MISSING, Subject.DATABASE, severity, params)


def look(control: Database) -> ControlFacts:
    """Ask the database; raises ``Passing`` or ``Refused`` when it does not answer us."""
    before = time.time()
    params = {"pruned": list(STAYS)}
    (row,) = control.transact(statement("shared.doctor", "control_facts"), params, repeatable=True)
    clock = reading(before, row["now"], time.time())
    if not row["migrations_there"]:
        return ControlFacts(row, clock, {})
    if not row["schema_usage"] or _lacks_migrations(row):
        return ControlFacts(row, clock, None)
    rows = control.transact(statement("shared.doctor", "applied"), {}, repeatable=True)
    return ControlFacts(row, clock, {each["version"]: each["digest"] for each in rows})


def judged(facts: ControlFacts) -> list[Finding]:
    """Return what is missing of schema and privileges."""
    findings = []
    if facts.applied is not None and (problem := _schema_problem(facts.applied)):
        findings.append(of_error(problem, Subject.DATABASE))
    if lines := control_grants(facts.row):
        findings.append(_granted(facts.row, "control", lines))
    return findings


def judged_pruning(facts: ControlFacts, *, planned: bool) -> list[Finding]:
    """Return what is missing of the privileges that only pruning needs, where it is ``planned``."""
    lines = prune_grants(facts.row) if planned else ()
    return [_granted(facts.row, "prune", lines)] if lines else []


def _granted(row: dict[str, Any], cause: str, lines: tuple[str, ...]) -> Finding:
    params = {"cause": cause, "role": row["role"]}
    return Finding(Code.GRANT_MISSING, Subject.DATABASE, Severity.ERROR, params, lines)


def _schema_problem(applied: dict[int, str]) -> Refused | None:
    try:
        return migrate.compare(applied).problem
    except Refused as refused:
        return refused


def _lacks_migrations(row: dict[str, Any]) -> bool:
    return any(each["table"] == "migration" for each in row["missing"])
