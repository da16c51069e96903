"""Settings: read once, from the environment only, and every problem said at once."""

from __future__ import annotations

from pathlib import Path

import pydantic
import pytest

from shared.errors import Code, Refused
from shared.settings import PREFIX, Settings, load, origins

STORAGE_ID = "0123456789abcdef" * 2
SECRET = "postgresql://ann:hunter2@db/app"


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)


def given(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(PREFIX + name, value)


def problems(monkeypatch: pytest.MonkeyPatch, **values: str) -> dict[str, str]:
    given(monkeypatch, **values)
    with pytest.raises(Refused) as refused:
        load()
    assert refused.value.code is Code.SETTINGS_INVALID
    found = refused.value.params["problems"]
    assert isinstance(found, list)
    return {each["name"] or each["problem"]: each["problem"] for each in found}


def test_without_anything_set_the_defaults_hold_and_belong_together() -> None:
    settings = load()
    assert (settings.deadline_seconds, settings.timeout_seconds) == (45.0, 50.0)
    assert (settings.lease_seconds, settings.tick_interval) == (120.0, 10.0)
    assert settings.archive_max_bytes == 10 * 2**30
    assert settings.archive_root is None
    assert set(origins(settings).values()) == {"default"}


def test_what_is_set_is_taken_and_named_as_such(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given(
        monkeypatch,
        DATABASE_URL=SECRET,
        ARCHIVE_ROOT=str(tmp_path),
        ARCHIVE_STORAGE_ID=STORAGE_ID,
        TICK_INTERVAL="2.5",
    )
    settings = load()
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == SECRET
    assert (settings.archive_root, settings.archive_storage_id) == (tmp_path, STORAGE_ID)
    assert settings.tick_interval == 2.5
    assert {name for name, origin in origins(settings).items() if origin == "environment"} == {
        "database_url",
        "archive_root",
        "archive_storage_id",
        "tick_interval",
    }


def test_an_empty_value_is_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, DATABASE_URL="", ARCHIVE_ROOT="")
    assert load().database_url is None


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        load().lease_seconds = 1.0


def test_every_problem_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = problems(
        monkeypatch,
        TICK_INTERVAL="0.5",
        ARCHIVE_MAX_BYTES="many",
        LOG_LEVEL="LOUD",
        ARCHIVE_STORAGE_ID="short",
        LEASE_SECOND="60",
    )
    assert set(found) == {
        "TALLYSTICK_TICK_INTERVAL",
        "TALLYSTICK_ARCHIVE_MAX_BYTES",
        "TALLYSTICK_LOG_LEVEL",
        "TALLYSTICK_ARCHIVE_STORAGE_ID",
        "TALLYSTICK_LEASE_SECOND",
    }


def test_problems_of_several_settings_together_are_said_at_once_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = problems(
        monkeypatch,
        ARCHIVE_ROOT="archive",
        DEADLINE_SECONDS="60",
        TIMEOUT_SECONDS="50",
        LEASE_SECONDS="55",
    )
    assert set(found.values()) == {
        "archive_root_and_storage_id_together",
        "archive_root_absolute",
        "deadline_before_timeout",
        "lease_longer_than_timeout",
    }


@pytest.mark.parametrize("which", ["DATABASE", "SOURCE"])
def test_a_token_needs_a_url_and_no_secret(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    token = f"{which}_IAM"
    assert problems(monkeypatch, **{token: "true"}) == {PREFIX + token: "iam_needs_url"}
    both = {f"{which}_URL": "postgresql://me@db/jobs", f"{which}_SECRET": "db"}
    assert problems(monkeypatch, **both) == {PREFIX + token: "iam_or_secret"}


@pytest.mark.parametrize("name", ["LEASE_SECOND", "ARCHIVE_DIRECTORY", "X"])
def test_a_name_that_is_no_setting_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert problems(monkeypatch, **{name: "1"}) == {PREFIX + name: "unknown"}


def test_root_and_storage_id_are_set_together_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    together = "archive_root_and_storage_id_together"
    with monkeypatch.context() as alone:
        assert together in problems(alone, ARCHIVE_ROOT=str(tmp_path)).values()
    with monkeypatch.context() as alone:
        assert together in problems(alone, ARCHIVE_STORAGE_ID=STORAGE_ID).values()
    given(monkeypatch, ARCHIVE_ROOT=str(tmp_path), ARCHIVE_STORAGE_ID=STORAGE_ID)
    assert load().archive_root == tmp_path


@pytest.mark.parametrize("value", ["0" * 31, "0" * 33, "A" * 32, "g" * 32, "0" * 31 + "\n"])
def test_a_storage_id_is_32_lowercase_hex_digits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str
) -> None:
    found = problems(monkeypatch, ARCHIVE_ROOT=str(tmp_path), ARCHIVE_STORAGE_ID=value)
    assert "TALLYSTICK_ARCHIVE_STORAGE_ID" in found


@pytest.mark.parametrize(
    ("deadline", "timeout", "lease", "problem"),
    [
        ("45", "45", "120", "deadline_before_timeout"),
        ("46", "45", "120", "deadline_before_timeout"),
        ("45", "50", "59.9", "lease_longer_than_timeout"),
        ("45", "50", "60", None),
        ("1", "1.5", "2", None),
    ],
)
def test_a_lease_outlives_the_kill_and_the_kill_the_deadline(
    monkeypatch: pytest.MonkeyPatch, deadline: str, timeout: str, lease: str, problem: str | None
) -> None:
    values = {"DEADLINE_SECONDS": deadline, "TIMEOUT_SECONDS": timeout, "LEASE_SECONDS": lease}
    if problem is None:
        given(monkeypatch, **values)
        assert load().lease_seconds == float(lease)
    else:
        assert problem in problems(monkeypatch, **values).values()


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("ARCHIVE_MAX_BYTES", ("1048576", "1099511627776"), ("1048575", "1099511627777")),
        ("TICK_INTERVAL", ("1", "60"), ("0.9", "60.1")),
        ("DATABASE_RETRIES", ("0", "20"), ("-1", "21")),
    ],
)
def test_settings_are_kept_within_bounds(
    monkeypatch: pytest.MonkeyPatch, name: str, good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    for value in good:
        given(monkeypatch, **{name: value})
        load()
    for value in bad:
        assert PREFIX + name in problems(monkeypatch, **{name: value})


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_duration_is_a_finite_number(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    for name in ("DEADLINE_SECONDS", "TIMEOUT_SECONDS", "LEASE_SECONDS", "TICK_INTERVAL"):
        with monkeypatch.context() as alone:
            assert PREFIX + name in problems(alone, **{name: value})


def test_no_secret_shows_in_an_error_or_a_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, DATABASE_URL=SECRET, SOURCE_URL=SECRET)
    assert "hunter2" not in repr(load())
    assert "hunter2" not in load().model_dump_json()
    given(monkeypatch, ARCHIVE_MAX_BYTES="hunter2", LOG_LEVEL="hunter2", PASSWORD="hunter2")
    with pytest.raises(Refused) as refused:
        load()
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in repr(refused.value)


def test_state_is_kept_where_the_desktop_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert load().home == tmp_path / ".local" / "state" / "tallystick"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert load().home == tmp_path / "state" / "tallystick"


def test_every_setting_says_what_it_is() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_a_user_without_name_and_home_has_settings_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(uid)

    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert load().home == Path("/var/lib/tallystick")
