"""The settings of a deployment: one frozen object, and the only reader of the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.errors import Code, Refused

PREFIX = "TALLYSTICK_"
MEBIBYTE = 1024 * 1024
NAMELESS_HOME = Path("/var/lib/tallystick")
# A lease outlives the platform's kill by a fifth, so that no process ever works beyond its lease.
LEASE_MARGIN = 1.2


def _state_home() -> Path:
    if base := os.environ.get("XDG_STATE_HOME"):
        return Path(base) / "tallystick"
    try:
        return Path.home() / ".local" / "state" / "tallystick"
    except RuntimeError:
        # A user id without a name and without HOME, as in some containers.
        return NAMELESS_HOME


class Settings(BaseSettings):
    """Every setting, by its name in the environment without ``TALLYSTICK_``; units are in the names."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid"
    )

    database_url: SecretStr | None = Field(
        default=None, description="Postgres that keeps the jobs; the embedded one when unset"
    )
    source_url: SecretStr | None = Field(
        default=None, description="Postgres that rows are read from; DATABASE_URL when unset"
    )
    database_secret: str | None = Field(
        default=None, description="Secret of AWS with the user and password for DATABASE_URL"
    )
    source_secret: str | None = Field(
        default=None, description="Secret of AWS with the user and password for SOURCE_URL"
    )
    database_iam: bool = Field(
        default=False, description="Whether a token of RDS is the password for DATABASE_URL"
    )
    source_iam: bool = Field(
        default=False, description="Whether a token of RDS is the password for SOURCE_URL"
    )
    kinds_file: Path | None = Field(
        default=None, description="TOML file of the kinds this deployment archives"
    )
    archive_root: Path | None = Field(
        default=None, description="The mounted volume; set together with ARCHIVE_STORAGE_ID"
    )
    archive_storage_id: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{32}$",
        description="The volume's identity, 32 lowercase hex digits",
    )
    archive_max_bytes: int = Field(
        default=10 * 1024 * MEBIBYTE,
        ge=MEBIBYTE,
        le=1024 * 1024 * MEBIBYTE,
        description="Byte budget of the whole volume, 1 MiB to 1 TiB",
    )
    row_max_bytes: int = Field(
        default=64 * MEBIBYTE,
        ge=MEBIBYTE,
        le=4096 * MEBIBYTE,
        description="Largest archived row that reading commands hold in memory, 1 MiB to 4 GiB",
    )
    tick_interval: float = Field(
        default=10.0,
        ge=1.0,
        le=60.0,
        description="Seconds between ticks of the local loop, 1 to 60",
    )
    deadline_seconds: float = Field(
        default=45.0, ge=1.0, le=840.0, description="Seconds after which a tick must have ended"
    )
    timeout_seconds: float = Field(
        default=50.0, ge=1.5, le=900.0, description="Seconds after which a tick's process is killed"
    )
    lease_seconds: float = Field(
        default=120.0, ge=2.0, le=3600.0, description="Seconds for which a claim holds a job"
    )
    database_retries: int = Field(
        default=4,
        ge=0,
        le=20,
        description="How often a statement that may pass is repeated, 0 to 20",
    )
    hidden_margin_seconds: int = Field(
        default=86_400,
        ge=10,
        le=30 * 86_400,
        description="Seconds a window keeps from now where transactions are hidden, 10 to 2592000",
    )
    stack: str | None = Field(
        default=None, description="The stack on AWS that commands ask, by its name"
    )
    follow_up_ticks: int = Field(
        default=10,
        ge=0,
        le=15,
        description="How many ticks in a row a tick on AWS may ask for by itself, 0 to 15",
    )
    home: Path = Field(
        default_factory=_state_home, description="Where the embedded database keeps its state"
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="WARNING", description="What is logged to standard error"
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="How lines on standard error look: text or json"
    )
    test_data: Path | None = Field(
        default=None, description="Real input files for the tests; no part of the product reads it"
    )


def load() -> Settings:
    """Read the settings; raises ``Refused`` (SETTINGS_INVALID) with every problem at once.

    A name with our prefix that is no setting is a problem too: it is a setting misspelt.
    """
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    problems = [
        {"name": name, "problem": "unknown"}
        for name in sorted(os.environ)
        if name.startswith(PREFIX) and name not in known
    ]
    try:
        settings = Settings()
    except ValidationError as error:
        problems += [_problem(dict(each)) for each in error.errors()]
        raise Refused(Code.SETTINGS_INVALID, problems=problems) from error
    if problems := problems + _inconsistent(settings):
        raise Refused(Code.SETTINGS_INVALID, problems=problems)
    return settings


def origins(settings: Settings) -> dict[str, str]:
    """Say of each setting whether it comes from the environment or is the default."""
    return {
        name: "environment" if name in settings.model_fields_set else "default"
        for name in Settings.model_fields
    }


def _inconsistent(settings: Settings) -> list[dict[str, str]]:
    """Return the problems that settings have only with each other, each under the one to change."""
    root, storage_id = settings.archive_root, settings.archive_storage_id
    lone = "ARCHIVE_ROOT" if root is None else "ARCHIVE_STORAGE_ID"
    checks = (
        ((root is None) != (storage_id is None), lone, "archive_root_and_storage_id_together"),
        (root is not None and not root.is_absolute(), "ARCHIVE_ROOT", "archive_root_absolute"),
        (
            settings.timeout_seconds <= settings.deadline_seconds,
            "TIMEOUT_SECONDS",
            "deadline_before_timeout",
        ),
        (
            settings.lease_seconds < settings.timeout_seconds * LEASE_MARGIN,
            "LEASE_SECONDS",
            "lease_longer_than_timeout",
        ),
        *_two_credentials(
            "DATABASE", settings.database_url, settings.database_secret, iam=settings.database_iam
        ),
        *_two_credentials(
            "SOURCE", settings.source_url, settings.source_secret, iam=settings.source_iam
        ),
    )
    return [{"name": PREFIX + name, "problem": problem} for wrong, name, problem in checks if wrong]


def _two_credentials(
    which: str, url: SecretStr | None, secret: str | None, *, iam: bool
) -> tuple[tuple[bool, str, str], ...]:
    return (
        (iam and url is None, f"{which}_IAM", "iam_needs_url"),
        (iam and secret is not None, f"{which}_IAM", "iam_or_secret"),
    )


def _problem(error: dict[str, Any]) -> dict[str, str]:
    name = PREFIX + str(error["loc"][0]).upper() if error["loc"] else ""
    cause = error.get("ctx", {}).get("error")
    # The offending value stays out: it may be a secret.
    return {"name": name, "problem": str(cause) if cause else str(error["type"])}
