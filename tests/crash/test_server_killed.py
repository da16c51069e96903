"""A server killed in the middle of a tick: what it acknowledged is there, and nothing is done twice."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from tests.crash import record
from tests.crash.cluster import Cluster, running
from tests.crash.cutting import Point, points, through, told, units, untrue
from tests.crash.extent import EVERY
from tests.crash.trial import Ground, ground, recover, sessions_end
from tests.crash.wire import AFTER, ANSWERED, BEFORE, Cut, wire
from tests.worlds import control, one

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

WORLD = "archive"
# The gate kills at one exchange in so many.
SOME = 5


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="tallystick-") as name, running(Path(name)) as started:
        yield started


@pytest.fixture(scope="module")
def here(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """The world of an archive in a database of that server."""
    with ExitStack() as stack:
        place = tmp_path_factory.mktemp("mould")
        yield stack.enter_context(ground(WORLD, cluster.dsn, cluster.template(), place))


def cuts(found: list[Point]) -> list[Cut]:
    """Return the exchanges at which a server can go: before it hears of one, and before it has answered."""
    return [
        Cut(point.nth, way) for point in found if point.kind in ANSWERED for way in (BEFORE, AFTER)
    ]


def trial(
    here: Ground, cluster: Cluster, link: str, cut: Cut, kill: Callable[[], None]
) -> list[str]:
    """Kill the server in a tick, start it again, recover, and return what is wrong."""
    with here.world() as world:
        before = units(world)
        with wire(world.stage.control, cut, kill) as between:
            report = through(here, world, link, between)
        cluster.start()
        if between.struck is None:
            return [f"{cut}: there was no such message"]
        sessions_end(world.stage)
        faults = untrue(world, report, told("control", "source"), before)
        recover(world.stage)
        faults += here.faults(world)
        return [f"{kill.__name__}, {cut} ({between.struck}): {fault}" for fault in faults]


def sweep(here: Ground, cluster: Cluster, link: str, name: str, every: int) -> list[str]:
    """Kill at every nth exchange of one connection."""
    kill = getattr(cluster, name)
    chosen = cuts(points(here, link))[::every]
    faults = [fault for cut in chosen for fault in trial(here, cluster, link, cut, kill)]
    world = f"{WORLD}, {link}"
    record.keep(record.Line("server", world, name, len(chosen), len(chosen), faults))
    return faults


@pytest.mark.parametrize("link", ["control", "source"])
def test_a_server_killed_at_some_exchanges_of_a_tick_has_kept_what_it_said(
    here: Ground, cluster: Cluster, link: str
) -> None:
    assert sweep(here, cluster, link, "kill", SOME) == []


@pytest.mark.parametrize("link", ["control", "source"])
def test_a_session_killed_in_a_tick_takes_the_server_down_and_nothing_with_it(
    here: Ground, cluster: Cluster, link: str
) -> None:
    assert sweep(here, cluster, link, "kill_one", SOME) == []


@pytest.mark.sweep
@pytest.mark.parametrize("link", ["control", "source"])
def test_a_server_killed_at_every_exchange_of_a_tick_has_kept_what_it_said(
    here: Ground, cluster: Cluster, link: str
) -> None:
    assert sweep(here, cluster, link, "kill", EVERY) == []


UNHURRIED = """
    ALTER SYSTEM SET wal_writer_delay = '10s';
    ALTER DATABASE postgres SET synchronous_commit = off;
    CREATE TABLE public.acknowledged (n integer)"""


def test_what_a_server_acknowledged_is_lost_with_it_unless_commits_wait_for_the_disk(
    cluster: Cluster,
) -> None:
    """A settle that was acknowledged and lost would leave a file that nobody has recorded."""
    with psycopg.connect(cluster.dsn, autocommit=True) as connection:
        for each in UNHURRIED.split(";"):
            connection.execute(each.encode())
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("CHECKPOINT")
    kept = "INSERT INTO public.acknowledged VALUES ({})"
    with psycopg.connect(cluster.dsn, autocommit=True) as connection:
        connection.execute(kept.format(1).encode())
        cluster.kill()
    cluster.start()
    assert one(cluster.dsn, "SELECT count(*) FROM acknowledged") == 0
    with closing(control(cluster.dsn)) as ours:
        ours.transact(kept.format(2), {})
        cluster.kill()
    cluster.start()
    assert one(cluster.dsn, "SELECT n FROM acknowledged") == 2
