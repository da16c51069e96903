"""A database whose texts have no known encoding is named as such, before and when a row cannot be read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from shared.messages import words
from tests.golden.scenario import Shell
from tests.kinds.drafts import execute

TABLE = "CREATE TABLE note (id integer PRIMARY KEY, at date NOT NULL, said text)"
INDEX = "CREATE INDEX ON note (at, id)"
GOOD = "INSERT INTO note VALUES (1, '2020-01-01', 'grün')".encode()
BAD = "INSERT INTO note VALUES (2, '2020-01-02', 'zqzü')".encode("latin-1")


def unchecked(dsn: str, *statements: bytes) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET client_encoding = 'SQL_ASCII'")
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def ascii_database(
    server_dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[str]:
    """URL of a source that does not know what its bytes mean."""
    name = f"tallystick_ascii_{os.getpid()}"
    execute(
        server_dsn,
        f"CREATE DATABASE {name} ENCODING SQL_ASCII LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0",
    )
    url = psycopg.conninfo.make_conninfo(server_dsn, dbname=name)
    execute(url, TABLE, INDEX)
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", url)
    monkeypatch.setenv("TALLYSTICK_HOME", str(tmp_path / "home"))
    yield url
    execute(server_dsn, f"DROP DATABASE {name} WITH (FORCE)")


def test_texts_that_are_utf8_are_archived_after_a_warning(
    ascii_database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unchecked(ascii_database, GOOD)
    shell = Shell(capsys)
    found = json.loads(shell("preview", "public.note", "--json").out)["findings"]
    (warned,) = [each for each in found if each["code"] == "ENCODING_NONE"]
    assert "SQL_ASCII" in warned["message"]
    options = ["--until", "2021-01-01", "--directory", str(tmp_path / "out")]
    assert shell("archive", "export", "public.note", *options).code == 0
    assert list((tmp_path / "out").glob("*.zst"))


def test_a_row_of_other_bytes_is_told_by_its_key_and_the_encoding(
    ascii_database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unchecked(ascii_database, GOOD, BAD)
    options = ["--until", "2021-01-01", "--directory", str(tmp_path / "out")]
    answered = Shell(capsys)("archive", "export", "public.note", *options, "--json")
    assert answered.code == 1
    error = json.loads(answered.err.splitlines()[-1])["error"]
    assert (error["params"]["key"], error["params"]["encoding"]) == (["2"], "SQL_ASCII")
    assert "a database with the encoding SQL_ASCII" in error["message"]
    assert "zqz" not in answered.err
    # A job says the same of its row.
    told = words("BATCH_TOO_LARGE", {"cause": "unprintable", "key": ["2"], "encoding": "SQL_ASCII"})
    assert "a database with the encoding SQL_ASCII" in told.happened
