"""Two NFSv4.1 clients at one volume, as two machines with EFS would be.

Nothing here waits for a cache to expire: where a client sees what is no longer so, that is the point.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.errors import Busy, Code
from shared.jobs.model import Ending
from shared.volume import identity, ledger, lock, publish
from shared.volume.files import CHUNK
from tests.nfs.inside.conftest import Shared
from tests.nfs.inside.process import beside, ended, kill
from tests.operations import stage
from tests.worlds import control

# What both have mounted, as the server has it.
SERVED = Path("/mnt/served/data")
PUBLISHES = 200
# Long enough for a lease's end of the other client to arrive; a lock that is free is taken at once.
PATIENCE_SECONDS = 30.0


def test_both_clients_find_the_same_volume_and_a_copy_is_another(shared: Shared) -> None:
    root = shared.second.root
    with (
        closing(control(shared.second.control)) as db,
        identity.opened(root, shared.second.storage_id) as volume,
    ):
        ledger.visit(db, volume)
    copy = root.with_name(f"{root.name}-copy")
    shutil.copytree(root, copy)
    shutil.rmtree(root)
    copy.rename(root)
    outcome = shared.second.tick().outcome
    assert (outcome.ending, outcome.code) == (Ending.WAITING, Code.STORAGE_UNAVAILABLE), outcome


def test_the_lock_keeps_the_other_client_out_and_is_freed_by_a_kill(shared: Shared) -> None:
    taken, telling = os.pipe()

    def hold() -> None:
        with (
            identity.opened(shared.first.root, shared.first.storage_id) as volume,
            lock.held(volume),
        ):
            os.write(telling, b"x")
            os.read(os.pipe()[0], 1)

    with (
        beside(hold) as holder,
        identity.opened(shared.second.root, shared.second.storage_id) as volume,
    ):
        os.read(taken, 1)
        with pytest.raises(Busy), lock.held(volume, wait_seconds=0):
            pass
        report = shared.second.tick()
        assert report.outcome.code == Code.STORAGE_BUSY
        assert stage.jobs(shared.second) == []
        kill(holder)
        with lock.held(volume, wait_seconds=PATIENCE_SECONDS):
            pass


def test_closing_another_descriptor_of_the_lock_file_would_let_the_other_client_in(
    shared: Shared,
) -> None:
    """Its holder still believes that it has the lock: nothing of ours may open that file a second time."""
    told, telling = os.pipe()
    heard, saying = os.pipe()

    def hold() -> None:
        with (
            identity.opened(shared.first.root, shared.first.storage_id) as volume,
            lock.held(volume),
        ):
            os.write(telling, b"x")
            os.read(heard, 1)
            with (shared.first.root / ".lock").open("r+b"):
                pass
            os.write(telling, b"x")
            os.read(os.pipe()[0], 1)

    with (
        beside(hold),
        identity.opened(shared.second.root, shared.second.storage_id) as volume,
    ):
        os.read(told, 1)
        with pytest.raises(Busy), lock.held(volume, wait_seconds=0):
            pass
        os.write(saying, b"x")
        os.read(told, 1)
        with lock.held(volume, wait_seconds=PATIENCE_SECONDS):
            pass


@dataclass(frozen=True)
class Runner:
    """One of two that race: ``leads`` in every second position, so that neither always comes first."""

    root: Path
    storage_id: str
    told: Path
    leads: int
    hears: int
    says: int

    def meet(self, number: int) -> None:
        """Wait until both have written their file; then both go, the leader without having slept."""
        if number % 2 == self.leads:
            os.read(self.hears, 1)
            os.write(self.says, b"x")
        else:
            os.write(self.says, b"x")
            os.read(self.hears, 1)

    def run(self) -> None:
        """Publish every position with bytes of one's own, and say which of them became the file."""
        mine = []
        with (
            identity.opened(self.root, self.storage_id) as volume,
            publish.job_directory(volume, "0-0", create=True) as directory,
        ):
            for number in range(PUBLISHES):
                name = f"{number:06}"
                temp = publish.write_temp(volume, [f"{self.root} {name}".encode() * 100])
                self.meet(number)
                ours = publish.publish(volume, temp, directory, name)
                with publish.published(directory, name) as fd:
                    found = publish.sha256_of(fd)
                assert (found == temp.sha256) == ours
                publish.make_durable(directory, None if ours else name)
                publish.discard(volume, temp)
                mine.append([found, ours])
        self.told.write_text(json.dumps(mine))


def test_of_racing_publishes_none_is_lost_or_doubled(shared: Shared, tmp_path: Path) -> None:
    told = [tmp_path / "first", tmp_path / "second"]
    roots = (shared.first.root, shared.second.root)
    (hears, tells), (listens, says) = os.pipe(), os.pipe()
    storage_id = shared.first.storage_id
    first = beside(Runner(roots[0], storage_id, told[0], 0, hears, says).run)
    second = beside(Runner(roots[1], storage_id, told[1], 1, listens, tells).run)
    with first as one, second as other:
        ended(one)
        ended(other)
    winners = [0, 0]
    ours, theirs = (json.loads(file.read_text()) for file in told)
    assert len(ours) == len(theirs) == PUBLISHES
    for mine, yours in zip(ours, theirs, strict=True):
        # Both found the same bytes under the name, and they were exactly one's own.
        assert mine[0] == yours[0]
        assert mine[1] != yours[1]
        winners[0 if mine[1] else 1] += 1
    assert sorted(path.name for path in (roots[0] / "0-0").iterdir()) == [
        f"{number:06}" for number in range(PUBLISHES)
    ]
    # A race that one of them always wins is none.
    assert min(winners) > 0


def test_a_tick_killed_on_one_client_is_taken_over_on_the_other(shared: Shared) -> None:
    """Killed in its settle: the batch is on the volume, and the database does not know of it."""
    with stage.gate(shared.first), beside(shared.first.tick) as killed:
        stage.wait_for(lambda: stage.blocked(shared.first.control), seconds=PATIENCE_SECONDS)
        kill(killed)
        stage.execute(
            shared.first.control,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
        )
    assert stage.only_job(shared.second).batches == 0
    stage.expire(shared.second)
    shared.second.until_idle()
    assert shared.scene.faults() == []
    assert "batch-adopted" in stage.event_types(shared.second)


def test_clients_that_take_turns_build_one_chain(shared: Shared) -> None:
    for _ in turns(shared):
        # Each has looked for what the other will make, and remembers that it was not there.
        for here in (shared.first, shared.second):
            for job in stage.jobs(here):
                next_file = stage.directory(here, job) / f"{job.batches + 1:06}.sql.zst"
                assert not next_file.exists()
    assert shared.scene.faults() == []


def turns(shared: Shared) -> Iterator[None]:
    here, other = shared.first, shared.second
    while here.tick().outcome.ending in stage.MORE:
        here, other = other, here
        yield


def test_a_scan_sees_at_once_what_the_other_client_wrote(shared: Shared) -> None:
    # Looked at before: what this client remembers of the volume is from when it was empty.
    assert not list(shared.second.root.glob("*-*-*"))
    shared.first.until_idle()
    (job,) = stage.jobs(shared.first)
    stage.plan(shared.second, None)
    shared.second.until_idle()
    assert shared.scene.faults() == []
    found = stage.event_types(shared.second)
    assert not {"unrecorded-file", "foreign-entry", "unknown-directory"} & set(found), found
    (scanned,) = (each for each in stage.jobs(shared.second) if each.operation == "scan")
    assert scanned.bytes == job.bytes or scanned.batches > 0


def test_a_name_that_is_not_seen_is_neither_missed_nor_written_twice(shared: Shared) -> None:
    first, second = shared.first, shared.second
    with (
        identity.opened(first.root, first.storage_id) as here,
        identity.opened(second.root, second.storage_id) as there,
        publish.job_directory(here, "0-0", create=True) as ours,
        publish.job_directory(there, "0-0", create=False) as theirs,
    ):
        unseen = second.root / "0-0" / "000001"
        assert not unseen.exists()
        temp = publish.write_temp(here, [b"ours"])
        assert publish.publish(here, temp, ours, "000001")
        # A lookup still says what was so before.
        assert not unseen.exists()
        late = publish.write_temp(there, [b"theirs"])
        assert not publish.publish(there, late, theirs, "000001")
        assert publish.read_published(theirs, "000001", CHUNK) == b"ours"
        assert publish.is_listed(theirs, "000001")


def test_who_looks_for_a_name_before_using_it_replaces_what_the_other_client_wrote(
    shared: Shared,
) -> None:
    """A lookup that missed is remembered: asked whether the place is free, this client says yes."""
    first, second = shared.first, shared.second
    with (
        identity.opened(first.root, first.storage_id) as here,
        identity.opened(second.root, second.storage_id) as there,
        publish.job_directory(here, "0-0", create=True) as ours,
        publish.job_directory(there, "0-0", create=False),
    ):
        place = second.root / "0-0" / "000001"
        late = publish.write_temp(there, [b"theirs"])
        assert not place.exists()
        temp = publish.write_temp(here, [b"ours"])
        assert publish.publish(here, temp, ours, "000001")
        on_the_server = SERVED / first.root.name / "0-0" / "000001"
        assert on_the_server.read_bytes() == b"ours"
        assert not place.exists()
        (second.root / ".tmp" / late.name).rename(place)
        assert on_the_server.read_bytes() == b"theirs"


def test_what_is_stale_of_a_file_does_not_hide_its_bytes(shared: Shared) -> None:
    first, second = shared.first, shared.second
    with (
        identity.opened(first.root, first.storage_id) as here,
        identity.opened(second.root, second.storage_id) as there,
        publish.job_directory(here, "0-0", create=True) as ours,
        publish.job_directory(there, "0-0", create=False) as theirs,
    ):
        temp = publish.write_temp(here, [b"before"])
        assert publish.publish(here, temp, ours, "000001")
        seen = os.stat("000001", dir_fd=theirs)
        with (first.root / "0-0" / "000001").open("ab") as file:
            file.write(b" and after")
        # The size is remembered, yet opening asks the server again: damage is not overlooked.
        assert os.stat("000001", dir_fd=theirs).st_size == seen.st_size
        assert publish.read_published(theirs, "000001", CHUNK) == b"before and after"
