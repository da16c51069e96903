"""The embedded server: starts where nothing is set up, survives crashes, lets nobody else in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from shared.db import embedded
from shared.errors import Code, Refused

START = """
import pathlib, sys
from shared.db import embedded
print(embedded.start(pathlib.Path(sys.argv[1]), durable=False))
"""

STOP = """
import pathlib, sys
from shared.db import embedded
embedded.stop(pathlib.Path(sys.argv[1]))
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """State directory with a short path, stopped and removed at the end."""
    with tempfile.TemporaryDirectory(prefix="tallystick-") as name:
        yield Path(name)
        embedded.stop(Path(name))


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """Process that has nothing to do with any server."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def ask(url: str, question: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(question.encode()).fetchone()
        return row[0] if row else None


def tell(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def pid_file(home: Path) -> Path:
    return embedded.Embedded(home).pid_file


def name_as_server(left: Path, pid: int) -> None:
    """Write another pid into the first line of what a killed server left."""
    _, *rest = left.read_text().splitlines(keepends=True)
    left.write_text("".join([f"{pid}\n", *rest]))


def kill_server(home: Path) -> None:
    """Kill the server as a crash would and wait until no process of it is left."""
    os.kill(int(pid_file(home).read_text().split()[0]), signal.SIGKILL)
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        with embedded._sole_owner(embedded.Embedded(home)) as life:
            if life is not None:
                return
        time.sleep(0.02)
    pytest.fail("processes of the killed server stayed")


def test_a_second_start_finds_the_running_server(home: Path) -> None:
    first = embedded.start(home, durable=False)
    began = ask(first, "SELECT pg_postmaster_start_time()")
    assert embedded.start(home, durable=False) == first == embedded.url(home)
    assert ask(first, "SELECT pg_postmaster_start_time()") == began


def test_two_processes_that_start_at_once_share_one_server(home: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", START, str(home)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    answers = {racer.communicate(timeout=60)[0].strip() for racer in racers}
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert answers == {embedded.url(home)}


def test_the_server_outlives_the_process_that_started_it(home: Path) -> None:
    subprocess.run([sys.executable, "-c", START, str(home)], check=True, capture_output=True)
    url = embedded.url(home)
    assert url is not None
    assert ask(url, "SELECT 1") == 1


def test_stop_ends_the_server_and_says_whether_there_was_one(home: Path) -> None:
    assert embedded.stop(home) is False
    embedded.start(home, durable=False)
    assert embedded.stop(home) is True
    assert embedded.url(home) is None
    assert embedded.stop(home) is False


def test_rows_are_still_there_after_stop_and_start(home: Path) -> None:
    tell(embedded.start(home), "CREATE TABLE kept AS SELECT 7 AS number")
    embedded.stop(home)
    assert ask(embedded.start(home), "SELECT number FROM kept") == 7


@pytest.mark.parametrize("left", ["data/postmaster.pid", ".s.PGSQL.5432.lock"])
def test_a_killed_server_starts_again_though_its_pid_is_now_somebody_elses(
    home: Path, stranger: subprocess.Popen[bytes], left: str
) -> None:
    tell(embedded.start(home), "CREATE TABLE kept AS SELECT 7 AS number")
    kill_server(home)
    name_as_server(home / "postgres" / left, stranger.pid)
    assert embedded.url(home) is None
    assert ask(embedded.start(home), "SELECT number FROM kept") == 7


def test_stop_signals_no_stranger_who_got_the_pid_of_a_dead_server(
    home: Path, stranger: subprocess.Popen[bytes]
) -> None:
    embedded.start(home, durable=False)
    kill_server(home)
    name_as_server(pid_file(home), stranger.pid)
    assert embedded.stop(home) is False
    with pytest.raises(subprocess.TimeoutExpired):
        stranger.wait(0.3)


def test_stop_waits_while_another_process_starts_or_stops(home: Path) -> None:
    embedded.start(home, durable=False)
    with embedded._locked(embedded.Embedded(home)):
        stopping = subprocess.Popen([sys.executable, "-c", STOP, str(home)])
        with pytest.raises(subprocess.TimeoutExpired):
            stopping.wait(1.5)
        assert embedded.url(home) is not None
    assert stopping.wait(30) == 0
    assert embedded.url(home) is None


def test_a_cut_initdb_is_begun_again(home: Path) -> None:
    (home / "postgres").mkdir(mode=0o700)
    half = home / "postgres" / "data.new"
    half.mkdir(mode=0o700)
    (half / "PG_VERSION").write_text("18\n")
    assert ask(embedded.start(home, durable=False), "SELECT 1") == 1
    assert not half.exists()


def test_a_home_with_awkward_characters_in_its_name_works(home: Path) -> None:
    awkward = home / 'it\'s $HOME `x` "y" %2F'
    try:
        assert ask(embedded.start(awkward, durable=False), "SELECT 1") == 1
    finally:
        embedded.stop(awkward)


def test_a_home_too_long_for_a_socket_gets_a_short_private_directory(home: Path) -> None:
    deep = home / ("d" * 80) / ("e" * 80)
    sockets = embedded.Embedded(deep).sockets
    try:
        assert ask(embedded.start(deep, durable=False), "SELECT 1") == 1
        assert sockets.stat().st_mode & 0o777 == 0o700
        assert not sockets.is_relative_to(home)
    finally:
        embedded.stop(deep)
        sockets.rmdir()


def test_a_socket_directory_laid_by_somebody_else_is_refused(home: Path) -> None:
    deep = home / ("d" * 80) / ("e" * 80)
    sockets = embedded.Embedded(deep).sockets
    sockets.symlink_to(home)
    try:
        with pytest.raises(Refused) as refused:
            embedded.start(deep, durable=False)
    finally:
        sockets.unlink()
    assert refused.value.code is Code.EMBEDDED_FAILED
    assert refused.value.params["step"] == "directory"


def test_a_directory_others_may_enter_is_refused_and_left_as_it_is(home: Path) -> None:
    directory = home / "postgres"
    directory.mkdir()
    directory.chmod(0o755)
    with pytest.raises(Refused) as refused:
        embedded.start(home, durable=False)
    assert refused.value.code is Code.EMBEDDED_FAILED
    assert refused.value.params["step"] == "directory"
    assert directory.stat().st_mode & 0o777 == 0o755
    directory.chmod(0o700)


def test_starting_adds_no_user_and_changes_no_permission_above(home: Path) -> None:
    above = [home, *home.parents, Path(embedded.__file__).parent]
    modes = [(path.stat().st_mode, path.stat().st_uid) for path in above]
    users = Path("/etc/passwd").read_bytes()
    embedded.start(home, durable=False)
    assert [(path.stat().st_mode, path.stat().st_uid) for path in above] == modes
    assert Path("/etc/passwd").read_bytes() == users
    assert {path.stat().st_uid for path in (home / "postgres").rglob("*")} == {os.geteuid()}


def test_a_server_is_durable_unless_asked_otherwise(home: Path) -> None:
    careful = embedded.start(home)
    assert [ask(careful, f"SHOW {name}") for name in embedded.CARELESS] == ["on", "on", "on"]
    embedded.stop(home)
    careless = embedded.start(home, durable=False)
    assert [ask(careless, f"SHOW {name}") for name in embedded.CARELESS] == ["off", "off", "off"]


def test_the_server_listens_on_its_private_socket_only(home: Path) -> None:
    url = embedded.start(home, durable=False)
    assert ask(url, "SHOW listen_addresses") == ""
    assert (home / "postgres" / ".s.PGSQL.5432").stat().st_mode & 0o777 == 0o700


def test_the_environment_of_other_servers_does_not_leak_in(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("PGOPTIONS", "-c nonsense=1")
    url = embedded.start(home, durable=False)
    monkeypatch.undo()
    assert ask(url, "SHOW port") == "5432"


def test_a_cluster_that_cannot_start_says_why(home: Path) -> None:
    embedded.start(home, durable=False)
    embedded.stop(home)
    (home / "postgres" / "data" / "postgresql.conf").write_text("no_such_setting = 1\n")
    with pytest.raises(Refused) as refused:
        embedded.start(home, durable=False)
    assert refused.value.code is Code.EMBEDDED_FAILED
    assert refused.value.params["step"] == "start"
    assert "no_such_setting" in str(refused.value.params["detail"])


def test_without_the_wheel_the_code_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Refused) as refused:
        embedded.start(home, durable=False)
    assert refused.value.code is Code.EMBEDDED_MISSING
    assert list(home.iterdir()) == []


def test_root_without_user_namespaces_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = home / "unshare"
    blocked.write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n")
    blocked.chmod(0o755)
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(Refused) as refused:
        embedded._without_root()
    assert refused.value.code is Code.EMBEDDED_BLOCKED
    assert "not permitted" in str(refused.value.params["detail"])
