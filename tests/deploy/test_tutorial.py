"""The tutorial, typed as it stands: every command block, in one shell, on a database of one's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.operations.stage import execute

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOP = (
    (
        "CREATE TABLE invoice (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
        " invoice_date date NOT NULL, total numeric(10, 2))"
    ),
    "CREATE INDEX ON invoice (invoice_date, id)",
    "CREATE TABLE invoice_line (invoice_id bigint NOT NULL REFERENCES invoice, item text)",
    "CREATE INDEX ON invoice_line (invoice_id)",
    (
        "INSERT INTO invoice (invoice_date, total)"
        " SELECT date '2020-01-01' + n, n / 3.0 FROM generate_series(1, 3000) AS n"
    ),
    "INSERT INTO invoice_line SELECT id, 'item ' || n FROM invoice, generate_series(1, 2) AS n",
    "ANALYZE",
)

pytestmark = pytest.mark.timeout(300)


def blocks() -> list[str]:
    return BLOCK.findall(TUTORIAL.read_text("utf-8"))


def test_every_command_of_the_tutorial_works_in_its_order(
    database: str, empty_database: str, tmp_path: Path
) -> None:
    execute(database, "DROP SCHEMA tallystick CASCADE", *SHOP)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TALLYSTICK_HOME": str(tmp_path / "home"),
        "SOURCE": database,
        "SCRATCH": empty_database,
        "UNTIL": "2021-01-01",
        "KEY": "42",
    }
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(blocks())],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        subprocess.run(
            [Path(sys.executable).parent / "tallystick", "db", "stop"], env=environment, check=True
        )
    assert done.returncode == 0, done.stdout + done.stderr
    for shown in ("invoice_line", "finished", "SOUND", "STORAGE_BUSY", "item 2"):
        assert shown in done.stdout, done.stdout
