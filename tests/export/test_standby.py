"""A standby is enough to export from: it is read, and asked for nothing it cannot do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from handlers.cli import run
from shared.archive.opening import opened
from shared.chain.verdict import Verdict
from shared.db.connect import connect
from shared.volume.directory import verified
from tests.export.standby import standby_of
from tests.kinds.drafts import execute
from tests.operations.stage import copied, rows_in, wait_for
from tests.postgres.reading import definition_of, opening_of, paged
from tests.worlds import one

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
    standby: str,
    empty_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    execute(empty_database, "INSERT INTO note VALUES (999, '2999-01-01', 'later')")
    wait_for(lambda: one(standby, "SELECT pg_last_xact_replay_timestamp()"))
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", standby)
    monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))
    options = ["--until", "2999-01-01", "--directory", str(tmp_path / "n"), "--json"]
    assert run(["archive", "export", "public.note", *options]) == 1
    error = json.loads(capsys.readouterr().err.splitlines()[-1])["error"]
    assert (error["code"], error["params"]["cause"]) == ("SOURCE_FAILED", "standby-behind")
    assert list(tmp_path.iterdir()) == []


def test_a_standby_read_before_it_has_replayed_the_window_lacks_rows_in_silence(
    standby: str, empty_database: str
) -> None:
    kind = 'root = "public.note"\ntime = "at"'
    execute(standby, "SELECT pg_wal_replay_pause()")
    wait_for(lambda: one(standby, "SELECT pg_get_wal_replay_pause_state() = 'paused'"))
    execute(empty_database, "INSERT INTO note VALUES (999, '2020-06-01', 'committed before')")
    on_standby, on_primary = (
        paged(dsn, opening_of(dsn, kind, "2021-01-01"), 1000) for dsn in (standby, empty_database)
    )
    assert set(on_primary) - set(on_standby) == {b"999\t2020-06-01\tcommitted before"}


def test_a_standby_does_not_show_what_runs_on_its_primary(
    standby: str, empty_database: str
) -> None:
    """A hole that is written down: what such a transaction brings in afterwards counts as late."""
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
        with connect(standby) as connection:
            opening = opened(
                connection,
                opening_of(standby, kind).shape,
                definition_of(kind),
                cutoff_at=cutoff,
                namespace_value=None,
            )
        assert paged(standby, opening, 10) == []
    wait_for(lambda: one(standby, "SELECT count(*) FROM fresh") == 2)
    assert len(paged(standby, opening, 10)) == 1
