"""Trouble with a kinds file that is to be applied: it is not there, not the node's, or overtaken."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from shared.errors import Code
from tests.golden.scenario import KINDS
from tests.operations.stage import blocked, wait_for
from tests.remedies.scene import Scene, Variables, remedy


def _nothing_left(scene: Scene) -> None:
    assert scene.ask("apply", "--check", code=0)["changes"] == []


@remedy(Code.KINDS_FILE_MISSING, 1)
def a_node_does_not_name_its_kinds_file(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.setenv(KINDS_FILE=None)
    scene.ask("apply", code=2)
    yield {"FILE": str(scene.kinds)}
    scene.ask("apply", code=0)
    _nothing_left(scene)


@remedy(Code.KINDS_FILE_MISSING, 2)
def a_machine_only_applies(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.setenv(KINDS_FILE=None)
    scene.ask("apply", code=2)
    yield {"FILE": str(scene.kinds)}
    scene.setenv(KINDS_FILE=scene.kinds)
    _nothing_left(scene)


@remedy(Code.KINDS_DIFFER, 1)
def a_reviewed_file_has_not_reached_the_node(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    reviewed = scene.directory / "reviewed.toml"
    reviewed.write_text(KINDS.replace('related = ["app.line"]', ""))
    scene.ask("apply", str(reviewed), code=2)
    yield {"FILE": str(reviewed), "KIND": "orders"}
    _nothing_left(scene)
    scene.ask("apply", str(reviewed), "--check", code=0)


@remedy(Code.KINDS_DIFFER, 2)
def the_file_given_was_the_wrong_one(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    wrong = scene.directory / "wrong.toml"
    wrong.write_text(KINDS.replace("kinds.orders", "kinds.purchases"))
    scene.ask("apply", str(wrong), code=2)
    yield {}
    _nothing_left(scene)


@remedy(Code.DIFFERENCE_STALE, 1, 2)
def somebody_set_a_plan_while_the_difference_was_shown(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    with scene.session() as other:
        other.execute("SELECT FROM tallystick.namespace FOR NO KEY UPDATE")
        command = [sys.executable, "-m", "handlers.cli", "apply", "--json"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as applying:
            wait_for(lambda: blocked(scene.database))
            other.execute("UPDATE tallystick.plan SET batch_size = 7, revision = revision + 1")
            other.commit()
            _, told = applying.communicate(timeout=30)
    assert applying.returncode == 2
    scene.see(json.loads(told.splitlines()[-1]))
    assert scene.ask("plan", "list", code=0)["items"][0]["batch_size"] == 7
    yield {}
    _nothing_left(scene)
    assert scene.ask("plan", "list", code=0)["items"][0]["batch_size"] == 20
