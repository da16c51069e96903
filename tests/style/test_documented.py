"""What people can set is written down."""

from __future__ import annotations

from pathlib import Path

from shared.settings import Settings

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_every_setting_is_in_the_reference() -> None:
    text = REFERENCE.read_text("utf-8")
    names = [f"TALLYSTICK_{name.upper()}" for name in Settings.model_fields]
    assert names
    assert [name for name in names if f"`{name}`" not in text] == []
