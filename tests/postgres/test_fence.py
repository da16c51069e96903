"""The fence: whoever is not exactly the holder it believes to be writes nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from shared.db.connect import Database
from shared.errors import Code, Passing, Stale, Uncertain
from shared.jobs import rules, steer, store
from shared.jobs.model import Claim, Event, LedgerEntry, State
from tests.worlds import (
    GIBIBYTE,
    SIGNED,
    a_claim,
    a_job,
    a_progress,
    altered,
    change_job,
    expire_lease,
    one,
    rows,
)

Write = Callable[[Database, Claim], object]
OTHER_SHA256 = "e" * 64
EVERYTHING = """
    SELECT (SELECT jsonb_agg(job ORDER BY id) FROM tallystick.job) AS jobs,
           (SELECT jsonb_agg(volume) FROM tallystick.volume) AS volumes,
           (SELECT count(*) FROM tallystick.unit) AS units,
           (SELECT count(*) FROM tallystick.recovery_event) AS events,
           (SELECT count(*) FROM tallystick.ledger) AS ledger"""


def settle(control: Database, claim: Claim) -> object:
    progress = a_progress(
        claim,
        ledger=(LedgerEntry(claim.job.directory, 133),),
        events=(Event("batch-adopted", "info", done=True),),
    )
    return store.settle(control, claim, progress)


def set_back(control: Database, claim: Claim) -> object:
    return store.set_back(control, claim, rules.setback(claim.job, Passing(Code.EXPORT_FAILED)))


def reserve(control: Database, claim: Claim) -> object:
    return store.reserve(control, claim.fence, 100, GIBIBYTE)


def open_job(control: Database, claim: Claim) -> object:
    return store.open_job(control, claim, {"cutoff": "2026-01-01"})


WRITES = [settle, set_back, reserve, open_job]


def other_owner(control: Database, claim: Claim) -> Claim:
    return replace(claim, job=replace(claim.job, owner=UUID(int=9)))


def other_generation(control: Database, claim: Claim) -> Claim:
    return replace(claim, job=replace(claim.job, generation=claim.job.generation - 1))


def other_sequence(control: Database, claim: Claim) -> Claim:
    return replace(claim, job=replace(claim.job, batches=claim.job.batches + 1))


def other_tail(control: Database, claim: Claim) -> Claim:
    return replace(claim, job=replace(claim.job, last_sha256=OTHER_SHA256))


def no_tail(control: Database, claim: Claim) -> Claim:
    return replace(claim, job=replace(claim.job, last_sha256=None))


def lease_over(control: Database, claim: Claim) -> Claim:
    expire_lease(control, claim.job.id)
    return claim


def not_running(control: Database, claim: Claim) -> Claim:
    change_job(control, claim.job.id, "state = 'PENDING', owner = NULL")
    return claim


def paused(control: Database, claim: Claim) -> Claim:
    steer.act(control, claim.job.id, rules.Action.PAUSE, SIGNED)
    return claim


def abandoned(control: Database, claim: Claim) -> Claim:
    steer.act(control, claim.job.id, rules.Action.ABANDON, SIGNED)
    return claim


def taken_over(control: Database, claim: Claim) -> Claim:
    expire_lease(control, claim.job.id)
    a_claim(control, claim.job.storage_id)
    return claim


LOSSES = [
    other_owner,
    other_generation,
    other_sequence,
    other_tail,
    no_tail,
    lease_over,
    not_running,
    paused,
    abandoned,
    taken_over,
]


def second_unit(control: Database, storage_id: str) -> Claim:
    """Return the claim of a job that has settled its first unit, so that it has a tail."""
    a_job(control, storage_id=storage_id)
    claim = a_claim(control, storage_id)
    store.settle(control, claim, a_progress(claim))
    return a_claim(control, storage_id)


def test_the_holder_itself_may_write(control: Database, storage_id: str) -> None:
    claim = second_unit(control, storage_id)
    for write in (reserve, open_job, settle):
        write(control, claim)
    set_back(control, a_claim(control, storage_id))


def ending(write: Write, control: Database, believed: Claim) -> str:
    try:
        write(control, believed)
    except (Stale, Uncertain) as error:
        return type(error).__name__
    return "done"


@pytest.mark.parametrize("loss", LOSSES)
def test_a_claim_that_was_lost_writes_nothing(
    database: str, control: Database, storage_id: str, loss: Callable[[Database, Claim], Claim]
) -> None:
    believed = loss(control, second_unit(control, storage_id))
    before = rows(database, EVERYTHING)
    # Each statement refuses by itself, whatever the code around it finds out afterwards.
    params: dict[str, object] = believed.fence.params()
    assert control.transact(store._sql("reserve"), params | {"size": 1, "volume_max": 9}) == []
    assert control.transact(store._sql("open_job"), params | {"opening": "{}"}) == []
    endings = {}
    for write in WRITES:
        endings[write.__name__] = ending(write, control, believed)
        assert rows(database, EVERYTHING) == before
    expected = dict.fromkeys(endings, "Stale")
    if loss is lease_over:
        # Nobody else took it, so nobody says that it is lost; still nothing may be written.
        expected |= {"settle": "Uncertain", "set_back": "Uncertain"}
    if loss is not_running:
        # Given back at our own generation is how one's own set back looks whose answer was lost.
        expected |= {"set_back": "done"}
    assert endings == expected


FENCE = """    WHERE id = %(job_id)s AND owner = %(owner)s AND generation = %(generation)s
      AND state = 'RUNNING' AND due_at > clock_timestamp()
      AND batches = %(seq)s AND last_sha256 IS NOT DISTINCT FROM %(tail)s
"""


def settled_with(control: Database, claim: Claim, fence: str) -> bool:
    """Settle with another fence in place of the product's; tell whether it got through."""
    weak = altered(store._sql("settle"), FENCE, fence)
    progress = a_progress(claim)
    params = claim.fence.params() | {
        "final": False,
        "page_size": 1,
        "checkpoint": "{}",
        "unit_seq": progress.seq,
        "unit_sha256": progress.sha256,
        "unit_bytes": 1,
        "unit_roots": 1,
        "evidence": "{}",
        "new_tail": progress.tail,
        "ledger": "[]",
        "released": [],
        "published_directory": None,
        "published_file": None,
        "events": "[]",
        "reclaimed": False,
    }
    return bool(control.transact(weak, params))


def test_a_zombie_would_complete_the_run_of_its_successor_without_the_fence(
    database: str, control: Database
) -> None:
    job = a_job(control)
    zombie = a_claim(control)
    expire_lease(control, job)
    a_claim(control)
    with pytest.raises(Stale):
        settle(control, zombie)
    assert one(database, "SELECT count(*) FROM tallystick.unit") == 0
    # What most queues check when they complete a job: its id and that it runs.
    assert settled_with(control, zombie, "WHERE id = %(job_id)s AND state = 'RUNNING'\n")


def test_the_same_generation_handed_out_again_after_a_failover_is_refused_by_the_tail(
    control: Database,
) -> None:
    a_job(control)
    first = a_claim(control)
    store.settle(control, first, a_progress(first))
    zombie = a_claim(control)
    # The standby had not received that settle. It hands out the same generation, and the unit is
    # settled there with other bytes.
    change_job(
        control,
        zombie.job.id,
        f"last_sha256 = '{OTHER_SHA256}', owner = '{zombie.fence.owner}'",
    )
    with pytest.raises(Stale):
        settle(control, zombie)
    without_tail = FENCE.replace(" AND last_sha256 IS NOT DISTINCT FROM %(tail)s", "")
    assert settled_with(control, zombie, without_tail)


def test_the_same_generation_handed_out_again_at_another_sequence_is_refused(
    control: Database,
) -> None:
    a_job(control)
    zombie = a_claim(control)
    change_job(control, zombie.job.id, "batches = 1")
    with pytest.raises(Stale):
        settle(control, zombie)
    assert settled_with(control, zombie, FENCE.replace("batches = %(seq)s AND ", ""))


def test_a_settle_after_the_lease_would_get_through_without_the_lease_in_the_fence(
    control: Database,
) -> None:
    job = a_job(control)
    claim = a_claim(control)
    expire_lease(control, job)
    assert not settled_with(control, claim, FENCE)
    assert settled_with(control, claim, FENCE.replace(" AND due_at > clock_timestamp()", ""))


def test_what_a_zombie_settles_never_moves_the_holder(control: Database) -> None:
    job = a_job(control)
    zombie = a_claim(control)
    expire_lease(control, job)
    holder = a_claim(control)
    with pytest.raises(Stale):
        set_back(control, zombie)
    settled = store.settle(control, holder, a_progress(holder, final=True))
    assert settled.state is State.SUCCEEDED
    with pytest.raises(Stale):
        settle(control, zombie)


def test_what_the_first_unit_found_is_fixed_once(control: Database) -> None:
    job = a_job(control)
    claim = store.open_job(control, a_claim(control), {"cutoff": "first"})
    assert claim.job.opening == {"cutoff": "first"}
    with pytest.raises(Stale):
        store.open_job(control, claim, {"cutoff": "second"})
    expire_lease(control, job)
    later = a_claim(control)
    assert later.job.opening == {"cutoff": "first"}
    with pytest.raises(Stale):
        store.open_job(control, later, {"cutoff": "third"})
    assert store.get(control, job).opening == {"cutoff": "first"}
