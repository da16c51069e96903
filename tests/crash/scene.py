"""What every crash test starts from: a small shop with old and young notes, a volume, plans, a witness."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.crash.judge import Allowed, Before, Kind, Related, judge, witness
from tests.operations import stage
from tests.operations.stage import Stage

DDL = (
    "CREATE TABLE note (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz, body text)",
    "CREATE INDEX ON note (at, id)",
    "CREATE TABLE line (note_id bigint NOT NULL REFERENCES note, n integer, text text)",
    "CREATE INDEX ON line (note_id)",
    r"""INSERT INTO note (at, body)
        SELECT timestamptz '2020-01-01 00:00+00' + (n / 3) * interval '1 hour',
               (ARRAY[E'tab\tand\nline', E'\\.', '', NULL, 'Grüße 🍺', E'\r', E'\\N'])[1 + n % 7]
        FROM generate_series(1, 20) AS n""",
    "INSERT INTO note (at, body) SELECT now(), 'young' FROM generate_series(1, 3)",
    "INSERT INTO note (at, body) VALUES (NULL, 'without a time')",
    "INSERT INTO line SELECT id, n, repeat('x', n) FROM note, generate_series(1, 2) AS n WHERE id % 2 = 0",
)
KINDS = """
[kinds.notes]
root = "public.note"
time = "at"
related = ["public.line"]
"""
NOTES = Kind(
    names=("notes",),
    table="public.note",
    columns="id, at, body",
    key="id",
    old="at < now() - interval '365 days'",
    order="at, id",
    related=(Related("public.line", "note_id, n, text", "note_id"),),
)
BATCH = 8


@dataclass(frozen=True)
class Scene:
    """A stage with a plan that archives notes in three batches, and what the source was before."""

    stage: Stage
    before: Before

    def faults(self, allowed: Allowed | None = None) -> list[str]:
        """Ask the judge."""
        here = self.stage
        return judge(self.before, here.control, [here.root], here.source, allowed)


def scene(database: str, root: Path) -> Scene:
    """Make the stage and look at the source."""
    here = stage.stage(database, root, KINDS, *DDL)
    stage.plan(here, "notes", batch_size=BATCH)
    return Scene(here, witness(here.source, NOTES))
