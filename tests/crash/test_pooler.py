"""Everything works with a pooler in transaction mode between Tallystick and its databases."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from handlers import log
from shared.archive.source import SourceConnection, snapshot
from shared.errors import Passing
from shared.jobs.model import Ending, State
from shared.jobs.rules import Action
from tests import worlds
from tests.crash.conftest import Grounds
from tests.crash.pooler import pooled
from tests.crash.scene import Scene
from tests.doctor.ward import a_ward
from tests.golden.scenario import Shell
from tests.operations import stage
from tests.operations.stage import Stage

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


def through(world: Scene, way: str) -> Stage:
    """Return the stage with a node that knows no other way than through the pooler."""
    sources = dict.fromkeys(world.stage.node.sources, way)
    node = world.stage.changed(control_dsn=way, sources=sources).node
    return Stage(way, way, world.stage.root, node)


@pytest.mark.parametrize("name", ["archive", "scan", "prune"])
def test_every_operation_runs_to_its_end_through_a_pooler(
    grounds: Grounds, name: str, tmp_path: Path
) -> None:
    here = grounds(name)
    with here.world() as world:
        with pooled(world.stage.control, tmp_path) as way:
            reports = through(world, way).until_idle()
        assert {each.outcome.ending for each in reports[:-1]} <= stage.MORE
        assert reports[-1].outcome.ending is Ending.IDLE
        assert here.faults(world) == []
        assert all(job.state is State.SUCCEEDED for job in stage.jobs(world.stage))


def test_a_takeover_works_through_a_pooler(grounds: Grounds, tmp_path: Path) -> None:
    here = grounds("archive, next batch")
    with here.world() as world:
        with pooled(world.stage.control, tmp_path) as way:
            far = through(world, way)
            with closing(worlds.control(way)) as database:
                claim = worlds.a_claim(database, far.storage_id)
                worlds.expire_lease(database, claim.job.id)
            report = far.tick()
            assert (report.outcome.ending, report.reclaimed) == (Ending.PROGRESSED, True)
            far.until_idle()
        assert "job-reclaimed-after-restart" in stage.event_types(world.stage)
        assert here.faults(world) == []


def test_operators_act_through_a_pooler(grounds: Grounds, tmp_path: Path) -> None:
    here = grounds("archive, next batch")
    with here.world() as world:
        with pooled(world.stage.control, tmp_path) as way:
            far = through(world, way)
            paused = stage.act(far, stage.only_job(far), Action.PAUSE)
            assert (paused.state, far.tick().outcome.ending) == (State.PAUSED, Ending.IDLE)
            stage.act(far, paused, Action.RESUME)
            far.until_idle()
        assert here.faults(world) == []


def test_the_doctor_finds_nothing_wrong_through_a_pooler(
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (
        a_ward(database, Shell(capsys), monkeypatch) as ward,
        pooled(database, tmp_path, users=[ward.role]) as way,
    ):
        said = conninfo_to_dict(way)
        url = f"postgresql://{ward.role}@127.0.0.1:{said['port']}/{said['dbname']}?sslmode=disable"
        ward.setenv(DATABASE_URL=url)
        assert ward.findings() == []


def test_an_export_works_through_a_pooler(
    grounds: Grounds,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with grounds("archive").world() as world, pooled(world.stage.source, tmp_path) as way:
        monkeypatch.setenv("TALLYSTICK_SOURCE_URL", way)
        monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))
        target = tmp_path / "export"
        options = ("--directory", str(target), "--until", "2021-01-01", "--json")
        answered = Shell(capsys)("archive", "export", "public.note", *options)
        assert answered.code == 0, answered
        assert Shell(capsys)("archive", "verify", "--directory", str(target)).code == 0
        found = stage.rows_in(sorted(target.glob("*.sql.zst")))
        assert found['"public"."note"'] == stage.copied(
            world.stage.source, "SELECT * FROM note WHERE at < '2021-01-01'"
        )


def test_a_pooler_that_allows_no_transactions_is_named(
    deployment: Shell, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pooled(database, tmp_path, mode="statement") as way:
        monkeypatch.setenv("TALLYSTICK_DATABASE_URL", way)
        for command in (("kinds", "check", "orders"), ("policy", "set", "orders", "--after", "1d")):
            signed = ("--reason", "a test") if command[0] == "policy" else ()
            answered = deployment(*command, *signed, "--json")
            assert '"cause": "pool-mode"' in answered.out + answered.err, answered
            assert "pool_mode = transaction" in answered.out + answered.err


def test_a_pooler_with_too_few_sessions_is_named_without_a_word_of_the_driver(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log.start("INFO", "text")
    with (
        pooled(database, tmp_path, mode="session", sessions=1, wait=2) as way,
        closing(worlds.control(way)) as control,
        closing(SourceConnection(way)) as source,
    ):
        control.transact("SELECT 1 AS x", {})
        with (
            pytest.raises(Passing) as passing,
            snapshot(source.open(), [], name="t", seconds=5, lock=False),
        ):
            pass
        assert passing.value.params["cause"] == "pool-exhausted"
    assert [each for each in caplog.records if each.name.startswith("psycopg")] == []


def test_two_sessions_are_enough_for_a_tick_in_session_mode(
    shell: Shell, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pooled(database, tmp_path, mode="session", sessions=2, wait=5) as way:
        monkeypatch.setenv("TALLYSTICK_DATABASE_URL", way)
        assert shell("tick", "--until-idle").code == 0
