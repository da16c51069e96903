"""A standby is enough to export from: it is read, and asked for nothing it cannot do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from handlers.cli import run
from shared.archive import window
from shared.archive.opening import opened
from shared.archive.shape import Opening
from shared.archive.source import SourceConnection
from shared.chain.verdict import Verdict
from shared.db.connect import connect
from shared.doctor import source as doctor
from shared.errors import Code, Waits
from shared.volume.directory import verified
from tests.crash.cluster import Cluster, running
from tests.export.standby import standby_of
from tests.kinds.drafts import execute
from tests.operations.stage import copied, rows_in, wait_for
from tests.postgres.reading import definition_of, opening_of, paged, up_to_now
from tests.worlds import one, without

NOTE = "CREATE TABLE note (id integer PRIMARY KEY, at timestamptz NOT NULL)"
BEHIND = "SELECT pg_last_wal_receive_lsn() > pg_last_wal_replay_lsn()"
NOTES = "SELECT * FROM note WHERE at < '2021-01-01'"


@pytest.fixture
def standby(empty_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a standby of the test's server, which has replayed the test's database."""
    execute(
        empty_database,
        "CREATE TABLE note (id integer PRIMARY KEY, at date, said text)",
        "INSERT INTO note SELECT i, '2020-01-01'::date + i, 's' || i FROM generate_series(1, 500) AS i",
    )
    with standby_of(empty_database, tmp_path_factory.mktemp("standby")) as url:
        yield url


@contextmanager
def idle_standby_of(primary: Cluster, home: Path) -> Iterator[str]:
    """Start a standby through which no transaction comes: it has replayed all, and knows no time."""
    home.mkdir()
    with standby_of(primary.dsn, home) as url:
        streams = "SELECT status = 'streaming' FROM pg_stat_wal_receiver"
        wait_for(lambda: one(url, streams))
        assert one(url, "SELECT pg_last_xact_replay_timestamp()") is None
        yield url


def judged(url: str) -> dict[str, Any]:
    """Return what doctor says of a source that is a standby."""
    with closing(SourceConnection(url)) as source:
        found = doctor.judged(doctor.look(source, ()))
    (standby,) = [each for each in found if each.code == Code.SOURCE_STANDBY]
    return standby.params


def window_of(url: str, *, distance: int = 86_400) -> Opening:
    kind = 'root = "public.note"\ntime = "at"'
    with connect(url) as connection:
        return opened(
            connection,
            opening_of(url, kind).shape,
            definition_of(kind),
            cutoff_at="2999-01-01",
            namespace_value=None,
            hidden_margin=distance,
        )


def paused(url: str) -> None:
    """Let a standby receive and not replay."""
    execute(url, "SELECT pg_wal_replay_pause()")
    wait_for(lambda: one(url, "SELECT pg_get_wal_replay_pause_state() = 'paused'"))


def test_a_standby_is_exported_previewed_and_drafted_like_any_other(
    standby: str,
    empty_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert one(standby, "SELECT pg_is_in_recovery()") is True
    # A standby knows how far it is only once a transaction has come through.
    execute(empty_database, "INSERT INTO note VALUES (999, '2999-01-01', 'later')")
    wait_for(lambda: one(standby, "SELECT pg_last_xact_replay_timestamp()"))
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", standby)
    monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))
    assert run(["kinds", "draft", "public.note"]) == 0
    assert run(["preview", "public.note", "--after", "365d", "--json"]) == 0
    capsys.readouterr()
    place = tmp_path / "n"
    options = ["--until", "2021-01-01", "--directory", str(place), "--batch-size", "100", "--json"]
    assert run(["archive", "export", "public.note", *options]) == 0
    tail = json.loads(capsys.readouterr().out)["tail"]
    assert verified(place, tail).verdict is Verdict.SOUND
    found = rows_in(sorted(place.glob("*.zst")))
    assert found == {'"public"."note"': copied(standby, NOTES)}


def test_a_window_the_standby_has_not_reached_waits_and_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--until", "2999-01-01", "--directory", str(tmp_path / "n"), "--json"]
    monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))
    with TemporaryDirectory(prefix="tallystick-") as name, running(Path(name) / "p") as primary:
        execute(primary.dsn, NOTE)
        with idle_standby_of(primary, Path(name) / "s") as url:
            paused(url)
            execute(primary.dsn, "INSERT INTO note VALUES (1, now() - interval '3 days')")
            wait_for(lambda: one(url, BEHIND))
            monkeypatch.setenv("TALLYSTICK_SOURCE_URL", url)
            assert run(["archive", "export", "public.note", *options]) == 1
    error = json.loads(capsys.readouterr().err.splitlines()[-1])["error"]
    assert (error["code"], error["params"]["cause"]) == ("SOURCE_FAILED", "standby-behind")
    assert list(tmp_path.iterdir()) == []


def test_a_standby_of_an_idle_primary_has_come_as_far_as_its_primary_and_doctor_agrees(
    tmp_path: Path,
) -> None:
    with TemporaryDirectory(prefix="tallystick-") as name, running(Path(name) / "p") as primary:
        execute(primary.dsn, NOTE, "CREATE ROLE onlooker LOGIN", "GRANT SELECT ON note TO onlooker")
        with idle_standby_of(primary, Path(name) / "s") as url:
            assert judged(url)["lag"] == 0
            assert window_of(url).held_back == "standby"
            # Who may not see what the receiver does is told so: neither up to date nor behind.
            onlooker = make_conninfo(url, user="onlooker")
            assert (judged(onlooker)["lag"], judged(onlooker)["cause"]) == (None, "hidden")
            with pytest.raises(Waits) as caught:
                window_of(onlooker)
            assert caught.value.params["cause"] == "standby-hidden"
            # Something that is received and not replayed is waited for.
            paused(url)
            execute(primary.dsn, "INSERT INTO note VALUES (1, now() - interval '3 days')")
            wait_for(lambda: one(url, BEHIND))
            with pytest.raises(Waits) as caught:
                window_of(url)
            assert caught.value.params["cause"] == "standby-behind"
            assert judged(url)["lag"] is None
            execute(url, "SELECT pg_wal_replay_resume()")
            wait_for(lambda: one(url, "SELECT count(*) FROM note"))
            # Without anything that streams to it nobody knows what the primary has done since.
            primary.stop()
            wait_for(lambda: one(url, "SELECT count(*) = 0 FROM pg_stat_wal_receiver"))
            assert window_of(url).held_back == "standby"
            with up_to_now(), pytest.raises(Waits) as caught:
                window_of(url, distance=0)
            assert caught.value.params["cause"] == "standby-behind"


def test_a_window_that_asks_only_for_the_last_transaction_of_a_standby_waits_for_ever(
    tmp_path: Path,
) -> None:
    with TemporaryDirectory(prefix="tallystick-") as name, running(Path(name) / "p") as primary:
        execute(primary.dsn, NOTE)
        with idle_standby_of(primary, Path(name) / "s") as url:
            with (
                without(window, "standby", "NOT standby OR caught_up OR", "NOT standby OR"),
                pytest.raises(Waits),
            ):
                window_of(url)
            assert window_of(url).cutoff


def test_a_standby_read_before_it_has_replayed_the_window_lacks_rows_in_silence(
    standby: str, empty_database: str
) -> None:
    kind = 'root = "public.note"\ntime = "at"'
    paused(standby)
    execute(empty_database, "INSERT INTO note VALUES (999, '2020-06-01', 'committed before')")
    on_standby, on_primary = (
        paged(dsn, opening_of(dsn, kind, "2021-01-01"), 1000) for dsn in (standby, empty_database)
    )
    assert set(on_primary) - set(on_standby) == {b"999\t2020-06-01\tcommitted before"}


def test_a_standby_does_not_show_what_runs_on_its_primary(
    standby: str, empty_database: str
) -> None:
    """So a window keeps its distance; what runs for longer than that is a hole that is written down."""
    kind = 'root = "public.fresh"\ntime = "at"'
    execute(
        empty_database, "CREATE TABLE fresh (id integer PRIMARY KEY, at timestamptz DEFAULT now())"
    )
    with psycopg.connect(empty_database) as slow:
        slow.execute("INSERT INTO fresh VALUES (1)")
        cutoff = one(empty_database, "SELECT clock_timestamp()::text")
        execute(empty_database, "INSERT INTO fresh VALUES (2)")
        wait_for(
            lambda: one(standby, "SELECT pg_last_xact_replay_timestamp() > %s::timestamptz", cutoff)
        )
        with up_to_now(), connect(standby) as connection:
            kept, near = (
                opened(
                    connection,
                    opening_of(standby, kind).shape,
                    definition_of(kind),
                    cutoff_at=cutoff,
                    namespace_value=None,
                    hidden_margin=distance,
                )
                for distance in (86_400, 0)
            )
        assert [paged(standby, each, 10) for each in (kept, near)] == [[], []]
    wait_for(lambda: one(standby, "SELECT count(*) FROM fresh") == 2)
    assert paged(standby, kept, 10) == []
    assert len(paged(standby, near, 10)) == 1
    assert (kept.margin_seconds, kept.held_back) == (86_400, "standby")
