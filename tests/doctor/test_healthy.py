"""No false alarm: what is in order is said to be, and nothing is changed by asking."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from shared.volume import identity
from tests.doctor.ward import Ward
from tests.worlds import rows


def test_a_healthy_installation_has_nothing_to_find(ward: Ward) -> None:
    found = ward.doctor()
    assert found["findings"] == []
    assert found["worst"] == "ok"
    assert {each["severity"] for each in found["subjects"]} == {"ok"}
    assert {each["skipped_for"] for each in found["subjects"]} == {None}


PRINTED = """\
ok       database
error    source    In the source, the user {role} may not read tables of kinds. (GRANT_MISSING)
                   Have the owner of the tables, or a superuser, run these:
    GRANT SELECT ON TABLE "app"."line" TO "{role}";
error    volume    The root of the volume is open to others: {root} has mode 0750, not 0700. (STORAGE_UNAVAILABLE)
                   `chmod 0700 {root}`.
    chmod 0700 '{root}'
ok       clocks
ok       schedule
ok       jobs
ok       ledger
ok       events

2 errors, 0 warnings, 0 notes
"""  # noqa: E501 - lines are never broken: they are there to be copied


def state(ward: Ward) -> tuple[object, ...]:
    """Everything that asking must leave as it was: the tables, and the names and bytes on the volume."""
    named = "SELECT tablename FROM pg_tables WHERE schemaname = 'tallystick' ORDER BY 1"
    tables = [
        (row["tablename"], rows(ward.owner_dsn, f"TABLE tallystick.{row['tablename']}"))
        for row in rows(ward.owner_dsn, named)
    ]
    files = {
        path.relative_to(ward.root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in ward.root.rglob("*")
    }
    return tables, files, [path.name for path in (ward.root / identity.TEMP).iterdir()]


def test_asking_changes_nothing(ward: Ward) -> None:
    ward.job_begun()
    before = state(ward)
    ward.doctor()
    assert state(ward) == before


def test_links_syncs_and_locks_are_really_tried(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's calls are watched, and one of them is made to fail as a file system without links does."""
    tried = []
    real_fsync, real_link = os.fsync, os.link

    def fsync(fd: int) -> None:
        tried.append("fsync")
        real_fsync(fd)

    def link(source: str, target: str, **places: Any) -> None:  # noqa: ANN401 - as the system's call
        tried.append("link")
        real_link(source, target, **places)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    assert ward.findings() == []
    assert tried == ["fsync", "link", "fsync"]

    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    (found,) = ward.findings()
    assert (found["code"], found["params"]["cause"]) == ("STORAGE_FAILED", "no-links")
    assert list((ward.root / identity.TEMP).iterdir()) == []


def test_what_is_printed_reads_without_colours_and_can_be_copied_line_by_line(ward: Ward) -> None:
    ward.root.chmod(0o750)
    ward.sql(f"REVOKE SELECT ON app.line FROM {ward.role}")
    answered = ward.shell("doctor")
    assert answered.code == 1
    assert answered.out == PRINTED.format(role=ward.role, root=ward.root)


def test_the_document_has_the_shape_machines_rely_on(ward: Ward) -> None:
    ward.do("plan", "set", "orders", "--disable")
    found = ward.doctor()
    assert list(found) == ["findings", "subjects", "counts", "worst"]
    assert [list(each) for each in found["findings"]] == [
        ["code", "subject", "severity", "params", "message", "next", "command", "sql"]
    ]
    assert [each["subject"] for each in found["subjects"]] == [
        *("database", "source", "volume", "clocks", "schedule", "jobs", "ledger", "events")
    ]
    assert {tuple(each) for each in found["subjects"]} == {("subject", "severity", "skipped_for")}
    assert found["counts"] == {"info": 1, "warning": 0, "error": 0}
    assert found["worst"] == "info"


def test_a_warning_is_good_enough_unless_it_is_asked_for_strictly(ward: Ward) -> None:
    ward.do("policy", "set", "orders", "--after", "400d")
    assert ward.shell("doctor").code == 0
    assert ward.shell("doctor", "--strict").code == 1
