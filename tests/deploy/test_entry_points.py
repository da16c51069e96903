"""What the examples start, started: real processes, a real Postgres, a volume of their own."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy import examples, image
from tests.deploy.deployment import STORAGE_ID, Deployment, compose_service, composed
from tests.worlds import one, rows


@pytest.fixture
def here(empty_database: str, tmp_path: Path) -> Deployment:
    kinds = examples.INFRA / "compose" / "kinds.toml"
    root = tmp_path / "archive"
    # As the image has it, or an administrator makes it.
    root.mkdir(mode=0o700)
    return Deployment(Path(sys.executable).parent, empty_database, root, kinds)


def test_compose_brings_up_a_loop_that_ticks_and_ends_cleanly(here: Deployment) -> None:
    loop, given = composed(here)
    here.plan(given)
    lines = here.ticks_until("finished", loop, given)
    assert "scan" in lines[0]
    assert one(here.database, "SELECT state FROM tallystick.job") == "SUCCEEDED"


def test_compose_up_a_second_time_changes_nothing_and_goes_on(here: Deployment) -> None:
    loop, given = composed(here)
    here.ticks_until("idle", loop, given)
    marker = (here.root / ".storage-id").stat()
    known = rows(here.database, "SELECT version, digest FROM tallystick.migration ORDER BY version")
    loop, given = composed(here)
    here.ticks_until("idle", loop, given)
    assert (here.root / ".storage-id").stat().st_ino == marker.st_ino
    again = rows(here.database, "SELECT version, digest FROM tallystick.migration ORDER BY version")
    assert again == known


def test_an_empty_directory_in_place_of_the_volume_is_not_written_to(here: Deployment) -> None:
    loop, given = composed(here)
    here.ticks_until("idle", loop, given)
    here.plan(given)
    # Kept, so that the directory in its place is not given the same inode.
    here.root.rename(here.root.parent / "unmounted")
    here.root.mkdir(mode=0o700)
    loop, given = composed(here)
    # It says so, claims nothing that needs the volume, and waits.
    said = "".join(here.ticks_until("waiting", loop, given))
    assert "This is a copy of the volume" in said, said
    empty = {".storage-id", ".tmp", ".evidence", ".lock"}
    assert {path.name for path in here.root.iterdir()} == empty
    assert rows(here.database, "SELECT id FROM tallystick.job") == []


def test_another_volume_in_place_of_ours_stops_compose_before_the_loop(here: Deployment) -> None:
    composed(here)
    shutil.rmtree(here.root)
    here.run(("tallystick", "volume", "init", "--root=/archive"), {})
    command, given = compose_service("volume")
    assert "VOLUME_EXISTS" in here.run(command, given, code=2).stderr


def systemd_service(here: Deployment, path: Path) -> tuple[list[str], dict[str, str]]:
    """Return what a unit starts, and its variables, after the first steps of the how-to."""
    given = examples.environment_file()
    here.run(("tallystick", "migrate"), given)
    init = ("volume", "init", "--root=/archive", f"--storage-id={STORAGE_ID}")
    here.run(("tallystick", *init), given)
    here.plan(given)
    program, *arguments = shlex.split(examples.unit(path)["Service"]["ExecStart"])
    assert program == "/opt/tallystick/bin/tallystick"
    return ["tallystick", *arguments], given


def test_the_unit_of_the_timer_ticks_until_nothing_is_due(here: Deployment) -> None:
    command, given = systemd_service(here, examples.TICK_SERVICE)
    lines = here.run(command, given).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["finished", "idle"]


def test_the_unit_of_the_loop_ticks_and_ends_cleanly(here: Deployment) -> None:
    command, given = systemd_service(here, examples.RUN_SERVICE)
    here.ticks_until("finished", command, given)


def cron_line(here: Deployment, tmp_path: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run what the cron line says as cron does: by sh, with next to no variables."""
    *_, line = examples.CRON.read_text().splitlines()
    minute, hour, day, month, weekday, user, command = line.split(maxsplit=6)
    assert (minute, hour, day, month, weekday, user) == ("*", "*", "*", "*", "*", "tallystick")
    # In a crontab this would be the end of the line.
    assert "%" not in command
    real = here.environment(examples.environment_file()) | changes
    file = tmp_path / "tallystick.env"
    file.write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in real.items()))
    command = command.replace("/etc/tallystick/tallystick.env", str(file))
    command = command.replace("/opt/tallystick/bin", str(here.programs))
    return subprocess.run(
        ["sh", "-c", command],
        env={"PATH": "/usr/bin:/bin", "HOME": "/"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_cron_line_works_in_silence_and_speaks_when_something_is_wrong(
    here: Deployment, tmp_path: Path
) -> None:
    systemd_service(here, examples.TICK_SERVICE)
    ended = cron_line(here, tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert one(here.database, "SELECT state FROM tallystick.job") == "SUCCEEDED"
    away = cron_line(here, tmp_path, TALLYSTICK_DATABASE_URL="postgresql://127.0.0.1:1/gone")
    assert "DATABASE_UNAVAILABLE" in away.stdout


def test_the_jobs_of_kubernetes_set_up_and_tick(here: Deployment) -> None:
    def started(container: dict[str, object]) -> tuple[list[str], dict[str, str]]:
        variables = container["env"]
        assert isinstance(variables, list)
        given = {
            each["name"]: each.get("value", "")
            for each in variables
            if not each.get("valueFrom", {}).get("secretKeyRef", {}).get("optional")
        }
        arguments = container["args"]
        assert isinstance(arguments, list)
        return image.final()["ENTRYPOINT"].words + arguments, given

    setup, (cron,) = examples.manifests("setup.yaml"), examples.manifests("cronjob.yaml")
    (loop,) = examples.manifests("loop.yaml")
    # Twice: before each release.
    for manifest in setup + setup:
        for container in examples.containers(manifest):
            here.run(*started(container))
    (tick,) = examples.containers(cron)
    command, given = started(tick)
    here.plan(given)
    assert here.run(command, given).stdout.startswith("finished")
    assert here.run(command, given).stdout.startswith("idle")
    (steady,) = examples.containers(loop)
    here.ticks_until("idle", *started(steady))
