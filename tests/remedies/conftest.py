"""Every page of an error code has remedies, and every remedy is carried out here.

How to add a page and its remedies:

1. Write ``shared/messages/pages/en/CODE.md``. Its form is checked by ``test_pages.py``: a heading, one
   sentence on a line of its own (the index shows it), what the code means to whom, then the sections
   Why, What to do, What is kept safe; 15 to 45 lines. All its fenced blocks are ``sh`` and stand under
   "What to do". What differs from place to place is a variable: ``$JOB``, ``$KIND``, ``$ROOT``,
   ``$DATABASE`` (a URL), ``$SOURCE`` (a URL), … ``bash -euo pipefail`` runs them, so a command that is to
   show what is broken, and exits with 1, ends with ``|| true``. What a person edits is opened with
   ``"${EDITOR:-vi}"``.
2. Write a scenario in a module of this directory (they are found by themselves), a generator::

       @remedy(Code.PERMISSION_DENIED, 1)
       def a_namespace_was_disabled(scene: Scene) -> Iterator[Variables]:
           job = scene.in_mid_job()
           scene.do("namespaces", "disable", "default")
           scene.ask("tick", code=3)          # the trouble is real, and a command said its code
           yield {"NAMESPACE": "default", "JOB": job}
           scene.finishes(job)                # the trouble is gone

   The numbers are those of the page's blocks it runs, from 1, in one shell one after the other. Between
   the ``yield`` and what follows, the blocks are taken from the page and run with those variables; settings
   they export are in force afterwards. The harness checks that the code was shown before the ``yield`` (by
   ``scene.ask``; for other processes call ``scene.see`` with their JSON), and that every block of every page
   is run by some scenario. All of it runs by ``make test-system``.
3. Write the index anew: ``UPDATE_GOLDEN=1 pytest tests/remedies/test_pages.py``.

``scene.py`` has the stage: ``deploy``, ``in_mid_job``, ``time_passes``, ``finishes``, ``role``, ``editor``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.scenario import Shell
from tests.remedies.scene import Scene


@pytest.fixture
def scene(
    server_dsn: str,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Scene:
    """A fresh database and an empty directory; nothing is deployed yet."""
    (tmp_path / "volume").mkdir(mode=0o700)
    made = Scene(tmp_path, database, server_dsn, monkeypatch, Shell(capsys))
    made.setenv(HOME=tmp_path / "home", DATABASE_URL=database)
    return made
