"""A power cut at any moment of a tick, whatever it leaves of what was not synced, loses and doubles nothing.

The database is durable by itself and stands as it did at the cut; of the volume every state is tried that
``disk`` allows.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shared.volume import identity
from tests.crash import disk, record
from tests.crash.conftest import Grounds
from tests.crash.disk import Disk
from tests.crash.extent import share
from tests.crash.follow import SOCKET, Act
from tests.crash.inject import Run
from tests.crash.mould import cast
from tests.crash.scene import Scene
from tests.crash.trial import Ground, recover, sessions_end

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

# By name: how many ticks of the archive come before the one in which the power goes.
TICKS = {"the first batch": 0, "a batch in the middle": 1, "the final batch": 2}


@dataclass(frozen=True)
class Cut:
    """A moment: ``act`` ends the tick there (None: it ran to its end); ``where`` is said of faults."""

    where: str
    act: Act | None


def prepared(world: Scene, ticks: int) -> Disk:
    """Tick as often as is said, and take what is there then for durable."""
    for _ in range(ticks):
        world.stage.tick()
    return Disk(disk.looked_at(world.stage.root))


def cuts(here: Ground, ticks: int) -> list[Cut]:
    """Return the moments of a tick at which volume or database are in a state of their own."""
    with here.world() as world:
        prepared(world, ticks)
        run = here.tick(world)
    return [*_before_changes(run), Cut("at the end", None)]


def _before_changes(run: Run) -> Iterator[Cut]:
    last = -1
    for change in run.changes:
        if change.kind == "openat" and not change.create:
            continue
        between = run.calls[last + 1 : change.call]
        # The database moved on: the volume as it was is also a state beside the database before.
        if last >= 0 and ("sendto", SOCKET) in between:
            yield Cut(f"after {_said(run, last)}", _act(run, last, "kill-after"))
        yield Cut(f"before {_said(run, change.call)}", _act(run, change.call, "kill-before"))
        last = change.call
    if last >= 0:
        yield Cut(f"after {_said(run, last)}", _act(run, last, "kill-after"))


def _act(run: Run, call: int, how: str) -> Act:
    kind = run.calls[call][0]
    return Act(kind, sum(each == kind for each, _ in run.calls[: call + 1]), how)


def _said(run: Run, call: int) -> str:
    return " ".join(run.calls[call])


def left_by(here: Ground, ticks: int, *acts: Act) -> Iterator[tuple[int, list[str]]]:
    """Tick and cut the power; yield for each state that may be left its number and what the judge says."""
    with here.world() as world:
        before = prepared(world, ticks)
        run = here.tick(world, *acts)
        assert len(run.hits) == len(acts), run
        sessions_end(world.stage)
        after = before.replay(run.changes)
        # The model has missed nothing that the tick did.
        assert after.tree() == disk.looked_at(world.stage.root)
        for number, tree in enumerate(after.survivors(), 1):
            yield number, judged(here, world, tree)


def judged(here: Ground, world: Scene, tree: disk.Tree) -> list[str]:
    """Recover from one state beside a copy of the database, and ask the judge."""
    with tempfile.TemporaryDirectory(prefix="tallystick-power-") as place:
        root = Path(place) / "volume"
        disk.laid_out(tree, root)
        database = urlsplit(world.stage.control).path[1:]
        after_cut = replace(here.mould, database=database, volume=root, stage=world.stage)
        with cast(after_cut, here.server) as found:
            recover(found.stage)
            return here.faults(found)


def swept(here: Ground, name: str, some: slice) -> list[str]:
    ticks = TICKS[name]
    faults: list[str] = []
    states = 0
    moments = cuts(here, ticks)[some]
    for cut in moments:
        for number, found in left_by(here, ticks, *([cut.act] if cut.act else [])):
            states += 1
            faults += [f"{cut.where}, state {number}: {fault}" for fault in found]
    record.keep(record.Line("power", name, "", len(moments), states, faults))
    return faults


@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", TICKS)
def test_after_a_power_cut_at_any_moment_nothing_is_lost_or_doubled(
    grounds: Grounds, name: str
) -> None:
    assert swept(grounds("archive"), name, share(0, 1)) == []


def test_after_a_power_cut_around_the_settle_nothing_is_lost_or_doubled(grounds: Grounds) -> None:
    """The quick selection: from the name of the first batch to the end of the tick."""
    assert swept(grounds("archive"), "the first batch", slice(-5, None)) == []


def syncs(here: Ground) -> list[str]:
    with here.world() as world:
        run = here.tick(world)
    return [what for kind, what in run.calls if kind == "fsync"]


def test_every_sync_of_a_first_batch_is_needed(grounds: Grounds) -> None:
    """Without any one there is a cut, at the next or the end, after which the judge finds faults."""
    here = grounds("archive")
    told = syncs(here)
    assert told == [".", ".tmp/*", ".tmp/*", "job", "job"]
    for nth, what in enumerate(told, 1):
        lie = Act("fsync", nth, "lie")
        later = [Act("fsync", nth + 1, "kill-before")] if nth < len(told) else []
        tried = itertools.chain(left_by(here, 0, lie), left_by(here, 0, lie, *later))
        assert any(faults for _, faults in tried), f"fsync {nth} of {what}"


def traced(told: Path, root: Path, script: str) -> str:
    """Run a script that is given the root of a volume, and return its mkdirs, links and syncs."""
    beginning = "import sys, pathlib; from shared.recovery import evidence;"
    beginning += "from shared.volume import identity, lock; root = pathlib.Path(sys.argv[1])\n"
    subprocess.run(
        [
            *("strace", "-f", "-y", "-e", "trace=mkdir,mkdirat,linkat,fsync", "-o", told),
            *(sys.executable, "-c", beginning + script, root),
        ],
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return told.read_text()


def test_a_new_volume_is_as_durable_as_its_name(tmp_path: Path) -> None:
    root = tmp_path / "new" / "volume"
    told = traced(tmp_path / "told", root, "identity.initialise(root)")
    for directory in (tmp_path, root.parent, root):
        assert f"<{directory}>)" in told[told.rindex(f'mkdirat(3<{root.parent}>, "{root.name}"') :]


def test_a_volume_marked_by_one_that_died_is_made_durable_by_the_next(volume_root: Path) -> None:
    storage_id = identity.initialise(volume_root)
    told = traced(
        volume_root.parent / "told", volume_root, f"identity.initialise(root, {storage_id!r})"
    )
    assert f"<{volume_root}>)" in told


def test_evidence_is_as_durable_as_its_directory(volume_root: Path) -> None:
    storage_id = identity.initialise(volume_root)
    (volume_root / ".evidence").rmdir()
    script = f"with identity.opened(root, {storage_id!r}) as volume:\n"
    script += "    lock.prepare(volume); evidence.keep(volume, [])"
    told = traced(volume_root.parent / "told", volume_root, script)
    assert f"<{volume_root}>)" in told[told.index("mkdirat") :]
