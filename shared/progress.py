"""How far each plan has come: what is left, how long that takes, and why nothing happens if nothing does."""

from __future__ import annotations

import math
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.archive.backlog import Backlog, Stretch, backlog, instant
from shared.archive.opening import namespace_value
from shared.archive.source import SourceConnection
from shared.clock import Deadline
from shared.errors import Code, Missing, Passing, Refused, TallystickError, Trouble
from shared.plans import outlook
from shared.plans.outlook import Here, Reason, Situation

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from shared.db.connect import Database, Dsn
    from shared.tick import Node

# All sources together get this long to answer; a list that people wait for must come.
ASKING_SECONDS = 4.0
CONNECT_SECONDS = 2


@dataclass(frozen=True)
class Outlook:
    """How a plan or an open job stands, and what can be said of its end.

    ``behind_seconds`` is how far the archive is behind what its policy asks for. ``backlog`` is what is
    left at the source, None when that was not asked; ``unknown`` why it could not be found out.
    """

    situation: Situation
    reason: Reason
    behind_seconds: float | None = None
    backlog: Backlog | None = None
    unknown: TallystickError | None = None
    volume_bytes_left: int | None = None

    @property
    def roots_per_second(self) -> float | None:
        """Return the present pace; None before two units were settled."""
        roots, seconds = self.situation.paced_roots, self.situation.paced_seconds
        return roots / seconds if roots and seconds else None

    @property
    def ticks(self) -> int | None:
        """Return how many units, each of them a tick, what is left will take."""
        if self.backlog is None:
            return None
        return math.ceil(self.backlog.roots / self.situation.batch_size)

    @property
    def drain_seconds(self) -> float | None:
        """Return how long what is left takes at the present pace."""
        if self.backlog is None:
            return None
        if self.backlog.roots == 0:
            return 0.0
        pace = self.roots_per_second
        return self.backlog.roots / pace if pace else None


@dataclass
class Asked:
    """The sources as one command asks them: each opened once, and not again once it did not answer."""

    dsns: Mapping[str, Dsn]
    deadline: Deadline
    stack: ExitStack
    opened: dict[str, SourceConnection] = field(default_factory=dict)
    away: dict[str, Trouble] = field(default_factory=dict)

    def backlog(self, stretch: Stretch) -> Backlog:
        """Return what is left of a stretch; raises ``Trouble`` where that cannot be found out in time."""
        name = stretch.definition["source"]
        if name in self.away:
            raise self.away[name]
        if self.deadline.passed():
            raise Passing(Code.EXPORT_FAILED, cause="timeout")
        if name not in self.opened:
            source = SourceConnection(self.dsns[name], CONNECT_SECONDS)
            self.opened[name] = self.stack.enter_context(closing(source))
        try:
            return backlog(self.opened[name], stretch, self.deadline.left())
        except Trouble as trouble:
            if isinstance(trouble, Missing) or trouble.params.get("cause") == "unreachable":
                self.away[name] = trouble
            raise


def of_plans(
    control: Database, node: Node, namespace_id: UUID | None, *, ask: bool
) -> list[Outlook]:
    """Return the outlook of every plan, of one namespace or of all; sources are asked if ``ask``."""
    found = outlook.of_plans(control, namespace_id)
    return _outlooks(node, found, ask=ask)


def of_job(control: Database, node: Node, job_id: UUID, *, ask: bool) -> Outlook | None:
    """Return the outlook of a job that is open; None for one that is not there."""
    found = outlook.of_job(control, job_id)
    return _outlooks(node, [found], ask=ask)[0] if found else None


def _outlooks(node: Node, situations: list[Situation], *, ask: bool) -> list[Outlook]:
    here = Here({each.kind: each.namespace for each in node.kinds}, node.storage_id)
    with ExitStack() as stack:
        asked = Asked(node.sources, Deadline.after(ASKING_SECONDS), stack)
        return [_outlook(node, each, here, asked if ask else None) for each in situations]


def _outlook(node: Node, now: Situation, here: Here, asked: Asked | None) -> Outlook:
    left: Backlog | None = None
    unknown: TallystickError | None = None
    if asked is not None and now.kind is not None and now.after_days is not None:
        try:
            left = asked.backlog(_stretch(node, now))
        except Refused as refused:
            unknown = refused
        except Trouble as trouble:
            # A look is not tried again by itself, as a unit would be.
            unknown = TallystickError(Code.SOURCE_FAILED, **trouble.params)
    # Nothing is left: then nothing is behind, however long ago the last row was.
    late = 0.0 if left == Backlog(0, exact=True) else behind(now)
    room = None if now.volume_bytes is None else max(0, node.volume_max_bytes - now.volume_bytes)
    return Outlook(now, outlook.why(now, here), late, left, unknown, room)


def _stretch(node: Node, now: Situation) -> Stretch:
    """Return what is left to do: of an open job by its own definition, else by the kind as it is now."""
    definition, after = now.job_definition, now.job_cursor
    if definition is None:
        known = {each.kind: each.definition for each in node.kinds}
        if now.kind not in known:
            raise Refused(Code.KIND_UNKNOWN, kind=now.kind, known=sorted(known))
        definition = known[now.kind]
        goes_on = now.plan_scope == "new" and now.last_definition == definition
        after = now.last_cursor if goes_on else None
    value = namespace_value(definition, now.namespace_id, now.namespace)
    return Stretch(definition, after, now.after_days or 0, value)


def behind(now: Situation) -> float | None:
    """Return the seconds between where the archive reaches to and where its policy wants it.

    None for a scan, and before the first batch.
    """
    reached = _reached(now)
    if reached is None or now.after_days is None:
        return None
    wanted = now.asked_at - timedelta(days=now.after_days)
    return max(0.0, (wanted - reached).total_seconds())


def _reached(now: Situation) -> datetime | None:
    """Return the instant up to which everything was archived that was there when it was passed."""
    found = []
    sort = now.job_time_sort or now.last_time_sort
    if now.job_cursor and now.job_definition and sort:
        found.append(instant(now.job_cursor[0], sort, now.job_definition))
    # A job that goes on begins where the last one ended, which had looked as far as its cutoff.
    goes_on = now.job_id is None or now.plan_scope == "new"
    if goes_on and now.last_cutoff and now.last_definition and now.last_time_sort:
        found.append(instant(now.last_cutoff, now.last_time_sort, now.last_definition))
    return max((each for each in found if each is not None), default=None)
