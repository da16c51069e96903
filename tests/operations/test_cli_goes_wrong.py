"""What can go wrong, seen from the shell: the code, the exit code, and words that say what to do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.golden.scenario import Answered, Shell
from tests.worlds import rows

SIGNED = ("--actor", "tester", "--reason", "a test needs it")


def error(answered: Answered) -> dict[str, str]:
    assert answered.out == ""
    found: dict[str, str] = json.loads(answered.err.splitlines()[-1])["error"]
    assert found["message"]
    assert found["next"]
    return found


def newest_job(shell: Shell) -> str:
    items = json.loads(shell("jobs", "list", "--json").out)["items"]
    return str(items[0]["id"])


def archive_of(root: Path, job: str) -> Path:
    return next(root.glob(f"*-{job}"))


def test_a_database_without_a_schema_is_refused_and_migrate_is_named(
    empty_database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", empty_database)
    shell = Shell(capsys)
    answered = shell("jobs", "list", "--json")
    assert answered.code == 2
    assert error(answered)["code"] == "SCHEMA_MISSING"
    assert error(answered)["next"] == "`tallystick migrate`."
    assert shell("migrate", "--check").code == 1
    assert json.loads(shell("migrate", "--json").out)["applied"]
    assert shell("migrate", "--check").code == 0


def test_an_unreachable_database_is_not_good_and_its_password_is_not_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "postgresql://me:topsecret@/db?host=/nowhere/at/all"
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", url)
    answered = Shell(capsys)("jobs", "list", "--json")
    assert answered.code == 1
    assert error(answered)["code"] == "DATABASE_UNAVAILABLE"
    assert "topsecret" not in answered.err


def test_a_budget_that_is_reached_fails_the_job_and_a_retry_with_more_goes_on(
    shell: Shell, database: str
) -> None:
    assert shell("tick").code == 0
    job = newest_job(shell)
    rows(database, "UPDATE tallystick.job SET max_bytes = bytes + 1 RETURNING id")
    failed = shell("tick", "--json")
    assert failed.code == 3
    told = json.loads(failed.out)
    assert (told["outcome"], told["code"]) == ("failed", "STORAGE_LIMIT")
    assert f"tallystick jobs retry {job} --max-bytes SIZE" in told["next"]
    # Nothing else is open, so the next tick says that an operator is waited for.
    assert shell("tick").code == 3
    assert "STORAGE_LIMIT" in shell("jobs", "show", job).out
    assert shell("jobs", "retry", job, *SIGNED).code == 0
    assert shell("tick").code == 3
    assert shell("jobs", "retry", job, "--max-bytes", "10MiB", *SIGNED).code == 0
    assert shell("tick", "--until-idle").code == 0
    assert json.loads(shell("archive", "verify", job, "--json").out)["verdict"] == "SOUND"


def test_an_unreachable_source_is_tried_again_and_said_so(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", "postgresql://nobody@/db?host=/nowhere/at/all")
    answered = shell("tick")
    assert answered.code == 1
    assert "EXPORT_FAILED" in answered.out
    assert "TALLYSTICK_SOURCE_URL" in answered.out
    assert json.loads(shell("kinds", "list", "--json").out)["items"][-1]["there"] is None


def test_a_volume_that_is_open_to_others_is_shown_with_the_command_that_closes_it(
    shell: Shell, volume_root: Path
) -> None:
    volume_root.chmod(0o755)
    shown = shell("volume", "show", "--json")
    assert shown.code == 1
    found = json.loads(shown.out)
    assert found["usable"] is False
    assert found["problem"]["next"] == f"`chmod 0700 {volume_root}`."
    ticked = shell("tick", "--json")
    assert ticked.code == 1
    assert json.loads(ticked.out)["note"]["params"]["cause"] == "mode"
    refused = shell("plan", "set", "orders", "--enable", *SIGNED, "--json")
    assert refused.code == 1
    assert error(refused)["code"] == "STORAGE_UNAVAILABLE"


def test_a_copy_of_the_volume_is_used_only_after_it_was_adopted(
    shell: Shell, volume_root: Path
) -> None:
    moved = volume_root.with_name("moved")
    volume_root.rename(moved)
    volume_root.mkdir(mode=0o700)
    for entry in moved.iterdir():
        entry.rename(volume_root / entry.name)
    shown = shell("volume", "show")
    assert shown.code == 1
    assert "tallystick volume adopt --reason TEXT" in shown.out
    assert shell("volume", "adopt", *SIGNED).code == 0
    assert shell("volume", "show").code == 0
    assert shell("tick").code == 0


def test_without_a_volume_every_question_is_answered_and_nothing_moves(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TALLYSTICK_ARCHIVE_ROOT", "TALLYSTICK_ARCHIVE_STORAGE_ID"):
        monkeypatch.delenv(name)
    for command in (
        ("jobs", "list"),
        ("plan", "list"),
        ("volume", "show"),
        ("archive", "tails"),
        ("recovery", "list"),
    ):
        assert shell(*command).code == 0
    ticked = shell("tick", "--json")
    assert ticked.code == 0
    assert json.loads(ticked.out)["code"] == "VOLUME_NOT_CONFIGURED"
    assert shell("archive", "verify", "--all").code == 2


def test_a_damaged_archive_is_broken_with_file_and_reason(shell: Shell, volume_root: Path) -> None:
    assert shell("tick", "--until-idle").code == 0
    job = newest_job(shell)
    batch = archive_of(volume_root, job) / "000002.sql.zst"
    batch.write_bytes(batch.read_bytes()[:-1])
    for command in (
        ("archive", "verify", job),
        ("archive", "verify", str(batch.parent)),
        ("archive", "verify", "--directory", str(batch.parent)),
        ("archive", "verify", "--all"),
    ):
        answered = shell(*command)
        assert answered.code == 1
        assert "000002.sql.zst" in answered.out
        assert "cut off" in answered.out


def test_the_expected_tail_anchors_a_directory_and_another_one_breaks_it(
    shell: Shell, volume_root: Path
) -> None:
    assert shell("tick", "--until-idle").code == 0
    tails = json.loads(shell("archive", "tails", "--json").out)["items"]
    directory = str(archive_of(volume_root, newest_job(shell)))
    command = ("archive", "verify", directory, "--json", "--expected-sha256")
    sound = shell(*command, tails[0]["tail"])
    assert (sound.code, json.loads(sound.out)["verdict"]) == (0, "SOUND")
    broken = shell(*command, "0" * 64)
    assert (broken.code, json.loads(broken.out)["params"]["cause"]) == (1, "TAIL_NOT_FOUND")


def test_an_unfinished_archive_is_good_unless_its_end_is_required(
    shell: Shell, volume_root: Path
) -> None:
    assert shell("tick").code == 0
    directory = str(archive_of(volume_root, newest_job(shell)))
    answered = shell("archive", "verify", directory, "--json")
    assert (answered.code, json.loads(answered.out)["verdict"]) == (0, "UNFINISHED")
    assert shell("archive", "verify", directory, "--require-final").code == 1
    assert shell("archive", "verify", "--all", "--require-final").code == 1


def test_an_archive_that_is_gone_is_a_bad_line_and_not_the_end_of_the_list(
    shell: Shell, volume_root: Path
) -> None:
    assert shell("tick", "--until-idle").code == 0
    archive_of(volume_root, newest_job(shell)).rename(volume_root.parent / "gone")
    answered = shell("archive", "verify", "--all", "--json")
    assert answered.code == 1
    assert [item["verdict"] for item in json.loads(answered.out)["items"]] == ["UNREADABLE"]


@pytest.mark.parametrize("what", ["foreign", "link", "missing manifest"])
def test_a_directory_with_anything_else_in_it_is_broken(
    shell: Shell, volume_root: Path, what: str
) -> None:
    assert shell("tick", "--until-idle").code == 0
    directory = archive_of(volume_root, newest_job(shell))
    if what == "foreign":
        (directory / "0000001.sql.zst").touch()
    elif what == "link":
        (directory / "000003.sql.zst").rename(volume_root.parent / "elsewhere")
        (directory / "000003.sql.zst").symlink_to(volume_root.parent / "elsewhere")
    else:
        (directory / "manifest.json").unlink()
    answered = shell("archive", "verify", str(directory), "--json")
    assert answered.code == 1
    causes = {
        "foreign": "ENTRY_FOREIGN",
        "link": "ENTRY_NOT_REGULAR",
        "missing manifest": "MANIFEST_MISSING",
    }
    assert json.loads(answered.out)["params"]["cause"] == causes[what]


def test_a_link_to_an_archive_is_not_followed(shell: Shell, volume_root: Path) -> None:
    link = volume_root.parent / "link"
    link.symlink_to(volume_root)
    answered = shell("archive", "verify", str(link), "--json")
    assert answered.code == 2
    assert error(answered)["code"] == "DIRECTORY_UNREADABLE"
    assert "symbolic link" in error(answered)["message"]


def test_a_condition_the_server_does_not_accept_is_named(shell: Shell, volume_root: Path) -> None:
    kinds = volume_root.parent / "kinds.toml"
    kinds.write_text(
        '[kinds.root]\nroot = "app.orders"\ntime = "placed_at"\nwhere = "colour = 1"\n'
        '[kinds.child]\nroot = "app.orders"\ntime = "placed_at"\n'
        '[[kinds.child.related]]\ntable = "app.line"\nwhere = "price"\n'
        '[kinds.good]\nroot = "app.orders"\ntime = "placed_at"\nwhere = "customer <> \'x\' -- none"\n'
        '[[kinds.good.related]]\ntable = "app.line"\nwhere = "price > 0 -- none"\n'
    )
    answered = shell("kinds", "check", "root", "child", "good", "--json")
    assert answered.code == 1
    found = {item["kind"]: item for item in json.loads(answered.out)["items"]}
    refusals = {
        name: [
            (each["code"], each["params"].get("table"))
            for each in item["findings"]
            if each["refuses"]
        ]
        for name, item in found.items()
    }
    assert refusals == {
        "root": [("WHERE_INVALID", "app.orders")],
        "child": [("WHERE_INVALID", "app.line")],
        "good": [],
    }
    assert "colour" in found["root"]["findings"][-1]["message"]


def test_a_user_who_cannot_see_other_transactions_is_warned(
    shell: Shell, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = f"reader_{os.getpid()}"
    rows(database, f"CREATE ROLE {role} LOGIN")
    try:
        rows(database, f"GRANT USAGE ON SCHEMA app TO {role}")
        rows(database, f"GRANT SELECT ON ALL TABLES IN SCHEMA app TO {role}")
        parts = urlsplit(database)
        place = parts.netloc.rpartition("@")[2]
        reader = urlunsplit(parts._replace(netloc=f"{role}@{place}"))
        monkeypatch.setenv("TALLYSTICK_SOURCE_URL", reader)
        answered = shell("kinds", "check", "orders", "--json")
        findings = json.loads(answered.out)["items"][0]["findings"]
        assert answered.code == 0
        assert [each["code"] for each in findings] == ["ACTIVITY_HIDDEN"]
    finally:
        rows(database, f"DROP OWNED BY {role}")
        rows(database, f"DROP ROLE {role}")


def test_a_job_is_named_by_the_beginning_of_its_id(shell: Shell) -> None:
    assert shell("tick").code == 0
    job = newest_job(shell)
    assert json.loads(shell("jobs", "show", job[:8], "--json").out)["id"] == job
    for text, cause in (("01234567", None), (job[:7], "malformed"), ("no job", "malformed")):
        answered = shell("jobs", "show", text, "--json")
        assert answered.code == 2
        assert error(answered)["code"] == "JOB_UNKNOWN"
        assert error(answered)["params"].get("cause") == cause  # type: ignore[attr-defined]


def test_pages_of_jobs_and_events_join_without_a_gap(shell: Shell) -> None:
    assert shell("plan", "set", "--operation", "scan", "--enable", *SIGNED).code == 0
    assert shell("tick", "--until-idle").code == 0
    whole = [item["id"] for item in json.loads(shell("jobs", "list", "--json").out)["items"]]
    assert len(whole) == 2
    first = json.loads(shell("jobs", "list", "--limit", "1", "--json").out)
    second = json.loads(
        shell("jobs", "list", "--limit", "1", "--before", first["next_before"], "--json").out
    )
    assert [item["id"] for page in (first, second) for item in page["items"]] == whole
    assert second["next_before"] == ""


def test_no_job_shows_cursors_owners_or_generations(shell: Shell) -> None:
    assert shell("tick").code == 0
    job = newest_job(shell)
    for command in (("jobs", "list"), ("jobs", "show", job), ("tick",)):
        text = shell(*command, "--json").out
        for secret in ("cursor", "owner", "generation", "checkpoint", "2020-01-0", "customer"):
            assert secret not in text


@pytest.mark.parametrize("often", [False, True], ids=["once", "again_and_again"])
def test_the_loop_ends_at_a_boundary_when_it_is_told_to(shell: Shell, often: bool) -> None:
    command = [sys.executable, "-m", "handlers.cli", "run", "--every", "1s", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as loop:
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            items = json.loads(shell("jobs", "list", "--json").out)["items"]
            if items and items[0]["state"] == "SUCCEEDED":
                break
            time.sleep(0.2)
        loop.send_signal(signal.SIGTERM)
        while often and loop.poll() is None:
            loop.send_signal(signal.SIGTERM)
            time.sleep(0.001)
        out, _ = loop.communicate(timeout=60)
    assert loop.returncode == 0
    found = json.loads(out)
    assert found["outcomes"]["finished"] == 1
    assert found["ticks"] == sum(found["outcomes"].values())


def test_output_into_a_closed_pipe_is_no_traceback(shell: Shell) -> None:
    command = f"{sys.executable} -m handlers.cli kinds list --json | true"
    done = subprocess.run(
        ["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.stderr == ""


def test_adopting_an_older_state_says_what_is_missing(shell: Shell, volume_root: Path) -> None:
    assert shell("tick", "--until-idle").code == 0
    newest = archive_of(volume_root, newest_job(shell)) / "000003.sql.zst"
    newest.unlink()
    shown = json.loads(shell("volume", "show", "--json").out)
    assert (shown["usable"], shown["problem"]["params"]["cause"]) == (False, "last-missing")
    answered = shell("volume", "adopt", "--reason", "the snapshot is all there is")
    assert answered.code == 0
    assert f"{newest.parent.name}/{newest.name}" in " ".join(answered.out.split())
    shown = json.loads(shell("volume", "show", "--json").out)
    assert (shown["usable"], shown["items"][0]["last_settled"]) == (True, None)
    again = json.loads(shell("volume", "adopt", "--reason", "once more", "--json").out)
    assert (again["expected"], again["problem"]) == (None, None)
