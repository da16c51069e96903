"""One archived shop for every test of reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reading.scene import Scene, scene


@pytest.fixture
def shop(
    database: str,
    volume_root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> Scene:
    """Two archives of one kind, the second going on where the first ended."""
    made = scene(database, volume_root, capfdbinary)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", database)
    monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TALLYSTICK_ARCHIVE_ROOT", str(volume_root))
    monkeypatch.setenv("TALLYSTICK_ARCHIVE_STORAGE_ID", made.stage.storage_id)
    return made
