"""DBOS without its Conductor: whoever is started with the executor id of a dead one recovers its workflows.

Run by the environment that ``peers.txt`` describes. ``BENCH_WORKFLOW`` chooses how the job is written.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from dbos import DBOS, DBOSClient, SQLAlchemyDatasource  # type: ignore[import-not-found]
from sqlalchemy import text  # type: ignore[import-not-found]

from tests.bench.zombies.job import System, effect, obey, pause

QUEUE = "jobs"
VERSION = "1"
INSERT = "INSERT INTO effect (job, worker) VALUES (:job, :worker)"


def install(url: str) -> None:
    """Make the tables."""
    _launched(url, "installer")
    DBOS.register_queue(QUEUE)
    DBOS.destroy()


def submit(url: str) -> str:
    """Enqueue the workflow."""
    options = {"queue_name": QUEUE, "workflow_name": "job", "app_version": VERSION}
    return str(_client(url).enqueue(options).get_workflow_id())


def work(url: str, worker: str, place: str) -> None:
    """Work until told to stop."""
    workflows = {"step": _in_one_step, "steps": _in_two_steps, "transaction": _in_a_transaction}
    _launched(url, place, workflows[os.environ["BENCH_WORKFLOW"]](url, worker))
    threading.Event().wait()


def stop(url: str, job: str) -> None:
    """Cancel the workflow."""
    _client(url).cancel_workflow(job)


def again(url: str, job: str) -> None:
    """Resume the workflow."""
    _client(url).resume_workflow(job)


def _in_one_step(url: str, worker: str) -> Callable[[], None]:
    def unit(job: str) -> None:
        pause(url, job, worker)
        effect(url, job, worker)

    step = DBOS.step(name="unit")(unit)
    return lambda: step(DBOS.workflow_id)


def _in_two_steps(url: str, worker: str) -> Callable[[], None]:
    first = DBOS.step(name="pause")(pause)
    second = DBOS.step(name="effect")(effect)

    def workflow() -> None:
        first(url, DBOS.workflow_id, worker)
        second(url, DBOS.workflow_id, worker)

    return workflow


def _in_a_transaction(url: str, worker: str) -> Callable[[], None]:
    """Commit the effect with the record of its step, which needs the table in the same database."""
    datasource = SQLAlchemyDatasource.create(url)

    def unit(job: str) -> None:
        pause(url, job, worker)
        datasource.sql_session().execute(text(INSERT), {"job": job, "worker": worker})

    step = datasource.transaction()(unit)
    return lambda: step(DBOS.workflow_id)


def _launched(url: str, place: str, workflow: Callable[[], None] | None = None) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "executor_id": place,
            "application_version": VERSION,
        }
    )
    if workflow is not None:
        DBOS.workflow(name="job")(workflow)
    DBOS.launch()


def _client(url: str) -> Any:  # noqa: ANN401 - the peer's type
    return DBOSClient(system_database_url=url)


if __name__ == "__main__":
    obey(System(install, submit, work, stop, again))
