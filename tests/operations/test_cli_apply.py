"""``apply`` from a shell: what is shown, what is refused before anything changes, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.scenario import Answered, Shell
from tests.worlds import one, rows

ORDERS = """
[kinds.orders]
root = "app.orders"
time = "placed_at"
related = ["app.line"]
"""
NIGHTLY = 'after = "365d"\nevery = "24h"\nbatch = 20\n'
COUNT = "SELECT (SELECT count(*) FROM tallystick.plan) + (SELECT count(*) FROM tallystick.policy)"


@pytest.fixture
def shell(deployment: Shell, kinds: Path) -> Shell:
    """A deployment whose kinds file asks for one policy and one plan."""
    kinds.write_text(ORDERS + NIGHTLY)
    return deployment


@pytest.fixture
def kinds(volume_root: Path) -> Path:
    """The node's kinds file."""
    return volume_root.parent / "kinds.toml"


def code(answered: Answered) -> Any:  # noqa: ANN401 - of an error
    assert (answered.code, answered.out) == (2, "")
    return json.loads(answered.err.splitlines()[-1])["error"]["code"]


def names(answered: Answered, member: str = "changes") -> list[tuple[str, str]]:
    items: Any = answered.json()[member]
    return [(each["subject"], each["kind"] or each["operation"]) for each in items]


def test_check_changes_nothing_and_its_exit_code_says_whether_there_is_a_difference(
    shell: Shell, database: str
) -> None:
    checked = shell("apply", "--check", "--json")
    assert (checked.code, checked.json()["applied"]) == (1, False)
    assert names(checked) == [("policy", "orders"), ("plan", "orders")]
    assert one(database, COUNT) == 0
    applied = shell("apply", "--json")
    assert (applied.code, applied.json()["applied"]) == (0, True)
    assert names(applied) == names(checked)
    for _ in range(2):
        again = shell("apply", "--check", "--json")
        assert (again.code, again.json()["changes"]) == (0, [])
    nothing = shell("apply")
    assert nothing.code == 0
    assert "are as" in nothing.out


def test_the_difference_is_shown_before_what_was_applied(shell: Shell) -> None:
    lines = shell("apply").out.splitlines()
    assert lines == [
        "+ policy orders: after 365d",
        "+ plan orders: every 24h, batch 20, max_bytes 1GiB, scope new",
        "Applied to default.",
    ]


def test_what_apply_makes_is_what_ticks_archive(shell: Shell) -> None:
    shell("apply")
    assert shell("tick", "archive", "--until-idle").code == 0
    (item,) = json.loads(shell("archive", "tails", "--json").out)["items"]
    assert (item["kind"], item["roots"], item["state"]) == ("orders", 45, "SUCCEEDED")


def test_the_reason_is_the_file_and_its_digest_unless_one_is_given(
    shell: Shell, database: str, kinds: Path
) -> None:
    digest = shell("apply", "--json").json()["sha256"]
    reasons = "SELECT DISTINCT reason FROM tallystick.audit_entry WHERE action = 'apply'"
    assert one(database, reasons) == f"apply kinds.toml (sha256 {digest})"
    kinds.write_text(ORDERS + NIGHTLY.replace("365", "90"))
    shell("apply", "--reason", "reviewed by legal", "--actor", "ci")
    newest = "SELECT actor, reason FROM tallystick.audit_entry ORDER BY occurred_at DESC LIMIT 1"
    assert rows(database, newest) == [{"actor": "ci", "reason": "reviewed by legal"}]
    assert code(shell("apply", "--reason", " ", "--json")) == "REASON_INVALID"


def test_without_a_volume_nothing_is_enabled_and_nothing_is_changed(
    shell: Shell, database: str, kinds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, storage_id = (f"TALLYSTICK_ARCHIVE_{name}" for name in ("ROOT", "STORAGE_ID"))
    with monkeypatch.context() as without:
        without.delenv(root)
        without.delenv(storage_id)
        assert shell("apply", "--check", "--json").code == 1
        assert code(shell("apply", "--json")) == "VOLUME_NOT_CONFIGURED"
        assert one(database, COUNT) == 0
    shell("apply")
    with monkeypatch.context() as without:
        without.delenv(root)
        without.delenv(storage_id)
        kinds.write_text(ORDERS + NIGHTLY.replace("24h", "12h"))
        assert shell("apply", "--json").json()["applied"] is True


def test_what_was_set_since_is_told_with_who_when_and_why(shell: Shell) -> None:
    shell("apply")
    change = ("plan", "set", "orders", "--every", "2h", "--reason", "catching up", "--actor", "ann")
    shell(*change)
    (plan,) = json.loads(shell("plan", "list", "--json").out)["items"]
    assert plan["drift"] == [{"name": "interval_seconds", "applied": 86400, "now": 7200}]
    told = "Drift: every was set to 2h since `apply`, which left 24h."
    assert told in shell("plan", "list").out
    checked = shell("apply", "--check")
    assert checked.code == 1
    assert "every 2h -> 24h" in checked.out
    assert "drift: every was set to 2h (24h was applied) by ann on 20" in checked.out
    assert "catching up" in checked.out
    shell("apply")
    assert json.loads(shell("plan", "list", "--json").out)["items"][0]["drift"] == []


def test_that_an_open_job_will_stop_is_told_and_true(shell: Shell, kinds: Path) -> None:
    shell("apply")
    shell("tick", "archive")
    (job,) = json.loads(shell("jobs", "list", "--json").out)["items"]
    assert job["state"] == "PENDING"
    kinds.write_text(ORDERS + NIGHTLY.replace("365d", "400d"))
    assert f"the open job {job['id'][:8]} will stop" in shell("apply").out
    shell("tick", "archive")
    (job,) = json.loads(shell("jobs", "list", "--json").out)["items"]
    assert (job["state"], job["error_code"]) == ("FAILED", "POLICY_CHANGED")


def test_a_plan_of_a_kind_gone_from_the_file_is_disabled_and_told(
    shell: Shell, kinds: Path
) -> None:
    shell("apply")
    kinds.write_text(ORDERS)
    applied = shell("apply")
    assert "- plan orders: no longer in the file: disabled, not deleted" in applied.out
    assert "Not in the file, left as they are: policy orders." in applied.out
    (plan,) = json.loads(shell("plan", "list", "--json").out)["items"]
    assert plan["enabled"] is False
    assert names(shell("apply", "--json"), "unmanaged") == [
        ("policy", "orders"),
        ("plan", "orders"),
    ]


def test_a_file_that_this_nodes_ticks_do_not_go_by_is_refused(
    shell: Shell, database: str, tmp_path: Path
) -> None:
    other = tmp_path / "other.toml"
    for text in (
        ORDERS.replace("orders]", "more]") + NIGHTLY,
        ORDERS.replace('["app.line"]', "[]") + NIGHTLY,
        ORDERS + 'belongs_to = "north"\n' + NIGHTLY,
    ):
        other.write_text(text)
        assert code(shell("apply", str(other), "--json")) == "KINDS_DIFFER"
    assert one(database, COUNT) == 0
    # How old and how often is what a file is applied for, and kinds without it are not planned.
    other.write_text(ORDERS + NIGHTLY.replace("24h", "12h") + ORDERS.replace("orders]", "more]"))
    assert shell("apply", str(other), "--json").json()["applied"] is True


def test_without_a_kinds_file_of_the_node_the_one_named_is_applied_and_a_note_says_so(
    shell: Shell, kinds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TALLYSTICK_KINDS_FILE")
    assert code(shell("apply", "--json")) == "KINDS_FILE_MISSING"
    notes: Any = shell("apply", str(kinds), "--check", "--json").json()["notes"]
    assert [each["code"] for each in notes] == ["kinds-file-unset"]
    assert "TALLYSTICK_KINDS_FILE" in shell("apply", str(kinds), "--check").out


def test_our_own_history_has_policies_and_plans_where_its_tables_are(
    shell: Shell, kinds: Path
) -> None:
    kinds.write_text('[history]\nafter = "90d"\nevery = "24h"\n[history.audit]\nafter = "3650d"\n')
    assert shell("apply").code == 0
    items = json.loads(shell("policy", "list", "--json").out)["items"]
    assert {each["kind"]: each["after_days"] for each in items} == {
        "tasks": 90,
        "events": 90,
        "audit": 3650,
        "idempotency": 90,
    }
    planned = json.loads(shell("plan", "list", "--json").out)["items"]
    assert {each["kind"] or each["operation"]: each["enabled"] for each in planned} == {
        **dict.fromkeys(("tasks", "events", "audit", "idempotency"), True),
        "prune": True,
    }
    assert shell("apply", "--check").code == 0
    kinds.write_text('[history]\nafter = "90d"\nevery = "24h"\n[history.flows]\nafter = "1d"\n')
    assert code(shell("apply", "--json")) == "KIND_TABLE_MISSING"


def test_the_scan_of_the_nodes_volume_is_planned(shell: Shell, kinds: Path) -> None:
    kinds.write_text('[scan]\nevery = "168h"\nbatch = 50\n')
    shell("apply")
    (plan,) = json.loads(shell("plan", "list", "--json").out)["items"]
    assert (plan["operation"], plan["interval_seconds"], plan["batch_size"]) == (
        *("scan", 604800),
        50,
    )


def test_each_namespace_is_applied_to_by_itself(shell: Shell, kinds: Path) -> None:
    shell("namespaces", "create", "north", "--reason", "a test needs it")
    kinds.write_text(
        ORDERS + NIGHTLY + ORDERS.replace("orders]", "northern]") + NIGHTLY + 'belongs_to="north"\n'
    )
    assert code(shell("apply", "--json")) == "NAMESPACE_AMBIGUOUS"
    for namespace, kind, other in (
        ("default", "orders", "northern"),
        ("north", "northern", "orders"),
    ):
        applied = shell("apply", "--namespace", namespace, "--json")
        assert names(applied) == [("policy", kind), ("plan", kind)]
        elsewhere: Any = applied.json()["elsewhere"]
        assert [each["kind"] for each in elsewhere] == [other]
        assert shell("apply", "--namespace", namespace, "--check").code == 0


def test_our_own_history_is_archived_and_then_removed(
    shell: Shell, database: str, kinds: Path
) -> None:
    kinds.write_text('[history]\nafter = "0d"\nevery = "24h"\n')
    shell("apply")
    before = one(database, "SELECT count(*) FROM tallystick.audit_entry")
    assert before > 0
    assert shell("tick", "--until-idle").code == 0
    rows(database, "UPDATE tallystick.plan SET next_run_at = now() WHERE operation = 'prune'")
    assert shell("tick", "--until-idle").code == 0
    assert one(database, "SELECT count(*) FROM tallystick.audit_entry") == 0
    # That the audit is gone makes nothing the operator's own again.
    assert shell("apply", "--check").code == 0
    kinds.write_text("")
    assert "- plan prune: no longer in the file" in shell("apply").out
