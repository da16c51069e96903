"""What every tick asks stays on an index, however long the history grows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from shared.db.connect import connect
from shared.db.statement import statement
from shared.jobs import rules, store
from tests import worlds
from tests.worlds import altered, one, rows

CLOSED = 100_000
FUTURE = 2_000

# The references are in the way of nothing but the filling.
FILL = f"""
    DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT conname FROM pg_constraint
                    WHERE conrelid = 'tallystick.job'::regclass AND contype = 'f' LOOP
            EXECUTE format('ALTER TABLE tallystick.job DROP CONSTRAINT %I', name);
        END LOOP;
    END $$;
    INSERT INTO tallystick.job (operation, namespace_id, batch_size, page_size, max_bytes, input, state,
                                closed_at, due_at, storage_id, batches, last_sha256, plan_id, kind)
    SELECT 'archive', namespace.id, 10, 10, 1000000, '{{}}', 'SUCCEEDED',
           now() - make_interval(mins => number), now() - make_interval(mins => number),
           volume.storage_id, 1, repeat('a', 64), plan.id, 'invoices'
    FROM generate_series(1, {CLOSED}) AS number,
         tallystick.namespace, tallystick.volume, tallystick.plan;
    INSERT INTO tallystick.job (operation, namespace_id, batch_size, page_size, max_bytes, input, due_at,
                                storage_id)
    SELECT 'archive', namespace.id, 10, 10, 1000000, '{{}}', now() + make_interval(mins => 1 + number % 60),
           volume.storage_id
    FROM generate_series(1, {FUTURE}) AS number, tallystick.namespace, tallystick.volume;
    ANALYZE"""

TYPES = {
    "operations": "text[]",
    "storage_id": "text",
    "job_id": "uuid",
    "owner": "uuid",
    "lease_seconds": "float8",
    "farthest_seconds": "integer",
    "takeovers_max": "integer",
    "errors_kept": "integer",
    "kinds": "jsonb",
    "plans_max": "integer",
    "ticked": "text[]",
    "noted_seconds": "integer",
    "overdue_seconds": "integer",
    "params": "jsonb",
    "code": "text",
    "namespace_id": "uuid",
    "roots": "text[]",
    "closed_at": "text",
    "job": "text",
    "seq": "integer",
}
VALUES = {
    "operations": "ARRAY['archive', 'scan']",
    "storage_id": "'{storage_id}'",
    "job_id": "NULL",
    "owner": "gen_random_uuid()",
    "lease_seconds": "120",
    "farthest_seconds": str(rules.FARTHEST_JOB_SECONDS),
    "takeovers_max": "10",
    "errors_kept": "20",
    "kinds": '\'[{"kind": "invoices", "namespace": null, "definition": {}}]\'',
    "plans_max": "16",
    "ticked": "'{archive,scan}'",
    "noted_seconds": "5",
    "overdue_seconds": "900",
    "params": "'{}'",
    "code": "'STORAGE_UNAVAILABLE'",
    "namespace_id": "'{namespace_id}'",
    "roots": "'{tallystick.job}'",
    "closed_at": "(now() - interval '1 hour')::text",
    "job": "'00000000-0000-0000-0000-000000000000'",
    "seq": "0",
}


@pytest.fixture(scope="module")
def history(server_dsn: str, template: str) -> Iterator[str]:
    """Database with a long history of closed jobs, and jobs that are due later."""
    from tests.conftest import _database

    with _database(server_dsn, "history", template=template) as dsn:
        with closing(worlds.control(dsn)) as control:
            worlds.a_plan(control, "invoices", worlds.a_storage_id(control))
            overdue = "UPDATE tallystick.plan SET next_run_at = now() - interval '1 day'"
            control.transact(overdue, {})
        rows(dsn, FILL)
        yield dsn


def nodes(dsn: str, text: str, mode: str = "auto") -> list[dict[str, Any]]:
    """Return the plan of a statement, every node of it, as the server would run it in that mode."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    for number, name in enumerate(names, start=1):
        text = text.replace(f"%({name})s", f"${number}")
    types = ", ".join(TYPES[name] for name in names)
    storage_id = one(dsn, "SELECT storage_id FROM tallystick.volume")
    namespace_id = one(dsn, "SELECT id::text FROM tallystick.namespace")
    values = ", ".join(VALUES[name] for name in names)
    values = values.replace("{storage_id}", storage_id).replace("{namespace_id}", namespace_id)
    with closing(connect(dsn)) as connection:
        connection.execute(f"SET plan_cache_mode = {mode}".encode())
        connection.execute(f"PREPARE asked ({types}) AS {text}".encode())
        explained = f"EXPLAIN (FORMAT JSON) EXECUTE asked ({values})"
        row = connection.execute(explained.encode()).fetchone()
    assert row is not None
    plan = row["QUERY PLAN"]
    return list(flattened((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]))


def flattened(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from flattened(child)


def on_index(found: list[dict[str, Any]], index: str, column: str) -> list[dict[str, Any]]:
    """Return the nodes that find their rows by a condition on that column of that index."""
    return [
        node
        for node in found
        if node.get("Index Name") == index and column in node.get("Index Cond", "")
    ]


def scanned(found: list[dict[str, Any]], table: str) -> list[dict[str, Any]]:
    return [
        node
        for node in found
        if node["Node Type"] == "Seq Scan" and node.get("Relation Name") == table
    ]


MODES = ["force_custom_plan", "force_generic_plan"]


@pytest.mark.parametrize("mode", MODES)
def test_a_claim_finds_what_is_due_on_the_index_of_open_jobs(history: str, mode: str) -> None:
    found = nodes(history, store._sql("claim"), mode)
    # One search for what is due, one for what is due impossibly late.
    assert len(on_index(found, "job_due", "due_at")) == 2
    assert scanned(found, "job") == []


@pytest.mark.parametrize("mode", MODES)
def test_a_claim_by_the_moving_clock_could_not_use_the_index(history: str, mode: str) -> None:
    moving = altered(store._sql("claim"), "statement_timestamp()", "clock_timestamp()")
    assert on_index(nodes(history, moving, mode), "job_due", "due_at") == []


def test_a_claim_looks_at_no_more_rows_than_it_must(history: str) -> None:
    text = store._sql("claim")
    with closing(connect(history)) as connection:
        connection.execute("BEGIN")
        cursor = connection.execute(
            ("EXPLAIN (ANALYZE, FORMAT JSON) " + text).encode(),
            {
                "operations": ["archive"],
                "storage_id": None,
                "job_id": None,
                "owner": None,
                "lease_seconds": 1.0,
                "farthest_seconds": rules.FARTHEST_JOB_SECONDS,
                "takeovers_max": 10,
                "errors_kept": 20,
            },
        )
        row = cursor.fetchone()
    assert row is not None
    found = list(flattened(row["QUERY PLAN"][0]["Plan"]))
    passed_over = sum(node.get("Rows Removed by Filter", 0) for node in found)
    assert passed_over == 0


def test_scheduling_never_reads_the_history_of_jobs(history: str) -> None:
    found = nodes(history, statement("shared.plans", "schedule"))
    assert scanned(found, "job") == []
    names = {node.get("Index Name") for node in found}
    assert {"job_open", "job_of_plan"} <= names


@pytest.mark.parametrize("name", ["pause_overdue", "resume_cured"])
def test_pausing_and_resuming_never_read_the_history_of_jobs(history: str, name: str) -> None:
    assert scanned(nodes(history, store._sql(name)), "job") == []


def test_pruning_finds_its_next_file_on_the_index_of_archives(history: str) -> None:
    found = nodes(history, statement("shared.operations", "next_files"))
    assert on_index(found, "job_archived", "closed_at")
    assert scanned(found, "job") == []


def test_how_plans_and_jobs_stand_never_reads_the_history_of_jobs(history: str) -> None:
    text = statement("shared.plans", "situations")
    text = text.replace("%(namespace_id)s", "NULL")
    text = text.replace("%(pace_units)s", "100").replace("%(pace_seconds)s", "900")
    assert scanned(nodes(history, text), "job") == []


def test_looking_up_a_claim_by_its_owner_uses_an_index(history: str) -> None:
    found = nodes(history, store._sql("find_claim"))
    assert on_index(found, "job_owner", "owner")


def test_visiting_a_volume_never_reads_the_history_of_jobs(history: str) -> None:
    text = statement("shared.volume", "visit")
    text = text.replace("%(root_inode)s", "'1'").replace("%(marker_inode)s", "'2'")
    assert scanned(nodes(history, text), "job") == []
