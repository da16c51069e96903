"""What people can set, and what they can measure, is written down."""

from __future__ import annotations

from pathlib import Path

from handlers import log, observing
from shared.jobs.model import Ending, Outcome
from shared.metrics import MEASURES
from shared.settings import Settings
from shared.tick import PHASES, Report

DOCS = Path(__file__).parents[2] / "docs" / "reference"
REFERENCE = DOCS / "settings.md"
METRICS = DOCS / "metrics.md"


def test_every_setting_is_in_the_reference() -> None:
    text = REFERENCE.read_text("utf-8")
    names = [f"TALLYSTICK_{name.upper()}" for name in Settings.model_fields]
    assert names
    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_metric_is_in_the_reference_as_it_is_and_no_other() -> None:
    rows = []
    for measure in MEASURES:
        total = "" if measure.gauge else "_total"
        dimensions = ", ".join(f"`{name}`" for name in measure.dimensions)
        cells = (f"`{measure.name}`", f"`{measure.text_name}{total}`", str(measure.unit))
        rows.append(
            f"| {' | '.join((*cells, dimensions, measure.meaning))} |".replace("|  |", "| |")
        )
    text = METRICS.read_text("utf-8")
    assert [row for row in rows if row not in text] == []
    assert text.count("| `tallystick_") == len(rows)


def test_every_phase_outcome_and_key_of_the_log_line_is_in_the_reference() -> None:
    text = METRICS.read_text("utf-8")
    names = [*PHASES, *map(str, Ending), *log.fields(Report(Outcome(Ending.IDLE))), *observing.SAID]
    assert [name for name in names if f"`{name}`" not in text] == []
