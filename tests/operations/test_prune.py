"""What an archive proves is removed, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from shared.archive.kinds import builtin
from shared.chain.frame import compressor
from shared.clock import Deadline
from shared.db.connect import Database
from shared.errors import Code, Stale
from shared.jobs.model import Ending, Job, State
from shared.jobs.rules import Action
from shared.operations import removal
from shared.operations.prune import PRUNE
from shared.operations.work import Held, Work
from shared.volume import identity, ledger
from tests import worlds
from tests.operations import past
from tests.operations.past import (
    archive,
    begin,
    evidence,
    is_there,
    kept,
    keys,
    prune,
    receipts,
    scan,
)
from tests.operations.stage import (
    Stage,
    act,
    adopt,
    batch_files,
    blocked,
    child,
    directory,
    ended,
    event_types,
    events,
    execute,
    fails_with,
    jobs,
    killed,
    make_namespace,
    plan,
    plans_due,
    text_of,
    units,
    wait_for,
)
from tests.worlds import control, one, rows


@pytest.fixture
def here(database: str, volume_root: Path) -> Stage:
    return past.deployed(database, volume_root)


def of_prune(here: Stage) -> Job:
    """Return the newest job that prunes."""
    return [job for job in jobs(here) if job.operation == "prune"][-1]


def test_what_was_archived_goes_and_what_came_since_stays(here: Stage) -> None:
    receipts(here, "a", "b")
    archive(here, "idempotency")
    receipts(here, "c")
    job = prune(here)
    assert keys(here) == ["c"]
    (found,) = evidence(here, job)
    assert (found["file"], found["kind"]) == ("000001.sql.zst", "idempotency")
    assert found["rows"] == found["removed"] == {"tallystick.receipt": 2}
    assert found["kept"] == {}
    assert (job.roots, job.batches) == (2, 1)


def test_every_built_in_kind_whose_table_is_there_can_be_pruned(here: Stage) -> None:
    """A table that comes with another operation must say what stays of it before anything of it goes."""
    there = {row["name"] for row in rows(here.control, "SELECT relname AS name FROM pg_class")}
    for each in builtin():
        tables = [each.kind.root, *(related.table for related in each.kind.related)]
        names = {table.removeprefix("tallystick.") for table in tables}
        if names <= there:
            assert names <= set(removal.STAYS), each.name


def test_the_rows_of_all_built_in_kinds_go(here: Stage) -> None:
    receipts(here, "a")
    scan(here)
    scan(here)
    statement = (
        "INSERT INTO tallystick.recovery_event (type, severity, source, done, namespace_id)"
        " SELECT 'page-halved', 'info', 'tick', true, id FROM tallystick.namespace"
    )
    rows(here.control, statement)
    for kind in ("audit", "events", "idempotency", "tasks"):
        archive(here, kind)
    job = prune(here)
    removed: dict[str, int] = {}
    for each in evidence(here, job):
        removed |= {table: count for table, count in each["removed"].items() if count}
    # Of two scans the newer is where the plan goes on; the archives before that of the tasks are anchors.
    assert removed["tallystick.job"] == 1
    assert removed["tallystick.unit"] == 2 + 3
    assert removed["tallystick.recovery_event"] >= 1
    assert removed["tallystick.audit_entry"] >= 1
    assert removed["tallystick.receipt"] == 1
    assert kept(here, job) == {"job": {"anchor": 3, "newest": 1}}


def test_rows_of_the_application_are_never_touched(here: Stage) -> None:
    """Not even where a kind of the deployment has the same rows as one of ours."""
    receipts(here, "a")
    archive(here, "notes")
    application = archive(here, "idempotency")
    execute(
        here.control,
        "UPDATE tallystick.job SET input = jsonb_set(input, '{definition,source}', '\"application\"')"
        f" WHERE id = '{application.id}'",
    )
    prune(here)
    assert one(here.source, "SELECT count(*) FROM note") == 5
    assert keys(here) == ["a"]


def test_a_table_that_is_not_history_is_never_touched(here: Stage) -> None:
    scan(here)
    task = archive(here, "tasks")
    execute(
        here.control,
        "UPDATE tallystick.job SET input = jsonb_set(input, '{definition,root}', '\"tallystick.plan\"')"
        f" WHERE id = '{task.id}'",
    )
    job = prune(here)
    assert evidence(here, job)[0]["file"] is None


def test_a_row_that_changed_after_it_was_archived_is_not_removed(here: Stage) -> None:
    receipts(here, "a", "b", "c")
    archive(here, "idempotency")
    change = "UPDATE tallystick.receipt SET {} WHERE key = '{}'"
    execute(here.control, change.format("status = 200", "a"))
    execute(here.control, change.format("answer = NULL", "b"))
    job = prune(here)
    assert keys(here) == ["a", "b"]
    assert kept(here, job) == {"receipt": {"differs": 2}}
    (told,) = [event for event in events(here, job) if event["type"] == "rows-kept"]
    assert told["reason_code"] == Code.ROWS_KEPT
    assert told["reason_params"]["rows"] == 2
    assert told["reason_params"]["kind"] == "idempotency"
    # Archived once more as they are now, they go.
    archive(here, "idempotency", scope="all")
    prune(here)
    assert keys(here) == []


def test_settings_of_the_server_do_not_change_what_a_row_reads_like(here: Stage) -> None:
    receipts(here, "a")
    archive(here, "idempotency")
    execute(
        here.control,
        "DO $$ BEGIN EXECUTE format("
        "'ALTER DATABASE %I SET timezone = %L', current_database(), 'Asia/Kolkata'); END $$",
    )
    prune(here)
    assert keys(here) == []


@pytest.mark.parametrize(("value", "left"), [("NULL", []), ("7", ["a"])])
def test_a_row_with_a_value_the_archive_does_not_have_stays(
    here: Stage, value: str, left: list[str]
) -> None:
    receipts(here, "a")
    archive(here, "idempotency")
    execute(here.control, "ALTER TABLE tallystick.receipt ADD COLUMN since integer")
    execute(here.control, f"UPDATE tallystick.receipt SET since = {value}")
    prune(here)
    assert keys(here) == left


def test_a_column_that_is_gone_is_no_obstacle(here: Stage) -> None:
    receipts(here, "a")
    archive(here, "idempotency")
    execute(here.control, "ALTER TABLE tallystick.receipt DROP COLUMN answer")
    prune(here)
    assert keys(here) == []


def test_archives_keep_their_rows_and_tails_and_their_units_go(here: Stage) -> None:
    receipts(here, "a")
    first = archive(here, "idempotency")
    archive(here, "tasks")
    prune(here)
    assert units(here, first) == []
    assert [job for job in jobs(here) if job.id == first.id] == [first]


def test_of_each_plan_the_newest_closed_job_stays_until_there_is_a_newer_one(here: Stage) -> None:
    oldest, newest = scan(here), scan(here)
    archive(here, "tasks")
    job = prune(here)
    assert (is_there(here, oldest), is_there(here, newest)) == (False, True)
    assert kept(here, job)["job"] == {"newest": 1}
    # Another prune while it still is the newest, and one after there is a newer: the file is looked at again.
    prune(here)
    assert is_there(here, newest)
    scan(here)
    prune(here)
    assert not is_there(here, newest)


def test_the_job_a_prune_goes_on_from_stays(here: Stage) -> None:
    receipts(here, "a")
    archive(here, "idempotency")
    first = prune(here)
    archive(here, "tasks")
    second = prune(here)
    assert is_there(here, first)
    assert second.input["from"] == first.checkpoint
    archive(here, "tasks")
    third = prune(here)
    assert not is_there(here, first)
    assert is_there(here, second)
    files = [each["file"] for each in evidence(here, second) + evidence(here, third)]
    assert None not in files


def test_a_job_that_something_refers_to_stays(here: Stage) -> None:
    old = scan(here)
    scan(here)
    archive(here, "tasks")
    execute(here.control, f"UPDATE tallystick.unit SET roots = roots + 1 WHERE job_id = '{old.id}'")
    job = prune(here)
    assert is_there(here, old)
    assert kept(here, job) == {
        "unit": {"differs": 1},
        "job": {"referred": 1, "newest": 1},
    }


@pytest.mark.parametrize("rule", [removal.ANCHOR, removal.NEWEST], ids=lambda rule: rule.reason)
def test_without_its_rule_a_row_that_is_needed_goes(
    here: Stage, monkeypatch: pytest.MonkeyPatch, rule: removal.Rule
) -> None:
    receipts(here, "a")
    anchor = archive(here, "idempotency")
    newest = scan(here)
    # The anchor must not be the newest of its plan, or the other rule keeps it as well.
    archive(here, "idempotency")
    archive(here, "tasks")
    others = tuple(each for each in removal.STAYS["job"] if each is not rule)
    monkeypatch.setitem(removal.STAYS, "job", others)
    prune(here)
    lost = anchor if rule is removal.ANCHOR else newest
    assert [job for job in (anchor, newest) if not is_there(here, job)] == [lost]


def test_another_namespace_and_rows_of_none_keep_theirs(here: Stage) -> None:
    make_namespace(here, "second")
    receipts(here, "a")
    rows(
        here.control,
        past.RECEIPT.replace("'default'", "'second'"),
        "b",
    )
    rows(
        here.control,
        "INSERT INTO tallystick.recovery_event (type, severity, source, done, occurred_at)"
        " VALUES ('page-halved', 'info', 'tick', true, now() - interval '1 year')",
    )
    archive(here, "idempotency")
    archive(here, "events")
    archive(here, "idempotency", namespace="second")
    prune(here)
    assert keys(here) == ["b"]
    assert one(
        here.control, "SELECT count(*) FROM tallystick.recovery_event WHERE namespace_id IS NULL"
    )
    prune(here, namespace="second")
    assert keys(here) == []


def test_an_archive_that_did_not_succeed_proves_nothing(here: Stage) -> None:
    receipts(here, "a", "b", "c")
    plan(here, "idempotency", days=0, batch_size=1)
    here.tick()
    act(here, jobs(here)[0], Action.ABANDON)
    execute(here.control, "UPDATE tallystick.plan SET enabled = false")
    job = prune(here)
    assert evidence(here, job)[0]["file"] is None
    assert keys(here) == ["a", "b", "c"]


def test_a_new_job_begins_where_the_last_one_ended(here: Stage) -> None:
    receipts(here, "a")
    first_archive = archive(here, "idempotency")
    first = prune(here)
    receipts(here, "b")
    execute(here.control, "UPDATE tallystick.receipt SET created_at = now() - interval '1 day'")
    second_archive = archive(here, "idempotency")
    second = prune(here)
    archives = [[each["archive"] for each in evidence(here, job)] for job in (first, second)]
    assert archives == [[str(first_archive.id)], [str(second_archive.id)]]
    third = prune(here)
    assert [each["file"] for each in evidence(here, third)] == [None]


def test_an_abandoned_job_is_gone_on_from(here: Stage) -> None:
    receipts(here, "a", "b", "c")
    archive(here, "idempotency", batch_size=1)
    begin(here)
    here.tick()
    act(here, of_prune(here), Action.ABANDON)
    plans_due(here)
    here.until_idle()
    assert [each["file"] for each in evidence(here, of_prune(here))] == [
        "000002.sql.zst",
        "000003.sql.zst",
    ]


def test_what_closed_after_the_claim_of_a_running_archive_waits(here: Stage) -> None:
    """Its settle may have been sent and still commit, at a time the cursor would have passed."""
    receipts(here, "a")
    slow = archive(here, "idempotency")
    past_it = archive(here, "audit")
    execute(
        here.control,
        "UPDATE tallystick.job SET state = 'RUNNING', owner = gen_random_uuid(), closed_at = NULL,"
        " due_at = now() + interval '1 hour', lease_until = now() + interval '1 hour'"
        f" WHERE id = '{slow.id}'",
    )
    job = prune(here)
    assert [each["file"] for each in evidence(here, job)] == [None]
    execute(
        here.control,
        "UPDATE tallystick.job SET state = 'SUCCEEDED', owner = NULL, lease_until = NULL,"
        f" closed_at = '{slow.closed_at}' WHERE id = '{slow.id}'",
    )
    job = prune(here)
    archives = [each["archive"] for each in evidence(here, job)]
    assert archives == [str(slow.id), str(past_it.id)]


def missing(here: Stage, job: Job) -> None:
    batch_files(here, job)[1].unlink()


def damaged(here: Stage, job: Job) -> None:
    file = batch_files(here, job)[1]
    content = bytearray(file.read_bytes())
    content[40] ^= 1
    file.write_bytes(content)


def other_manifest(here: Stage, job: Job) -> None:
    file = directory(here, job) / "manifest.json"
    content = file.read_bytes()
    file.write_bytes(content.replace(b'"after_days":0', b'"after_days":1'))
    assert file.read_bytes() != content


def no_directory(here: Stage, job: Job) -> None:
    directory(here, job).rename(here.root.parent / "moved")


def other_end(here: Stage, job: Job) -> None:
    """A last file that follows on the others, and is another: only the confirmed tail tells."""
    file = batch_files(here, job)[-1]
    frame = compressor()
    text = text_of(file).replace(b"tallystick test", b"somebody else's")
    file.write_bytes(frame.compress(text) + frame.flush())


@pytest.mark.parametrize("harm", [missing, damaged, other_manifest, no_directory, other_end])
@pytest.mark.parametrize("with_units", [True, False])
def test_a_file_that_is_not_what_was_confirmed_removes_nothing(
    here: Stage, harm: Callable[[Stage, Job], None], with_units: bool
) -> None:
    receipts(here, "a", "b", "c")
    job = archive(here, "idempotency", batch_size=1)
    if not with_units:
        execute(here.control, f"DELETE FROM tallystick.unit WHERE job_id = '{job.id}'")
    harm(here, job)
    adopt(here)
    begin(here)
    while (report := here.tick()).outcome.ending is Ending.PROGRESSED:
        continue
    assert (report.outcome.ending, report.outcome.code) == (Ending.FAILED, Code.FILE_CHECK_FAILED)
    assert report.outcome.params["archive"] == str(job.id)
    # The file whose digest is known proves its rows whatever became of the others.
    assert {"c"} <= set(keys(here))
    if not with_units:
        assert keys(here) == ["a", "b", "c"]


def test_a_file_that_was_restored_goes_on_and_one_that_is_lost_can_be_given_up(here: Stage) -> None:
    receipts(here, "a", "b", "c")
    job = archive(here, "idempotency", batch_size=1)
    file = batch_files(here, job)[0]
    content = file.read_bytes()
    file.unlink()
    begin(here)
    fails_with(here, Code.FILE_CHECK_FAILED, "missing")
    failed = of_prune(here)
    act(here, failed, Action.ABANDON)
    plans_due(here)
    here.until_idle()
    job = of_prune(here)
    assert [each["given_up"] for each in evidence(here, job)] == [True, False, False]
    assert keys(here) == ["a"]
    (told,) = [event for event in events(here, job) if event["type"] == "file-passed-over"]
    assert told["reason_params"]["file"] == "000001.sql.zst"
    # The way back: an archive of everything once more.
    file.write_bytes(content)
    archive(here, "idempotency", scope="all")
    prune(here)
    assert keys(here) == []


def test_a_failed_job_is_tried_again_once_its_file_is_back(here: Stage) -> None:
    receipts(here, "a")
    job = archive(here, "idempotency")
    file = batch_files(here, job)[0]
    content = file.read_bytes()
    file.write_bytes(content + b"\0")
    # It is the file that was settled last: without it the volume is not used before an operator says so.
    adopt(here)
    begin(here)
    fails_with(here, Code.FILE_CHECK_FAILED, "digest")
    file.write_bytes(content)
    act(here, of_prune(here), Action.RETRY)
    here.until_idle()
    assert (of_prune(here).state, keys(here)) == (State.SUCCEEDED, [])


def test_where_the_unit_is_gone_the_chain_up_to_the_tail_proves_the_file(here: Stage) -> None:
    receipts(here, "a", "b", "c")
    job = archive(here, "idempotency", batch_size=1)
    execute(here.control, f"DELETE FROM tallystick.unit WHERE job_id = '{job.id}'")
    prune(here)
    assert keys(here) == []


def claimed(here: Stage) -> Any:  # noqa: ANN401 - a claim
    with closing(control(here.control)) as db:
        return worlds.a_claim(db, here.storage_id, operations=("prune",))


def test_a_stale_holder_removes_nothing(here: Stage) -> None:
    receipts(here, "a")
    archive(here, "idempotency")
    begin(here)
    with closing(Database(here.control, Deadline.after(60))) as db:
        from shared.plans.schedule import schedule

        schedule(db, here.node.kinds, ["prune"])
        claim = claimed(here)
        with identity.opened(here.root, here.storage_id) as volume:
            held = Held(volume, ledger.visit(db, volume))
            work = Work(db, {}, held, Deadline.after(60), 1 << 30, "test")
            errand = PRUNE.next_unit(work, claim)
            lost = [
                ("generation = generation + 1", "generation = generation - 1"),
                (
                    "due_at = now() - interval '1 s', lease_until = now() - interval '1 s'",
                    "due_at = now() + interval '60 s', lease_until = now() + interval '60 s'",
                ),
                ("batches = batches + 1", "batches = batches - 1"),
                (f"last_sha256 = '{'a' * 64}'", "last_sha256 = NULL"),
                ("owner = gen_random_uuid()", f"owner = '{claim.fence.owner}'"),
            ]
            for change, back in lost:
                execute(
                    here.control, f"UPDATE tallystick.job SET {change} WHERE id = '{claim.job.id}'"
                )
                with pytest.raises(Stale):
                    PRUNE.do(work, errand)
                assert keys(here) == ["a"]
                execute(
                    here.control, f"UPDATE tallystick.job SET {back} WHERE id = '{claim.job.id}'"
                )
            assert PRUNE.do(work, errand) == {"tallystick.receipt": 1}


def test_an_operator_waits_for_rows_that_are_going_and_nothing_goes_after_them(here: Stage) -> None:
    receipts(here, "a", "b")
    archive(here, "idempotency", batch_size=1)
    begin(here)
    with psycopg.connect(here.control) as session:
        session.execute("SELECT FROM tallystick.receipt WHERE key = 'a' FOR UPDATE")
        process = child(here, once=False)
        try:
            wait_for(lambda: blocked(here.control))
            taken = threading.Thread(target=act, args=(here, of_prune(here), Action.ABANDON))
            taken.start()
            wait_for(lambda: len(blocked(here.control)) == 2)
            session.rollback()
            taken.join()
            assert Ending.STALE in [outcome[0] for outcome in ended(process)]
        finally:
            if process.poll() is None:
                killed(process)
    assert of_prune(here).state is State.ABANDONED
    assert keys(here) == ["b"]


def test_rows_are_removed_in_pieces_of_the_plans_size(here: Stage) -> None:
    receipts(here, *(f"{n:02}" for n in range(10)))
    archive(here, "idempotency")
    execute(
        here.control,
        "CREATE TABLE public.seen (rows bigint)",
        "CREATE FUNCTION public.note_rows() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO public.seen SELECT count(*) FROM gone; RETURN NULL; END'",
        "CREATE TRIGGER seen AFTER DELETE ON tallystick.receipt REFERENCING OLD TABLE AS gone"
        " FOR EACH STATEMENT EXECUTE FUNCTION public.note_rows()",
    )
    prune(here, batch_size=3)
    assert [row["rows"] for row in rows(here.control, "SELECT rows FROM seen")] == [3, 3, 3, 1]
    assert keys(here) == []


def test_time_that_is_up_leaves_the_rest_for_the_next_try(here: Stage) -> None:
    receipts(here, "a")
    archive(here, "idempotency")
    begin(here)
    report = here.changed(deadline_seconds=0.0).tick()
    assert (report.outcome.ending, report.outcome.code) == (Ending.WAITING, Code.PRUNE_INCOMPLETE)
    assert report.outcome.params["cause"] == "deadline"
    assert of_prune(here).state is State.PENDING
    assert "unit-failed" in event_types(here, of_prune(here))


# As if the disk of temporary files had room for ten bytes, and every file were too large for memory.
CRAMPED = """
import resource
from shared.restore import held
held.MEMORY_BYTES = 1
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
"""


def test_no_room_for_a_copy_is_tried_again_and_removes_nothing(here: Stage) -> None:
    receipts(here, "a")
    archive(here, "idempotency")
    begin(here)
    ((ending, code),) = [tuple(told[:2]) for told in ended(child(here, first=CRAMPED))]
    assert (ending, code) == (Ending.WAITING, Code.TEMPORARY_UNUSABLE)
    assert of_prune(here).state is State.PENDING
    assert keys(here) == ["a"]


def test_another_volume_has_its_own_place(here: Stage, tmp_path: Path) -> None:
    """A plan that moves between volumes forgets nothing of either."""
    receipts(here, "a")
    archive(here, "idempotency")
    prune(here)
    root = tmp_path / "other"
    root.mkdir(mode=0o700)
    with closing(control(here.control)) as db:
        storage_id = worlds.a_volume(db, root)
    there = replace(here, root=root, node=replace(here.node, root=root, storage_id=storage_id))
    execute(there.control, "UPDATE tallystick.receipt SET created_at = now()")
    receipts(there, "b")
    plan(there, "idempotency", days=0, enabled=False)
    archive(there, "idempotency", scope="all")
    job = prune(there)
    assert job.input["from"] is None
    assert keys(there) == []
    # Where it stood on the first volume is in a job that a newer one on the other volume does not replace.
    archive(there, "tasks")
    prune(there)
    assert prune(here).input["from"] is not None
