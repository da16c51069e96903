"""No password of a connection string shows, whatever is wrong with the string and whoever uses it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.archive.source import SourceConnection
from shared.db.migrate import migrate
from shared.errors import Missing, Refused, TallystickError, Trouble, Verdict
from shared.restore.target import connected
from tests import worlds
from tests.golden.scenario import Shell

SECRET = "hunter2secret"
WRONG = [
    f"postgresql://u:{SECRET}%zz@localhost/d",
    f"postgresql://u:{SECRET}@[::1/d",
    f"postgresql+psycopg2://u:{SECRET}@localhost/d",
    f"postgresql://u:x@{SECRET}@h.invalid/d",
    f"postgresql://u:{SECRET}/x@localhost/d",
    f"postgresql://u:x/{SECRET}@localhost:1/d",
    f"postgresql://u:{SECRET}@localhost:port/d",
    f"postgresql://u:{SECRET}@localhost/d?schema=public",
    f"postgresql://u@localhost/d?passw%6Frd={SECRET}&nonsense=1",
    f"postgresql://u@localhost:1/d?sslpassword={SECRET}&sslmode=never",
    f"postgresql://u%3A{SECRET}@localhost:1/d",
    f"user=u password='{SECRET} host=localhost",
    f"user=u password={SECRET} host=localhost pot=1",
]


def as_source(url: str) -> None:
    SourceConnection(url, 2).open()


def as_control(url: str) -> None:
    with worlds.control(url, 1).transaction():
        pass


def as_target(url: str) -> None:
    with connected(url):
        pass


@pytest.mark.parametrize("use", [as_source, as_control, as_target, migrate])
@pytest.mark.parametrize("url", WRONG)
def test_a_string_that_is_wrong_is_told_without_its_password(
    url: str, use: Callable[[str], object]
) -> None:
    with pytest.raises(TallystickError) as raised:
        use(url)
    error = raised.value
    shown = "".join(traceback.format_exception(error))
    # Lines of our own tests and of psycopg hold the string itself; what is raised and chained must not.
    said = [line for line in shown.splitlines() if not line.startswith(" ")]
    assert SECRET not in "\n".join(said)
    assert SECRET not in f"{error} {error.params!r}"


@pytest.mark.parametrize("url", WRONG)
def test_commands_tell_it_without_the_password(
    url: str, shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TALLYSTICK_SOURCE_URL", url)
    for command in (
        ("kinds", "check", "orders"),
        ("doctor",),
        ("archive", "restore", str(tmp_path), "--to", url),
    ):
        for form in ((), ("--json",)):
            answered = shell(*command, *form)
            assert SECRET not in answered.out + answered.err
    monkeypatch.setenv("TALLYSTICK_DATABASE_URL", url)
    answered = shell("jobs", "list")
    assert answered.code in {1, 2}
    assert SECRET not in answered.out + answered.err


CONFIGURED = {
    "database": ("/nothing_here", "database-missing"),
    "line feed": ("{path}%0A", "database-missing"),
    "option": ("{path}?{query}&schema=public", "url-option"),
    "time zone": ("{path}?{query}&options=-c%20timezone%3DNo%2FWhere", "session-setting"),
    "service": ("{path}?service=nowhere", "service-missing"),
    "attributes": ("{path}?{query}&sslmode=wrong", "option-value"),
}


@pytest.mark.parametrize("what", CONFIGURED)
def test_what_is_configured_wrongly_is_no_silence_of_the_server(database: str, what: str) -> None:
    start, query = database.split("?")
    shape, cause = CONFIGURED[what]
    base, path = start.rsplit("/", 1)
    text = shape.format(path=f"/{path}", query=query)
    url = f"{base}{text}" if "?" in text else f"{base}{text}?{query}"
    for use, kind in ((as_source, Missing), (as_control, Refused), (as_target, Verdict)):
        with pytest.raises((Refused, Trouble)) as raised:
            use(url)
        assert type(raised.value) is kind
        assert raised.value.params["cause"] == cause
