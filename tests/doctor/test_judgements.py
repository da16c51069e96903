"""Judgements that no test can bring about on one machine: mounts, clocks of several servers, large disks."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.doctor import clocks, mount, source, volume
from shared.doctor.clocks import Reading
from shared.doctor.finding import Finding, Severity
from shared.doctor.grants import control_grants, source_grants
from shared.doctor.source import SourceFacts
from tests.worlds import GIBIBYTE

MOUNTS = r"""
sysfs /sys sysfs rw,relatime 0 0
/dev/vda / ext4 rw,relatime 0 0
fs-1:/ /mnt/archive nfs4 rw,relatime,vers=4.1,hard,timeo=600 0 0
fs-2:/ /mnt/with\040space nfs rw,soft,nolock,local_lock=none 0 0
tmpfs /mnt/archive/memory tmpfs rw 0 0
//nas/share /mnt/share cifs rw,serverino 0 0
half a line
"""


def told(findings: list[Finding]) -> list[tuple[str, Severity]]:
    return [(str(each.params["cause"]), each.severity) for each in findings]


@pytest.mark.parametrize(
    ("directory", "point", "says"),
    [
        ("/var/archive", "/", []),
        ("/mnt/archive", "/mnt/archive", []),
        ("/mnt/archive/volume", "/mnt/archive", []),
        ("/mnt/archives", "/", []),
        (
            "/mnt/with space/volume",
            "/mnt/with space",
            [("locks-not-shared", Severity.ERROR), ("soft", Severity.WARNING)],
        ),
        ("/mnt/archive/memory", "/mnt/archive/memory", [("in-memory", Severity.WARNING)]),
        ("/mnt/share", "/mnt/share", [("inodes", Severity.WARNING)]),
    ],
)
def test_a_mount_that_is_not_fit_for_archives_is_named(
    directory: str, point: str, says: list[tuple[str, Severity]]
) -> None:
    found = mount.holding(mount.parsed(MOUNTS), Path(directory))
    assert found is not None
    assert found.point == point
    assert told(mount.judged(found)) == says


def test_the_mounts_of_this_system_can_be_read() -> None:
    table = mount.mounts()
    assert not mount.TABLE.exists() or mount.holding(table, Path("/")) is not None


@pytest.mark.parametrize(
    ("control", "source_", "says"),
    [
        (0.0, 0.0, []),
        (4.9, -4.9, [("source-behind", Severity.WARNING)]),
        (3600.0, 3600.0, [("node-behind", Severity.ERROR)]),
        (-60.0, None, [("node-ahead", Severity.WARNING)]),
        (None, -301.0, [("node-ahead", Severity.ERROR)]),
        (0.0, 3600.0, [("source-ahead", Severity.ERROR)]),
        (None, None, []),
    ],
)
def test_clocks_are_held_against_the_control_databases(
    control: float | None, source_: float | None, says: list[tuple[str, Severity]]
) -> None:
    readings = {"control": control, "source": source_}
    found = clocks.judged(
        {name: Reading(ahead, 0.0) for name, ahead in readings.items() if ahead is not None}
    )
    assert told(found) == says


def test_a_slow_answer_is_not_taken_for_a_wrong_clock() -> None:
    assert clocks.judged({"control": Reading(ahead=6.0, unsure=2.0)}) == []


@pytest.mark.parametrize(
    ("free", "says"),
    [
        (None, []),
        (20 * GIBIBYTE, []),
        (9 * GIBIBYTE, [("disk", Severity.WARNING)]),
        (1024, [("disk", Severity.ERROR)]),
    ],
)
def test_a_disk_with_less_room_than_the_budget_promises_is_named(
    free: int | None, says: list[tuple[str, Severity]]
) -> None:
    assert told(volume.judged_free(free, 10 * GIBIBYTE)) == says


@pytest.mark.parametrize(
    ("limit", "used"), [(2**20, 0), (2**20, 5 * 2**20), (10 * GIBIBYTE, 10 * GIBIBYTE)]
)
def test_the_budget_proposed_holds_what_is_asked_for(limit: int, used: int) -> None:
    assert volume.wanted(limit, used) > max(limit, used)


def test_the_budget_proposed_is_one_that_is_allowed() -> None:
    assert volume.wanted(1024 * GIBIBYTE, 1024 * GIBIBYTE) == 1024 * GIBIBYTE


def facts(**row: object) -> SourceFacts:
    values = {"role": "reader", "streaming_delay": "30s", "sees_activity": True}
    return SourceFacts(values, {"standby": True, "hidden": False} | row, Reading(0.0, 0.0), ())


@pytest.mark.parametrize(
    ("lag", "severity"), [(0, Severity.INFO), (299, Severity.INFO), (300, Severity.WARNING)]
)
def test_a_standby_is_worth_knowing_and_one_far_behind_a_warning(
    lag: float, severity: Severity
) -> None:
    (found,) = source.judged(facts(lag_seconds=lag))
    assert (found.code, found.severity) == ("SOURCE_STANDBY", severity)


@pytest.mark.parametrize(("hidden", "cause"), [(True, "hidden"), (False, "unknown")])
def test_a_standby_of_which_it_is_not_known_how_far_it_is_behind_is_not_called_up_to_date(
    hidden: bool, cause: str
) -> None:
    (found,) = source.judged(facts(lag_seconds=None, hidden=hidden))
    assert (found.params["cause"], found.severity) == (cause, Severity.WARNING)


def test_grants_quote_every_name_and_ask_for_each_schema_once() -> None:
    row = {"role": 'a"b', "schema": "My App", "schema_usage": False, "table_select": False}
    assert source_grants([row | {"name": "x"}, row | {"name": "y", "table_select": True}]) == (
        'GRANT USAGE ON SCHEMA "My App" TO "a""b";',
        'GRANT SELECT ON TABLE "My App"."x" TO "a""b";',
    )


def test_who_migrates_needs_to_create_a_schema() -> None:
    row = {"role": "r", "database": "d", "schema_there": False, "may_create": False}
    assert control_grants(row) == ('GRANT CREATE ON DATABASE "d" TO "r";',)
    assert control_grants(row | {"may_create": True}) == ()
