"""PgQueuer, set up as its deployment guide says: a listener that fails ends the worker.

Run by the environment that ``peers.txt`` describes. An entrypoint that may be cancelled asks whether it
was, as documented, before its effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg  # type: ignore[import-not-found]
import pgqueuer  # type: ignore[import-not-found]

from tests.bench.zombies.job import DEAD_AFTER_SECONDS, System, effect, obey, pause


def install(url: str) -> None:
    """Make the tables."""
    _asked(url, lambda queries: queries.install())


def submit(url: str) -> str:
    """Enqueue the job."""
    (job,) = _asked(url, lambda queries: queries.enqueue("job", None))
    return str(job)


def work(url: str, worker: str, _place: str) -> None:
    """Work until told to stop."""

    async def job(taken: Any, context: Any) -> None:  # noqa: ANN401 - the peer's types
        await asyncio.to_thread(pause, url, str(taken.id), worker)
        if not context.cancellation.cancel_called:
            await asyncio.to_thread(effect, url, str(taken.id), worker)

    @asynccontextmanager
    async def manager() -> AsyncIterator[Any]:
        async with asyncpg.create_pool(url) as pool:
            made = pgqueuer.PgQueuer.from_asyncpg_pool(pool)
            made.entrypoint("job", accepts_context=True, on_failure="hold")(job)
            yield made

    running = pgqueuer.run(
        manager,
        dequeue_timeout=timedelta(seconds=1),
        heartbeat_timeout=timedelta(seconds=DEAD_AFTER_SECONDS),
        shutdown_on_listener_failure=True,
    )
    asyncio.run(running)


def stop(url: str, job: str) -> None:
    """Cancel the job."""
    _asked(url, lambda queries: queries.mark_job_as_cancelled([int(job)]))


def again(url: str, job: str) -> None:
    """Queue the job again; it is only documented for jobs that failed."""
    _asked(url, lambda queries: queries.requeue_jobs([int(job)]))


def _asked(url: str, question: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:  # noqa: ANN401
    async def ask() -> Any:  # noqa: ANN401 - whatever was asked for
        connection = await asyncpg.connect(url)
        try:
            return await question(pgqueuer.Queries.from_asyncpg_connection(connection))
        finally:
            await connection.close()

    return asyncio.run(ask())


if __name__ == "__main__":
    obey(System(install, submit, work, stop, again))
