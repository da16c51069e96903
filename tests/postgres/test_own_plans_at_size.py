"""Every statement on our own tables costs the same however long history is: none reads or sorts all of it.

Each file of SQL has its entry in ``own_statements``. Its plan is read, and what it reads beside a short
history is compared with what it reads beside a long one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres.growth import grown
from tests.postgres.long_history import History, filled
from tests.postgres.own_statements import ASKED, ELSEWHERE
from tests.worlds import altered

ROOT = Path(__file__).parents[2]
FILES = {
    f"{file.parent.parent.name}/{file.stem}": file
    for file in sorted((ROOT / "shared").glob("**/sql/*.sql"))
}
SHORT, LONG = 2_000, 200_000
# Indexes that a statement cannot do without.
NEEDED = {
    "doctor/newest_directories": "job_of_volume",
    "doctor/open_troubles": "job_unfinished",
    "doctor/recent_events": "recovery_event_errors",
    "jobs/list_jobs": "job_newest",
    "jobs/tails": "job_tail",
    "operations/next_files": "job_archived",
    "recovery/newest": "recovery_event_of_namespace",
}
# Statements that read history if they were written in another way that gives the same rows.
CARELESS = {
    "doctor/account_sum": (" + 1) AS added", " + 1000000) AS added"),
    "doctor/newest_directories": ("closed_at IS NOT NULL AND ", ""),
    "jobs/list_jobs": ("    LIMIT %(limit)s\n) AS job", ") AS job"),
    "jobs/tails": ("job.kind) > (", "job.kind || '') > ("),
    "plans/schedule": ("due.operation = 'archive'\n          AND job.plan_id", "job.plan_id"),
    "volume/directories": ("ORDER BY directory", 'ORDER BY directory COLLATE "POSIX"'),
}


@pytest.fixture(scope="module")
def histories(server_dsn: str, template: str) -> Iterator[tuple[History, History]]:
    """A short history and a long one, each in a database of its own."""
    from tests.conftest import _database

    with (
        _database(server_dsn, "short", template=template) as short,
        _database(server_dsn, "long", template=template) as long,
    ):
        yield filled(short, SHORT), filled(long, LONG)


def test_every_statement_has_an_entry_and_every_entry_a_statement() -> None:
    assert set(ASKED).isdisjoint(ELSEWHERE)
    assert set(ASKED) | set(ELSEWHERE) == set(FILES)


@pytest.mark.system
@pytest.mark.parametrize("name", sorted(ASKED))
def test_a_statement_costs_the_same_beside_a_long_history(
    histories: tuple[History, History], name: str
) -> None:
    text = FILES[name].read_text("utf-8")
    for place, ask in enumerate(ASKED[name]):
        assert grown(histories, text, ask) == [], f"question {place} of {name}"


@pytest.mark.system
@pytest.mark.parametrize("name", sorted(NEEDED))
def test_a_statement_without_its_index_is_seen_to_read_history(
    histories: tuple[History, History], name: str
) -> None:
    text, without = FILES[name].read_text("utf-8"), f"DROP INDEX tallystick.{NEEDED[name]}"
    assert any(grown(histories, text, ask, without) for ask in ASKED[name])


@pytest.mark.system
@pytest.mark.parametrize("name", sorted(CARELESS))
def test_a_statement_written_carelessly_is_seen_to_read_history(
    histories: tuple[History, History], name: str
) -> None:
    text = altered(FILES[name].read_text("utf-8"), *CARELESS[name])
    assert any(grown(histories, text, ask) for ask in ASKED[name])
