"""Credentials that AWS keeps: fetched late, kept, fetched once more when refused, and never shown."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs

import botocore.auth
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from shared.archive.source import SourceConnection
from shared.aws import credential
from shared.aws.client import answers, client
from shared.db import embedded
from shared.db.connect import Credentialed, connect
from shared.errors import Code, Missing, Passing, Refused
from shared.settings import Settings
from tests.aws.account import Account, forget
from tests.conftest import TEST_PG_BIN
from tests.golden.scenario import Shell
from tests.postgres.proxy import between
from tests.worlds import control, one, rows

PLAIN = """
import sys
from handlers import archive
from shared import wiring
from shared.settings import load

wiring.control_dsn(load())
sys.exit(any(name.startswith(("boto", "shared.aws")) for name in sys.modules))
"""
URL = "postgresql://somebody@db.example:6432/jobs"
# An API of AWS answers under some names that a resolver knows several addresses for; each may be tried.
ADDRESSES = 4


@pytest.fixture(scope="module")
def strict_server() -> Iterator[str]:
    """URL of a server that lets the user ``worker`` in by password only."""
    with tempfile.TemporaryDirectory(prefix="tallystick-") as name:
        url = embedded.start(
            Path(name), durable=False, binaries=Path(TEST_PG_BIN) if TEST_PG_BIN else None
        )
        hba = Path(str(one(url, "SHOW hba_file")))
        hba.write_text(f"local all worker scram-sha-256\n{hba.read_text()}")
        rows(url, "CREATE ROLE worker LOGIN SUPERUSER PASSWORD 'first'")
        rows(url, "SELECT pg_reload_conf()")
        yield url
        embedded.stop(Path(name))


def given(password: str, **more: object) -> str:
    return json.dumps({"username": "worker", "password": password, **more})


def who(dsn: Credentialed) -> str:
    with connect(dsn) as connection:
        row = connection.execute("SELECT current_user AS name").fetchone()
    assert row is not None
    return str(row["name"])


def counted(dsn: Credentialed, fetched: list[str | None]) -> Credentialed:
    def fetch(refused: str | None) -> str:
        fetched.append(refused)
        return dsn.fetch(refused)

    return Credentialed(fetch)


def by_secret(url: str | None) -> Credentialed:
    return Credentialed(partial(credential.from_secret, "db", url))


def test_a_secret_fills_in_what_the_url_lacks_and_gives_user_and_password(account: Account) -> None:
    account.secret(
        "db", given("first", host="elsewhere", port=5432, dbname="other", engine="postgres")
    )
    assert conninfo_to_dict(credential.from_secret("db", URL)) == {
        "dbname": "jobs",
        "host": "db.example",
        "password": "first",
        "port": "6432",
        "user": "worker",
    }
    alone = conninfo_to_dict(credential.from_secret("db", None))
    assert (alone["host"], alone["port"], alone["dbname"]) == ("elsewhere", "5432", "other")


@pytest.mark.parametrize(
    "text",
    ["postgresql://worker:p%40ss@db.example/jobs", "host=db.example user=worker password=p@ss"],
)
def test_a_secret_may_be_a_connection_string(account: Account, text: str) -> None:
    account.secret("db", text)
    found = conninfo_to_dict(credential.from_secret("db", None))
    assert (found["host"], found["user"], found["password"]) == ("db.example", "worker", "p@ss")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("sesame", "malformed"),
        ("[]", "malformed"),
        ('{"username": "worker"}', "malformed"),
        ("postgresql://worker@db.example/jobs", "malformed"),
        ("postgresql://worker:sesame@[db/jobs", "malformed"),
        (given("sesame"), "no-host"),
    ],
)
def test_a_secret_that_is_no_credential_is_refused_without_a_word_of_it(
    account: Account, text: str, cause: str
) -> None:
    account.secret("db", text)
    with pytest.raises(Refused) as caught:
        credential.from_secret("db", None)
    assert caught.value.code is Code.SECRET_UNUSABLE
    assert caught.value.params == {"cause": cause, "secret": "db"}
    assert caught.value.__cause__ is None


def test_a_rotated_password_is_fetched_once_more_under_a_warm_process(
    account: Account, strict_server: str
) -> None:
    account.secret("db", given("first"))
    fetched: list[str | None] = []
    dsn = counted(by_secret(strict_server.replace("postgres@", "")), fetched)
    assert who(dsn) == "worker"
    rows(strict_server, "ALTER ROLE worker PASSWORD 'second'")
    account.secret("db", given("second"))
    try:
        assert who(dsn) == "worker"
        assert [each is None for each in fetched] == [True, True, False]
        assert who(dsn) == "worker"
        assert len(fetched) == 4
    finally:
        rows(strict_server, "ALTER ROLE worker PASSWORD 'first'")


def test_a_password_that_stays_wrong_is_fetched_once_more_and_tried_no_second_time(
    account: Account, strict_server: str
) -> None:
    account.secret("db", given("wrong"))
    fetched: list[str | None] = []
    dsn = counted(by_secret(strict_server.replace("postgres@", "")), fetched)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        connect(dsn)
    assert [each is None for each in fetched] == [True, False]
    with closing(SourceConnection(dsn)) as source, pytest.raises(Missing) as caught:
        source.open()
    assert caught.value.code is Code.CREDENTIAL_MISSING


def test_a_secret_is_kept_for_five_minutes(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    account.secret("db", given("first", host="first.example"))
    assert "first.example" in credential.from_secret("db", None)
    account.secret("db", given("first", host="second.example"))
    now += credential.KEEP_SECONDS
    assert "first.example" in credential.from_secret("db", None)
    now += 1
    assert "second.example" in credential.from_secret("db", None)


def test_what_another_connection_fetched_meanwhile_is_not_fetched_again(account: Account) -> None:
    account.secret("db", given("first", host="db.example"))
    old = credential.from_secret("db", None)
    account.secret("db", given("second", host="db.example"))
    new = credential.from_secret("db", None, old)
    assert conninfo_to_dict(new)["password"] == "second"
    account.owner("secretsmanager").delete_secret(SecretId="db")
    assert credential.from_secret("db", None, old) == new


def test_a_secret_that_is_not_there_is_refused_by_its_name(account: Account) -> None:
    with pytest.raises(Refused) as caught:
        credential.from_secret("db", None)
    params = caught.value.params
    assert caught.value.code is Code.AWS_REFUSED
    assert (params["cause"], params["service"], params["resource"]) == (
        "not-found",
        "secretsmanager",
        "db",
    )


def test_a_service_that_cannot_be_reached_is_told_with_its_endpoint(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = "http://127.0.0.1:1"
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", nowhere)
    with closing(control(by_secret(None))) as database, pytest.raises(Passing) as caught:
        database.transact("SELECT 1", {})
    assert caught.value.code is Code.AWS_UNAVAILABLE
    assert caught.value.params["cause"] == "unreachable"
    assert str(caught.value.params["endpoint"]).startswith(nowhere)
    with closing(SourceConnection(by_secret(None))) as source, pytest.raises(Passing) as passed:
        source.open()
    assert (passed.value.code, passed.value.params["cause"]) == ("EXPORT_FAILED", "AWS_UNAVAILABLE")


def test_a_service_that_is_silent_is_given_up_twice_within_a_third_of_a_tick(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = client("secretsmanager").meta.config
    attempts = config.retries["total_max_attempts"]
    worst = attempts * (ADDRESSES * config.connect_timeout + config.read_timeout)
    assert worst <= Settings.model_fields["deadline_seconds"].default / 3
    # Connections are taken by the system, and nobody ever reads from them.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(
            "AWS_ENDPOINT_URL_SECRETS_MANAGER", f"http://127.0.0.1:{silent.getsockname()[1]}"
        )
        service = client("secretsmanager", read_seconds=0.2)
        with pytest.raises(Passing) as caught, answers("secretsmanager"):
            service.get_secret_value(SecretId="db")
        silent.settimeout(5)
        for _ in range(attempts):
            silent.accept()[0].close()
        silent.settimeout(0)
        with pytest.raises(BlockingIOError):
            silent.accept()
    assert (caught.value.code, caught.value.params["cause"]) == ("AWS_UNAVAILABLE", "unreachable")


def test_a_token_is_made_for_each_connection_and_asks_nobody(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    at = datetime(2026, 11, 30, 12, tzinfo=UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: at)
    first = conninfo_to_dict(credential.from_iam(URL))
    at += timedelta(minutes=1)
    second = conninfo_to_dict(credential.from_iam(URL))
    token, _, query = str(first["password"]).partition("/?")
    signed = parse_qs(query)
    assert token == "db.example:6432"
    assert (signed["Action"], signed["DBUser"]) == (["connect"], ["somebody"])
    assert first["password"] != second["password"]
    # One that was refused is not made again: the next would be refused as well.
    assert credential.from_iam(URL, "refused") == "refused"


@pytest.mark.parametrize(
    ("url", "around", "mode"),
    [
        (URL, None, "require"),
        (f"{URL}?sslmode=disable", None, "require"),
        (f"{URL}?sslmode=verify-full", None, "verify-full"),
        (URL, "verify-ca", "verify-ca"),
    ],
)
def test_a_token_never_travels_without_tls(
    account: Account, monkeypatch: pytest.MonkeyPatch, url: str, around: str | None, mode: str
) -> None:
    if around is not None:
        monkeypatch.setenv("PGSSLMODE", around)
    assert conninfo_to_dict(credential.from_iam(url))["sslmode"] == mode


def test_a_server_without_tls_gets_no_token(account: Account, database: str) -> None:
    with between(database) as proxy:
        dsn = Credentialed(partial(credential.from_iam, proxy.dsn))
        with pytest.raises(psycopg.OperationalError, match="does not support SSL"):
            connect(dsn)


@pytest.mark.parametrize(
    "url", ["postgresql://db.example/jobs", "postgresql://me@a,b/jobs", "user=me"]
)
def test_a_token_needs_one_host_and_one_user(account: Account, url: str) -> None:
    with pytest.raises(Refused) as caught:
        credential.from_iam(url)
    assert caught.value.code is Code.AWS_NOT_CONFIGURED


def test_without_credentials_nothing_is_asked(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    forget()
    for ask in (partial(credential.from_iam, URL), partial(credential.from_secret, "db", None)):
        with pytest.raises(Refused) as caught:
            ask()
        assert (caught.value.code, caught.value.params["cause"]) == (
            "AWS_NOT_CONFIGURED",
            "no-credentials",
        )


def test_a_deployment_whose_urls_are_in_secrets_archives(
    shell: Shell, account: Account, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.secret("control", f"{database}&user=postgres&password=any")
    account.secret("source", json.dumps({"username": "postgres", "password": "any"}))
    monkeypatch.delenv("TALLYSTICK_DATABASE_URL")
    monkeypatch.setenv("TALLYSTICK_DATABASE_SECRET", "control")
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", database)
    monkeypatch.setenv("TALLYSTICK_SOURCE_SECRET", "source")
    assert shell("tick", "--until-idle").code == 0
    (job,) = json.loads(shell("jobs", "list", "--json").out)["items"]
    assert job["state"] == "SUCCEEDED"
    account.owner("secretsmanager").delete_secret(SecretId="source")
    forget()
    found = json.loads(shell("doctor", "--json").out)["findings"]
    (told,) = [each for each in found if each["subject"] == "source"]
    assert (told["code"], told["severity"]) == ("SOURCE_FAILED", "error")


def test_a_job_whose_secret_is_gone_is_paused_and_goes_on_when_it_is_back(
    shell: Shell, account: Account, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", database)
    monkeypatch.setenv("TALLYSTICK_SOURCE_SECRET", "source")
    told = json.loads(shell("tick", "--json").out)
    assert (told["outcome"], told["code"]) == ("paused", "CREDENTIAL_MISSING")
    assert told["params"]["cause"] == "AWS_REFUSED"
    assert "source" in told["message"]
    account.secret("source", json.dumps({"username": "postgres", "password": "any"}))
    assert json.loads(shell("tick", "--json").out)["outcome"] == "progressed"


def test_nothing_of_aws_is_imported_where_no_credential_is_kept_there() -> None:
    subprocess.run(
        [sys.executable, "-c", PLAIN],
        env={"TALLYSTICK_DATABASE_URL": "postgresql://x/y"},
        check=True,
    )


def test_the_guard_notes_what_would_leave_this_machine(
    account: Account, strayed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", "http://192.0.2.1")
    with pytest.raises(Passing):
        credential.from_secret("db", None)
    assert strayed
    strayed.clear()
