"""What tests start from: volumes, policies, plans and jobs in a real database, and a node to tick."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock
from uuid import UUID

from psycopg import sql
from psycopg.types.json import Jsonb

from shared.archive.kinds import NamedKind, builtin
from shared.clock import Deadline
from shared.db.audit import Signature
from shared.db.connect import Database, Dsn, Row, connect
from shared.jobs import store
from shared.jobs.model import Claim, Progress
from shared.loop import wants_more
from shared.plans import planning, policies
from shared.plans.planning import PlanChange
from shared.plans.policies import PolicyChange
from shared.plans.schedule import KnownKind
from shared.tick import Node, Report, Wanted, tick
from shared.volume import identity, ledger

SIGNED = Signature("tester", "a test needs it")
GIBIBYTE = 1024**3
TICKS_MAX = 1000

# A root and what belongs to it, under a schema of its own.
SHOP_TABLES = """
CREATE SCHEMA app;
CREATE TABLE app.orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    placed_at timestamptz NOT NULL
);
CREATE INDEX ON app.orders (placed_at, id);
CREATE TABLE app.line (
    order_id bigint NOT NULL REFERENCES app.orders,
    number integer NOT NULL,
    price numeric(10, 2) NOT NULL,
    PRIMARY KEY (order_id, number)
);
"""

numbers = itertools.count(1)


def control(dsn: Dsn, seconds: float = 60.0) -> Database:
    """Return a control database for one invocation; the caller closes it (``contextlib.closing``)."""
    return Database(dsn, Deadline.after(seconds))


def rows(dsn: str, statement: str, *params: object) -> list[Row]:
    """Run one statement on a connection of its own and return what it gives."""
    with connect(dsn) as connection:
        cursor = connection.execute(statement.encode(), params or None)
        return cursor.fetchall() if cursor.description else []


def one(dsn: str, statement: str, *params: object) -> Any:  # noqa: ANN401 - whatever was asked for
    """Return the first value of the first row; None when there is no row."""
    found = rows(dsn, statement, *params)
    return next(iter(found[0].values())) if found else None


def a_volume(control: Database, root: Path) -> str:
    """Make ``root`` a volume that the database knows, and return its storage id."""
    storage_id = identity.initialise(root)
    with identity.opened(root, storage_id) as volume:
        ledger.visit(control, volume)
    return storage_id


def a_storage_id(control: Database) -> str:
    """Return the id of a volume that only the database knows: no directory belongs to it."""
    storage_id = f"{os.getpid():016x}{next(numbers):016x}"
    statement = (
        "INSERT INTO tallystick.volume (storage_id, root_inode, marker_inode)"
        " VALUES (%(storage_id)s, '1', '2')"
    )
    control.transact(statement, {"storage_id": storage_id})
    return storage_id


def a_policy(
    control: Database,
    kind: str,
    namespace: str = "default",
    *,
    after_days: int = 0,
    enabled: bool = True,
) -> Row:
    """Set a policy, which moves its revision if it is there already."""
    wanted = PolicyChange(kind, after_days=after_days, enabled=enabled)
    return policies.put(control, namespace, wanted, SIGNED)


def a_plan(
    control: Database,
    kind: str | None,
    storage_id: str | None,
    namespace: str = "default",
    operation: str | None = None,
    **changes: Any,  # noqa: ANN401 - the members of PlanChange
) -> Row:
    """Set an enabled plan (of a scan when ``kind`` is None), with a policy if it has none yet."""
    known = {(row["namespace"], row["kind"]) for row in policies.listed(control)}
    if kind is not None and (namespace, kind) not in known:
        a_policy(control, kind, namespace)
    named = operation or ("scan" if kind is None else "archive")
    wanted = PlanChange(named, kind, storage_id, **({"enabled": True} | changes))
    return planning.put(control, namespace, wanted, SIGNED)


def namespace_id(control: Database, name: str = "default") -> UUID:
    """Return the id of a namespace."""
    statement = "SELECT id FROM tallystick.namespace WHERE name = %(name)s"
    found: UUID = control.transact(statement, {"name": name})[0]["id"]
    return found


def a_job(control: Database, **columns: Any) -> UUID:  # noqa: ANN401 - any column of the table
    """Insert a job as given and return its id; by default an archive that is due and has no plan.

    ``due_in`` sets ``due_at`` in seconds from now. Dictionaries and lists become jsonb.
    """
    due_in = columns.pop("due_in", None)
    defaults: dict[str, Any] = {"operation": "archive", "batch_size": 16, "max_bytes": GIBIBYTE}
    values = defaults | {"input": {}} | columns
    values.setdefault("namespace_id", namespace_id(control))
    values.setdefault("page_size", values["batch_size"])
    params = {
        name: Jsonb(value) if isinstance(value, dict | list) else value
        for name, value in values.items()
    }
    names = [sql.Identifier(name) for name in params]
    places: list[sql.Composable] = [sql.Placeholder(name) for name in params]
    if due_in is not None:
        names.append(sql.Identifier("due_at"))
        places.append(sql.SQL("clock_timestamp() + make_interval(secs => {})").format(due_in))
    statement = sql.SQL("INSERT INTO tallystick.job ({}) VALUES ({}) RETURNING id").format(
        sql.SQL(", ").join(names), sql.SQL(", ").join(places)
    )
    with control.transaction() as connection:
        row = connection.execute(statement, params).fetchone()
    assert row is not None
    found: UUID = row["id"]
    return found


def change_job(control: Database, job_id: UUID, changes: str) -> None:
    """Change columns of a job past all rules; ``changes`` is what follows SET."""
    statement = f"UPDATE tallystick.job SET {changes} WHERE id = %(job_id)s"
    control.transact(statement, {"job_id": job_id})


def expire_lease(control: Database, job_id: UUID) -> None:
    """Let the lease of a running job have ended a moment ago."""
    # One value for both columns: they must stay equal, and the clock moves within a statement.
    ended = "statement_timestamp() - interval '1 ms'"
    change_job(control, job_id, f"due_at = {ended}, lease_until = {ended}")


def make_due(control: Database, job_id: UUID) -> None:
    """Let a waiting job be due now, as if its backoff were over."""
    change_job(control, job_id, "due_at = clock_timestamp()")


def search(storage_id: str | None = None, **changes: Any) -> store.Search:  # noqa: ANN401
    """Return what a tick on that volume looks for: any operation, any job, two minutes of lease."""
    values: dict[str, Any] = {"operations": ("archive", "scan"), "lease_seconds": 120.0}
    return store.Search(storage_id=storage_id, **(values | changes))


def a_claim(control: Database, storage_id: str | None = None, **changes: Any) -> Claim:  # noqa: ANN401
    """Claim what is due; a test that calls this knows that there is something."""
    claim = store.claim(control, search(storage_id, **changes))
    assert isinstance(claim, Claim)
    return claim


def a_progress(claim: Claim, **changes: Any) -> Progress:  # noqa: ANN401 - the members of Progress
    """Return the next unit of a claimed job as an operation would record it: ten roots, 100 bytes."""
    seq = claim.job.batches + 1
    digest = f"{seq:064x}"
    values: dict[str, Any] = {
        "seq": seq,
        "sha256": digest,
        "bytes": 100,
        "roots": 10,
        "evidence": {"rows": {"public.invoice": 10}},
        "checkpoint": {"cursor": ["2026-01-01", str(seq)], "rows": 10 * seq},
        "tail": digest,
        "final": False,
    }
    return Progress(**(values | changes))


def altered(statement: str, rule: str, instead: str = "") -> str:
    """Return a statement of the product with one of its rules taken away, to show what the rule is for."""
    assert rule in statement
    return statement.replace(rule, instead)


@contextmanager
def without(module: ModuleType, name: str, rule: str, instead: str = "") -> Iterator[None]:
    """Let a module send one of its statements with a rule taken away, until the end of the block."""
    product, sent = module.statement, []

    def statement(package: str, wanted: str) -> str:
        text: str = product(package, wanted)
        if wanted != name:
            return text
        sent.append(wanted)
        return altered(text, rule, instead)

    with mock.patch.object(module, "statement", statement):
        yield
    assert sent, f"{name} was not sent: nothing was shown"


def known(kinds: Iterable[NamedKind]) -> tuple[KnownKind, ...]:
    """Return kinds as a node knows them."""
    return tuple(KnownKind(each.name, each.only_namespace, each.definition) for each in kinds)


def node(
    dsn: str,
    root: Path | None,
    storage_id: str | None,
    kinds: Iterable[NamedKind] | None = None,
    **changes: Any,  # noqa: ANN401 - the members of Node
) -> Node:
    """Return a node whose source is the control database; its kinds are the built-in ones if not given."""
    values: dict[str, Any] = {
        "control_dsn": dsn,
        "sources": {"control": dsn, "application": dsn},
        "kinds": known(builtin() if kinds is None else kinds),
        "root": root,
        "storage_id": storage_id,
        "volume_max_bytes": 10 * GIBIBYTE,
        "deadline_seconds": 45.0,
        "lease_seconds": 120.0,
        "writer": "tallystick test",
    }
    return Node(**(values | changes))


def until_idle(node: Node, wanted: Wanted | None = None) -> list[Report]:
    """Tick until nothing more is to be done at once, and return every report; never for ever."""
    reports = []
    for _ in range(TICKS_MAX):
        reports.append(tick(node, wanted or Wanted()))
        if not wants_more(reports[-1]):
            return reports
    raise AssertionError(reports[-1])
