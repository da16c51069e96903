"""The examination, from top to bottom: every subject once, whatever is wrong with the ones before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import psycopg

from shared.doctor import clocks, database, events, jobs, ledger, schedule, source, volume
from shared.doctor.finding import ON_AWS, Finding, Section, Severity, Subject, of_error
from shared.doctor.installation import Installation, opened
from shared.errors import Code, TallystickError, Trouble
from shared.plans.outlook import Here
from shared.volume import ledger as accounts
from shared.volume.current import Settled
from shared.volume.trial import Believed, tried

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shared.archive.kinds import NamedKind
    from shared.archive.source import SourceConnection
    from shared.db.connect import Database, Dsn, Row
    from shared.doctor.clocks import Reading
    from shared.doctor.database import ControlFacts
    from shared.doctor.installation import Ground
    from shared.doctor.schedule import ScheduleFacts
    from shared.volume.trial import Trial

NEEDS_CONTROL = (Subject.SCHEDULE, Subject.JOBS, Subject.LEDGER, Subject.EVENTS)


@dataclass
class _Notes:
    """What was found so far, for the report and for the checks that follow."""

    ground: Ground
    findings: dict[Subject, list[Finding]] = field(
        default_factory=lambda: {subject: [] for subject in Subject if subject not in ON_AWS}
    )
    skipped: dict[Subject, Code] = field(default_factory=dict)
    clocks: dict[str, Reading] = field(default_factory=dict)
    usable: bool = False
    schedule: ScheduleFacts | None = None
    jobs: list[Row] = field(default_factory=list)
    trial: Trial | None = None

    def add(self, *findings: Finding) -> None:
        """Note findings."""
        for found in findings:
            self.findings[found.subject].append(found)

    def check(self, subject: Subject, look: Callable[[], None]) -> None:
        """Look, if there is time; what stops this check is a finding and does not stop the next."""
        if self.ground.deadline.passed():
            self.skipped.setdefault(subject, Code.TOO_LITTLE_TIME)
            return
        try:
            look()
        except TallystickError as error:
            self.add(of_error(error, subject))
        except psycopg.Error as error:
            params = {"type": type(error).__name__}
            self.add(Finding(Code.INTERNAL_ERROR, subject, Severity.ERROR, params))


def examine(installation: Installation) -> tuple[Section, ...]:
    """Examine an installation and return a section for each subject.

    It takes some fifteen seconds at most, and changes nothing: what it writes on the volume is one small
    file in ``.tmp``, under the volume's lock, and gone again.
    """
    with opened(installation) as ground:
        notes = _Notes(ground)
        control = _control(notes)
        _sources(notes)
        _volume(notes, control)
        if control is not None:
            _schedule(notes, control)
        notes.add(*clocks.judged(notes.clocks))
        if not notes.clocks:
            notes.skipped[Subject.CLOCKS] = Code.DATABASE_UNAVAILABLE
    return tuple(
        Section(subject, tuple(found), notes.skipped.get(subject))
        for subject, found in notes.findings.items()
    )


def _control(notes: _Notes) -> Database | None:
    """Look at the control database and what it plans; return it if the other checks can use it."""
    control = notes.ground.control

    def look() -> None:
        if control is None:
            notes.add(database.not_configured(notes.ground.installation))
            return
        facts = database.look(control)
        notes.clocks["control"] = facts.clock
        notes.add(*database.judged(facts))
        notes.usable = not notes.findings[Subject.DATABASE]
        if notes.usable:
            _plans(notes, control, facts)

    notes.check(Subject.DATABASE, look)
    if notes.usable:
        return control
    found = notes.findings[Subject.DATABASE]
    # Said once: the same cause keeps all of these unseen.
    notes.skipped |= dict.fromkeys(NEEDS_CONTROL, Code(found[0].code))
    return None


def _plans(notes: _Notes, control: Database, facts: ControlFacts) -> None:
    """Read plans and jobs, which the checks of source and volume want to know of."""

    def plans() -> None:
        notes.schedule = schedule.look(control, facts.now)

    def open_jobs() -> None:
        notes.jobs = jobs.look(control)

    notes.check(Subject.SCHEDULE, plans)
    notes.check(Subject.JOBS, open_jobs)
    pruning = notes.schedule is not None and "prune" in notes.schedule.planned_operations
    notes.add(*database.judged_pruning(facts, planned=pruning))


def _sources(notes: _Notes) -> None:
    """Look at each database that rows are read from, once, with the kinds whose tables it has."""
    installation = notes.ground.installation
    if installation.kinds_problem is not None:
        notes.add(of_error(installation.kinds_problem, Subject.SOURCE))
    if not notes.ground.sources:
        notes.skipped[Subject.SOURCE] = Code.DATABASE_URL_MISSING
    planned = notes.schedule.planned_kinds if notes.schedule else frozenset()
    databases: dict[Dsn, list[str]] = {}
    for name, dsn in installation.sources.items():
        databases.setdefault(dsn, []).append(name)
    for dsn, names in databases.items():
        # Built-in kinds are looked at where they are made use of.
        kinds = [
            kind
            for kind in installation.kinds.values()
            if kind.source in names and (kind.source == "application" or kind.name in planned)
        ]
        if not kinds and "application" not in names:
            continue
        is_control = dsn == installation.control_dsn
        if is_control and "control" not in notes.clocks:
            # It did not answer a moment ago, and that was said.
            notes.skipped[Subject.SOURCE] = notes.skipped[Subject.SCHEDULE]
            continue
        connection = notes.ground.sources[names[0]]
        _source(notes, connection, kinds, planned, is_control=is_control)


def _source(
    notes: _Notes,
    connection: SourceConnection,
    kinds: list[NamedKind],
    planned: frozenset[str],
    *,
    is_control: bool,
) -> None:
    """Look at one source, and hold its kinds against their tables."""
    try:
        facts = source.look(connection, kinds)
    except Trouble as trouble:
        notes.add(source.trouble_found(trouble))
        return
    if not is_control:
        notes.clocks["source"] = facts.clock
    notes.add(*source.judged(facts))

    def survey(kind: NamedKind) -> None:
        try:
            found = source.surveyed(connection, kind, notes.ground.deadline)
        except Trouble as trouble:
            notes.add(source.trouble_found(trouble, kind.name))
        else:
            is_planned = kind.name in planned
            notes.add(*source.judged_kind(found, facts.row["role"], planned=is_planned))

    for kind in kinds:
        notes.check(Subject.SOURCE, partial(survey, kind))


def _volume(notes: _Notes, control: Database | None) -> None:
    """Look at the volume by itself, then at the database's account of it."""
    installation = notes.ground.installation
    root, storage_id = installation.root, installation.storage_id
    if root is None or storage_id is None:
        notes.add(Finding(Code.VOLUME_NOT_CONFIGURED, Subject.VOLUME, Severity.INFO))
        notes.skipped.setdefault(Subject.LEDGER, Code.VOLUME_NOT_CONFIGURED)
        return
    before: dict[str, int] = {}
    known: list[Row] = []
    if control is not None:
        notes.check(Subject.LEDGER, lambda: before.update(ledger.believed(control, storage_id)))
        notes.check(Subject.VOLUME, lambda: known.extend(accounts.listed(control, storage_id)))
    last = Settled.of(known[0]) if known else None
    waiting = bool(known and known[0]["waiting"])
    believed = Believed(last, waiting, tuple(before))
    notes.check(Subject.VOLUME, lambda: _look(notes, root, storage_id, believed))
    if control is None:
        return
    trial = notes.trial

    def account() -> None:
        row = next(iter(accounts.listed(control, storage_id)), None)
        needed = jobs.budget_needed(notes.jobs, storage_id)
        limit = installation.volume_max_bytes
        notes.add(*volume.judged_account(trial, row, limit, needed))

    def directories() -> None:
        notes.add(*ledger.judged(storage_id, ledger.sums(control, storage_id)))
        scan = notes.schedule.scan_of(storage_id) if notes.schedule else None
        after = ledger.believed(control, storage_id)
        sizes = trial.sizes if trial else {}
        notes.add(*ledger.judged_directories(before, after, sizes, scan))

    notes.check(Subject.VOLUME, account)
    notes.check(Subject.LEDGER, directories)


def _look(notes: _Notes, root: Path, storage_id: str, believed: Believed) -> None:
    notes.trial = tried(root, storage_id, believed)
    notes.add(*volume.judged(notes.trial, root))


def _schedule(notes: _Notes, control: Database) -> None:
    """Judge schedule and jobs, which are read by now, and look at what happened lately."""
    quiet: set[str] = set()
    if notes.schedule is not None:
        stopped = schedule.stopped(notes.schedule)
        quiet = {each.params["operation"] for each in stopped}
        here = _here(notes, notes.schedule)
        notes.add(*stopped, *schedule.judged(notes.schedule, here, quiet))
    notes.add(*jobs.judged(notes.jobs, quiet))
    evidence = notes.trial.evidence if notes.trial else 0
    notes.check(Subject.EVENTS, lambda: notes.add(*events.judged(events.look(control), evidence)))


def _here(notes: _Notes, facts: ScheduleFacts) -> Here:
    installation = notes.ground.installation
    kinds = {kind.name: kind.only_namespace for kind in installation.kinds.values()}
    if installation.kinds_problem is not None:
        # A file that cannot be read was told of; each of its kinds need not be.
        kinds |= dict.fromkeys(facts.planned_kinds - kinds.keys())
    return Here(kinds, installation.storage_id)
