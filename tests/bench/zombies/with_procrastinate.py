"""Procrastinate, with the periodic task that its documentation gives for stalled jobs.

Run by the environment that ``peers.txt`` describes. ``BENCH_PLAIN`` leaves the periodic task out. A task that
may be aborted asks whether it was, as documented, before its effect.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import procrastinate  # type: ignore[import-not-found]
from procrastinate.exceptions import JobAborted  # type: ignore[import-not-found]

from tests.bench.zombies.job import DEAD_AFTER_SECONDS, System, effect, obey, pause

# The documented example looks every ten minutes.
EVERY_SECOND = "* * * * * *"


def install(url: str) -> None:
    """Make the tables."""
    with _app(url).open() as app:
        app.schema_manager.apply_schema()


def submit(url: str) -> str:
    """Defer the job."""
    with _app(url).open() as app:
        return str(app.configure_task("job", queue="jobs").defer())


def work(url: str, worker: str, _place: str) -> None:
    """Work until told to stop."""
    app = _app(url)

    def job(context: Any) -> None:  # noqa: ANN401 - the peer's type
        pause(url, str(context.job.id), worker)
        if context.should_abort():
            raise JobAborted
        effect(url, str(context.job.id), worker)

    async def retry_stalled_jobs(_context: Any, timestamp: int) -> None:  # noqa: ANN401
        manager = app.job_manager
        for stalled in await manager.get_stalled_jobs(seconds_since_heartbeat=DEAD_AFTER_SECONDS):
            await manager.retry_job(stalled)

    app.task(name="job", queue="jobs", pass_context=True)(job)
    if "BENCH_PLAIN" not in os.environ:
        retry = app.task(
            name="retry", queue="jobs", queueing_lock="retry_stalled_jobs", pass_context=True
        )
        app.periodic(cron=EVERY_SECOND)(retry(retry_stalled_jobs))
    app.run_worker(
        name=worker,
        queues=["jobs"],
        update_heartbeat_interval=DEAD_AFTER_SECONDS / 3,
        stalled_worker_timeout=DEAD_AFTER_SECONDS,
    )


def stop(url: str, job: str) -> None:
    """Abort the job."""
    with _app(url).open() as app:
        app.job_manager.cancel_job_by_id(int(job), abort=True)


def again(url: str, job: str) -> None:
    """Retry the job."""
    with _app(url).open() as app:
        app.job_manager.retry_job_by_id(int(job), datetime.now(UTC))


def _app(url: str) -> Any:  # noqa: ANN401 - the peer's type
    return procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))


if __name__ == "__main__":
    obey(System(install, submit, work, stop, again))
