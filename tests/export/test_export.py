"""One archive without a control database: the same files, verified, resumable, refused where it must be."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from handlers.cli import run
from shared.chain.manifest import parse_manifest
from shared.chain.verdict import Verdict
from shared.errors import Refused
from shared.volume import lock
from shared.volume.beside import opened_beside
from shared.volume.directory import verified
from shared.volume.identity import Volume
from tests.kinds.drafts import execute
from tests.operations.stage import copied, rows_in, wait_for

TABLES = (
    "CREATE TABLE note (id integer PRIMARY KEY, at timestamp NOT NULL, said text)",
    "CREATE TABLE line (note integer REFERENCES note, n integer)",
    (
        "INSERT INTO note SELECT i, '2020-01-01'::timestamp + i * interval '1 day', repeat('x', i % 50)"
        " FROM generate_series(1, 400) AS i"
    ),
    "INSERT INTO line SELECT id, n FROM note, generate_series(1, 2) AS n",
)
OLD = {
    '"public"."note"': "SELECT * FROM note WHERE at < '2021-01-01'",
    '"public"."line"': "SELECT l.* FROM line AS l JOIN note ON id = note WHERE at < '2021-01-01'",
}
UNTIL = ("--until", "2021-01-01")


@pytest.fixture
def source(empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an application's database, the only thing that is set."""
    execute(empty_database, *TABLES)
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", empty_database)
    monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))
    return empty_database


class Shell:
    """Runs ``archive export`` in this process; what it prints comes back as JSON."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, directory: Path, *more: str, table: str = "public.note") -> dict[str, Any]:
        code, out, err = self.run(directory, *more, table=table)
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    def refused(self, directory: Path, *more: str, code: int = 2, **kind: str) -> dict[str, Any]:
        ended, _, err = self.run(directory, *more, **kind)
        assert ended == code, err
        found: dict[str, Any] = json.loads(err.splitlines()[-1])["error"]
        assert found["message"]
        assert found["next"]
        return found

    def run(self, directory: Path, *more: str, table: str = "public.note") -> tuple[int, str, str]:
        self._capture.readouterr()
        options = more if "--until" in more else (*more, *UNTIL)
        code = run(["archive", "export", table, "--directory", str(directory), *options, "--json"])
        captured = self._capture.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def shell(source: str, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.sql.zst"))


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def assert_whole(source: str, directory: Path, tail: str) -> None:
    assert verified(directory, tail).verdict is Verdict.SOUND
    assert verified(directory, "0" * 64).verdict is Verdict.BROKEN
    assert rows_in(files(directory)) == {
        table: copied(source, select) for table, select in OLD.items()
    }


def test_a_table_becomes_an_archive_and_nothing_else_is_left_behind(
    source: str, shell: Shell, tmp_path: Path
) -> None:
    place = tmp_path / "notes"
    done = shell(place, "--batch-size", "100")
    assert (done["batches"], done["roots"], done["rows"]) == (4, 365, 365 * 3)
    assert_whole(source, place, done["tail"])
    assert place.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in place.iterdir()} == {0o600}
    assert names_in(tmp_path) == ["notes"]
    manifest = parse_manifest((place / "manifest.json").read_bytes())
    assert (manifest.policy, manifest.previous) == (None, None)
    assert (manifest.kind, manifest.namespace.name) == ("note", "default")
    # What was decided on the way is said, and the source was only read.
    assert done["tables"] == ["public.note", "public.line"]


def test_it_says_what_a_drafted_kind_follows(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(
        source,
        "CREATE TYPE pair AS (a integer)",
        "ALTER TABLE note ADD COLUMN p pair UNIQUE",
        "CREATE TABLE odd (p pair REFERENCES note (p))",
    )
    assert (
        run(["archive", "export", "public.note", "--directory", str(tmp_path / "n"), *UNTIL]) == 0
    )
    said = capsys.readouterr()
    assert "along with it go public.line" in said.err
    assert "Left out: public.odd" in said.err
    assert "--expected-sha256" in said.out


def test_a_kind_of_a_file_is_exported_as_it_says(source: str, shell: Shell, tmp_path: Path) -> None:
    kinds = tmp_path / "kinds.toml"
    kinds.write_text(
        '[kinds.short]\nroot = "public.note"\ntime = "at"\nwhere = "id % 2 = 0"\nbatch = 50\n'
        'time_zone = "Asia/Tokyo"\n'
    )
    done = shell(tmp_path / "n", "--kind-file", str(kinds), table="short")
    assert (done["kind"], done["batches"], done["cutoff"]) == ("short", 4, "2021-01-01 00:00:00")
    found = rows_in(files(tmp_path / "n"))
    old = "SELECT * FROM note WHERE at < '2021-01-01' AND id % 2 = 0"
    assert found == {'"public"."note"': copied(source, old)}


def test_an_instant_with_its_own_zone_is_meant_as_it_says(
    source: str, shell: Shell, tmp_path: Path
) -> None:
    done = shell(tmp_path / "n", "--until", "2021-01-01T02:00:00+02:00")
    assert done["cutoff"] == "2021-01-01 00:00:00"


def test_a_window_ends_at_the_latest_now(source: str, shell: Shell, tmp_path: Path) -> None:
    execute(source, "INSERT INTO note VALUES (1000, now() AT TIME ZONE 'UTC' + interval '1 day')")
    done = shell(tmp_path / "n", "--until", "2999-01-01")
    assert done["roots"] == 400
    assert done["cutoff"] < "2999"


def test_the_same_command_again_finds_it_finished(
    source: str, shell: Shell, tmp_path: Path
) -> None:
    first = shell(tmp_path / "n")
    before = {file.name: file.read_bytes() for file in (tmp_path / "n").iterdir()}
    execute(source, "INSERT INTO note VALUES (0, '2020-01-01')")
    again = shell(tmp_path / "n", "--until", "2022-01-01")
    assert (again["tail"], again["resumed_after"]) == (first["tail"], first["batches"])
    assert again["cutoff"] == first["cutoff"] != again["cutoff_asked"]
    assert {file.name: file.read_bytes() for file in (tmp_path / "n").iterdir()} == before


def test_a_user_who_may_only_read_will_do(
    source: str, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(
        source,
        "DO $$ BEGIN CREATE ROLE export_reader LOGIN; EXCEPTION WHEN duplicate_object THEN END $$",
        "GRANT SELECT ON note, line TO export_reader",
    )
    url = psycopg.conninfo.make_conninfo(
        source, user="export_reader", options="-c default_transaction_read_only=on"
    )
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", url)
    done = shell(tmp_path / "n")
    assert_whole(source, tmp_path / "n", done["tail"])


def test_rows_that_name_their_namespace_are_told_apart(
    source: str, shell: Shell, tmp_path: Path
) -> None:
    execute(source, "ALTER TABLE note ADD COLUMN owner text DEFAULT 'north'")
    kinds = tmp_path / "kinds.toml"
    kinds.write_text('[kinds.owned]\nroot = "public.note"\ntime = "at"\nnamespace = "owner"\n')
    done = shell(tmp_path / "n", "--kind-file", str(kinds), "--namespace", "north", table="owned")
    assert done["roots"] == 365
    none = shell(tmp_path / "s", "--kind-file", str(kinds), "--namespace", "south", table="owned")
    assert (none["roots"], none["batches"]) == (0, 1)


def spoiled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def test_a_directory_that_cannot_take_it_is_refused_and_left_alone(
    source: str, shell: Shell, tmp_path: Path
) -> None:
    used, wide, link = tmp_path / "used", tmp_path / "wide", tmp_path / "link"
    used.mkdir(mode=0o700)
    (used / "mine.txt").write_text("mine")
    wide.mkdir()
    wide.chmod(0o755)
    link.symlink_to(used)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    found = {
        used: "not-empty",
        wide: "mode",
        link: "ELOOP",
        used / "mine.txt": "ENOTDIR",
        tmp_path / "absent" / "n": "ENOENT",
        link / "n": "below-link",
        tmp_path / "loop" / "n": "below-link",
    }
    for place, cause in found.items():
        problem = shell.refused(place)
        assert (problem["code"], problem["params"]["cause"]) == ("EXPORT_DIRECTORY", cause)
    assert names_in(tmp_path) == ["link", "loop", "used", "wide"]
    assert names_in(used) == ["mine.txt"]


def test_an_export_of_something_else_is_not_continued(
    source: str, shell: Shell, tmp_path: Path
) -> None:
    place = tmp_path / "n"
    shell(place, "--batch-size", "100")
    files(place)[-1].unlink()
    execute(source, "ALTER TABLE note ADD COLUMN other timestamp")
    kinds = tmp_path / "kinds.toml"
    kinds.write_text('[kinds.note]\nroot = "public.note"\ntime = "at"\n')
    for more in (("--time", "other"), ("--kind-file", str(kinds)), ("--namespace", "x")):
        table = "note" if "--kind-file" in more else "public.note"
        extra = more if "--time" in more or table == "note" else (*more, "--time", "at")
        problem = shell.refused(place, *extra, table=table)
        assert problem["params"]["cause"] == "other-kind"
    # The kind as it was, and the table no longer is.
    problem = shell.refused(place, "--time", "at", code=1)
    assert (problem["code"], problem["params"]["cause"]) == ("SOURCE_FAILED", "manifest")
    execute(source, "ALTER TABLE note DROP COLUMN other")
    shell(place, "--time", "at")


def test_damage_stops_it_before_anything_is_added(
    source: str, shell: Shell, tmp_path: Path
) -> None:
    place = tmp_path / "n"
    done = shell(place, "--batch-size", "100")
    files(place)[-1].unlink()
    spoiled(files(place)[1])
    problem = shell.refused(place, code=1)
    assert (problem["code"], problem["params"]["file"]) == ("EXPORT_STOPPED", "000002.sql.zst")
    assert len(files(place)) == 3
    files(place)[1].unlink()
    assert shell.refused(place, code=1)["code"] == "EXPORT_STOPPED"
    for file in files(place):
        file.unlink()
    # An end that was cut off is found by the tail that somebody kept.
    problem = shell.refused(place, "--expected-sha256", done["tail"])
    assert problem["params"]["cause"] == "expected"
    assert shell(place)["batches"] == 4


def test_only_one_export_at_a_time_writes_to_a_directory(
    source: str, shell: Shell, tmp_path: Path
) -> None:
    with opened_beside(tmp_path / "n"):
        assert shell.refused(tmp_path / "n")["params"]["cause"] == "busy"
    assert names_in(tmp_path) == []


IN_AND_OUT = """
import os, sys, time
from pathlib import Path
from shared.errors import Refused
from shared.volume.beside import opened_beside
place, alone = Path(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(150):
    try:
        with opened_beside(place):
            os.close(os.open(alone, os.O_CREAT | os.O_EXCL))
            time.sleep(0.001)
            alone.unlink()
    except Refused as refused:
        print(refused.params["cause"])
    else:
        print("done")
"""


def test_exports_that_begin_and_end_at_once_are_alone_or_say_that_it_is_busy(
    tmp_path: Path,
) -> None:
    """Each that ends takes the directories away again under the feet of those that are about to begin."""
    command = [sys.executable, "-c", IN_AND_OUT, str(tmp_path / "n"), str(tmp_path / "alone")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(4)]  # type: ignore[call-overload]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert {answer for each in answers for answer in each} <= {"done", "busy"}
    assert all(len(each) == 150 for each in answers)
    assert "done" in answers[0] + answers[1] + answers[2] + answers[3]


def test_a_working_directory_that_is_taken_away_while_it_is_opened_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = lock.held

    def late(volume: Volume) -> AbstractContextManager[int]:
        (tmp_path / ".n.export").rmdir()
        return prepare(volume)

    monkeypatch.setattr(lock, "held", late)
    with pytest.raises(Refused) as refused, opened_beside(tmp_path / "n"):
        pass
    assert refused.value.params["cause"] == "busy"


def test_what_an_export_makes_is_private_whatever_umask_and_parent_say(
    source: str, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "team").chmod(0o2777)
    before = os.umask(0o777)
    try:
        place = tmp_path / "team" / "n"
        shell(place)
    finally:
        os.umask(before)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}
    # One that was made by hand has the bit of its parent, which opens it to nobody.
    by_hand = tmp_path / "team" / "m"
    by_hand.mkdir(mode=0o700)
    assert stat.S_IMODE(by_hand.stat().st_mode) == 0o2700
    shell(by_hand)


def test_a_root_that_is_too_large_for_the_time_is_named(
    source: str, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Declared as what it is not, or the condition would be refused.
    execute(
        source,
        "CREATE FUNCTION slow(integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS"
        " 'BEGIN PERFORM pg_catalog.pg_sleep(3); RETURN false; END'",
    )
    kinds = tmp_path / "kinds.toml"
    kinds.write_text(
        '[kinds.slow]\nroot = "public.note"\ntime = "at"\nwhere = "id <> 5 OR public.slow(id)"\n'
    )
    for name, seconds in (("DEADLINE", "1"), ("TIMEOUT", "1.5"), ("LEASE", "3")):
        monkeypatch.setenv(f"TALLYSTICK_{name}_SECONDS", seconds)
    problem = shell.refused(tmp_path / "n", "--kind-file", str(kinds), table="slow", code=1)
    assert (problem["code"], problem["params"]["cause"]) == ("SOURCE_FAILED", "timeout")
    assert "TALLYSTICK_DEADLINE_SECONDS" in problem["next"]


@pytest.fixture
def western(server_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of a database in an encoding that has bytes without a meaning."""
    name = f"western_{os.getpid()}"
    execute(
        server_dsn,
        f"CREATE DATABASE {name} ENCODING WIN1252 LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0",
    )
    url = psycopg.conninfo.make_conninfo(server_dsn, dbname=name)
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", url)
    yield url
    execute(server_dsn, f"DROP DATABASE {name} WITH (FORCE)")


def test_a_value_the_source_cannot_print_is_narrowed_down_to_its_root(
    western: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(western, *TABLES, "UPDATE note SET said = 'zqz' || chr(129) WHERE id = 7 OR id > 365")
    shell = Shell(capsys)
    problem = shell.refused(tmp_path / "n", "--batch-size", "4", code=1)
    assert (problem["code"], problem["params"]["cause"]) == ("SOURCE_FAILED", "unprintable")
    assert problem["params"]["key"] == ["7"]
    assert "zqz" not in json.dumps(problem)
    # What came before it is safe, and verifies.
    assert verified(tmp_path / "n").verdict is Verdict.UNFINISHED
    assert sum(rows_in(files(tmp_path / "n"))['"public"."note"'].values()) == 6
    execute(western, "UPDATE note SET said = 'é' WHERE id = 7")
    done = shell(tmp_path / "n")
    assert done["resumed_after"] > 0
    assert_whole(western, tmp_path / "n", done["tail"])


COMMAND = [sys.executable, "-m", "handlers.cli", "archive", "export", "public.note", *UNTIL]


def test_killed_in_the_middle_the_command_goes_on_after_the_last_file(
    source: str, shell: Shell, tmp_path: Path
) -> None:
    place = tmp_path / "n"
    process = subprocess.Popen(
        [*COMMAND, "--directory", str(place), "--batch-size", "5"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    )
    wait_for(lambda: len(files(place)) > 5, 60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert verified(place).verdict is Verdict.UNFINISHED
    assert ".n.export" in names_in(tmp_path)
    rest = shell(place)
    assert rest["resumed_after"] >= 5
    assert_whole(source, place, rest["tail"])
    assert names_in(tmp_path) == ["n"]


CHILD = """
import json, os, signal, sys
from pathlib import Path

given = json.loads(sys.argv[1])
left = given["calls"]

def deadly(call):
    def called(*args, **kwargs):
        global left
        left -= 1
        if left == 0 and given["when"] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = call(*args, **kwargs)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    return called

for name in ("mkdir", "fsync", "link", "unlink", "rmdir"):
    setattr(os, name, deadly(getattr(os, name)))

from handlers.cli import run
sys.exit(run(given["command"]))
"""


def test_killed_at_any_call_that_changes_the_disk_it_is_sound_and_goes_on(
    source: str, shell: Shell, tmp_path: Path
) -> None:
    """Each run dies before or after a later call than the one before, all in the same directory."""
    place = tmp_path / "n"
    command = [*COMMAND[3:], "--directory", str(place), "--batch-size", "40"]
    seen = 0
    for calls in (1, 2, 4, 6, *range(8, 18)):
        when = ("before", "after")[calls % 2]
        given = json.dumps({"command": command, "calls": calls, "when": when})
        done = subprocess.run(
            [sys.executable, "-c", CHILD, given],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
            check=False,
        )
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        if place.exists() and names_in(place):
            assert verified(place).verdict in {Verdict.UNFINISHED, Verdict.CONSISTENT}
            assert len(files(place)) >= seen
            seen = len(files(place))
    assert seen > 2
    rest = shell(place)
    assert_whole(source, place, rest["tail"])
    assert len(files(place)) == 10
    assert names_in(tmp_path) == ["n"]
