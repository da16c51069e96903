"""What a tick costs, and what many processes at once may not cost."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import psycopg
import pytest

from shared.jobs.model import Ending, State
from tests import worlds
from tests.operations.stage import (
    Stage,
    assert_sound,
    child,
    copied,
    ended,
    execute,
    jobs,
    plan,
    rows_in,
    stage,
)
from tests.worlds import control, rows

KINDS = """
[kinds.notes]
root = "public.note"
time = "at"
related = ["public.line"]
"""
DDL = (
    "CREATE TABLE note (id integer PRIMARY KEY, at date)",
    "CREATE TABLE line (note_id integer REFERENCES note, said text)",
    "CREATE INDEX ON note (at, id)",
    "CREATE INDEX ON line (note_id)",
    "INSERT INTO note SELECT i, '2020-01-01'::date + i / 9 FROM generate_series(1, 100) AS i",
    "INSERT INTO line SELECT id, 'l' || n FROM note, generate_series(1, 3) AS n",
)
ROUND_TRIPS_MAX = 12


class Turns:
    """Stands between a client and its server, and counts how often the client had to wait for an answer.

    A turn is whatever the client sends, however much, until the server speaks again.
    """

    def __init__(self, directory: Path, server: str) -> None:
        self.path = directory / ".s.PGSQL.5432"
        self.turns = 0
        self.connections = 0
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            server.connect(self._server)
            # Whoever spoke last, in a list of one so that both directions see it.
            last = ["server"]
            for name, source, sink in (("client", client, server), ("server", server, client)):
                threading.Thread(
                    target=self._pass_on, args=(name, source, sink, last), daemon=True
                ).start()

    def _pass_on(
        self, name: str, source: socket.socket, sink: socket.socket, last: list[str]
    ) -> None:
        with source, sink:
            while data := self._received(source):
                # A client's goodbye is one byte and a length, and gets no answer.
                if name == "client" and last[0] == "server" and data[:1] != b"X":
                    self.turns += 1
                last[0] = name
                try:
                    sink.sendall(data)
                except OSError:
                    return

    @staticmethod
    def _received(source: socket.socket) -> bytes:
        try:
            return source.recv(65536)
        except OSError:
            return b""


@contextmanager
def counted(dsn: str, directory: Path) -> Iterator[tuple[str, Turns]]:
    """Yield a URL that leads to the same database by way of a counter."""
    parts = urlsplit(dsn)
    asked = parse_qs(parts.query)
    directory.mkdir()
    with closing(Turns(directory, f"{asked['host'][0]}/.s.PGSQL.{asked['port'][0]}")) as turns:
        host = quote(str(directory), safe="")
        yield parts._replace(query=f"host={host}&port=5432").geturl(), turns


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    """A job in its middle: twenty roots a batch, the first of five batches confirmed."""
    here = stage(database, volume_root, KINDS, *DDL)
    plan(here, "notes", batch_size=20)
    assert here.tick().outcome.ending is Ending.PROGRESSED
    return here


def test_a_tick_in_the_middle_of_a_job_takes_at_most_twelve_round_trips(
    here: Stage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Short paths: a socket's name has 108 bytes.
    base = tmp_path_factory.mktemp("s")
    with (
        counted(here.control, base / "c") as (to_control, at_control),
        counted(here.source, base / "s") as (to_source, at_source),
    ):
        node = here.changed(
            control_dsn=to_control, sources={"control": to_control, "application": to_source}
        )
        assert node.tick().outcome.ending is Ending.PROGRESSED
        assert (at_control.connections, at_source.connections) == (1, 1)
        # One turn of each opens the connection.
        taken = (at_control.turns - 1, at_source.turns - 1)
    assert sum(taken) <= ROUND_TRIPS_MAX, taken
    assert min(taken) > 0


@pytest.mark.system
def test_a_tick_in_the_middle_of_a_job_syncs_one_file_and_one_directory(
    here: Stage, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    before = ("strace", "-f", "-y", "-e", "trace=fsync,fdatasync,sync_file_range,syncfs", "-o")
    (outcome,) = ended(child(here, before=(*before, str(trace))))
    assert outcome[0] == Ending.PROGRESSED
    synced = re.findall(r"(?:fsync|fdatasync)\(\d+<([^>]*)>", trace.read_text())
    kinds = Counter("file" if "/.tmp/" in path else "directory" for path in synced)
    assert kinds == {"file": 1, "directory": 1}, synced


MANY = 20
VOLUMES = 3
PROCESSES = 8


@pytest.mark.parametrize(
    "isolation", ["read committed", pytest.param("serializable", marks=pytest.mark.system)]
)
def test_eight_processes_over_twenty_jobs_on_three_volumes_do_every_batch_once(
    database: str, tmp_path: Path, isolation: str
) -> None:
    kinds = "\n".join(
        f'[kinds.k{i}]\nroot = "public.note"\ntime = "at"\nwhere = "part = {i}"'
        for i in range(MANY)
    )
    name = rows(database, "SELECT current_database() AS name")[0]["name"]
    execute(database, f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
    first = stage(
        database,
        tmp_path / "v0",
        kinds,
        "CREATE TABLE note (id integer PRIMARY KEY, at date, part integer)",
        f"INSERT INTO note SELECT i, '2020-01-01'::date + i / 50, i % {MANY}"
        f" FROM generate_series(1, {MANY * 7}) AS i",
    )
    here = [first]
    for number in range(1, VOLUMES):
        root = tmp_path / f"v{number}"
        with closing(control(database)) as db:
            storage_id = worlds.a_volume(db, root)
        node = replace(first.node, root=root, storage_id=storage_id)
        here.append(Stage(database, database, root, node))
    for i in range(MANY):
        plan(here[i % VOLUMES], f"k{i}", batch_size=2)
    with ExitStack() as stack:
        children = [
            stack.enter_context(child(here[i % VOLUMES], once=False)) for i in range(PROCESSES)
        ]
        outcomes = [outcome for process in children for outcome in ended(process, 100)]
    # The volume in use is the one thing that may keep a process waiting.
    for place in here:
        place.until_idle()
    allowed = {None, "STORAGE_BUSY"}
    assert {code for _, code, _ in outcomes} <= allowed, outcomes
    found = jobs(first)
    assert [job.state for job in found] == [State.SUCCEEDED] * MANY
    assert {(job.batches, job.attempts, job.failures) for job in found} == {(4, 4, 0)}
    assert rows(database, "SELECT * FROM tallystick.recovery_event") == []
    for job in found:
        place = next(each for each in here if each.storage_id == job.storage_id)
        part = (job.kind or "").removeprefix("k")
        assert rows_in(assert_sound(place, job)) == {
            '"public"."note"': copied(database, f"SELECT * FROM note WHERE part = {part}")
        }


def test_the_counter_counts(here: Stage, tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.mktemp("t")
    with counted(here.control, base / "c") as (dsn, turns):
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("SELECT 1")
            connection.execute("SELECT 2")
        assert turns.turns == 3
