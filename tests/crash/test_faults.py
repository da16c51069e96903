"""A system call that fails, before or after its work, is told rightly and leaves nothing half done."""

from __future__ import annotations

import errno
import itertools
from dataclasses import dataclass

import pytest

from shared.errors import Code
from shared.messages import words
from tests.crash import record
from tests.crash.batch_file import Unreadable, parsed
from tests.crash.conftest import Grounds
from tests.crash.extent import EVERY
from tests.crash.follow import SOCKET, Act
from tests.crash.inject import Run
from tests.crash.mould import THOROUGH, WORLDS
from tests.crash.scene import Scene
from tests.crash.trial import Ground, recover

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Faults:
    """The errors of one kind of call: instead of its work, and after it.

    ``close`` always closes, whatever it says, and reading calls have no work to lose. A message that went
    out before its connection broke is lost by a proxy (``test_cuts.py``).
    """

    instead: tuple[int, ...]
    after: tuple[int, ...] = ()


DISK = (
    errno.EIO,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ESTALE,
    errno.EINTR,
    errno.EACCES,
    errno.EROFS,
)
# Enough where the thorough world was tried with all of them.
TELLING = {errno.EIO, errno.ENOSPC, errno.EEXIST, errno.ENOENT, errno.ECONNRESET, errno.ETIMEDOUT}
FULL = {errno.ENOSPC, errno.EDQUOT}
FAULTS: dict[str, Faults] = {
    "openat": Faults(DISK, (errno.EIO, errno.ESTALE)),
    "newfstatat": Faults((errno.EIO, errno.ESTALE, errno.EACCES)),
    "read": Faults((errno.EIO, errno.ESTALE, errno.EINTR)),
    "getdents64": Faults((errno.EIO, errno.ESTALE)),
    "mkdirat": Faults(DISK, (errno.EEXIST, errno.EIO)),
    "write": Faults(DISK, (errno.EIO, errno.ENOSPC)),
    "fsync": Faults(DISK, (errno.EIO, errno.ENOSPC)),
    "close": Faults((), (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EINTR)),
    "linkat": Faults(DISK, (errno.EEXIST, errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EINTR)),
    "unlinkat": Faults(DISK, (errno.ENOENT, errno.EIO, errno.ESTALE)),
    "fcntl": Faults((errno.EIO, errno.EINTR, errno.EACCES, errno.ENOLCK)),
    "utimensat": Faults((errno.EIO, errno.EROFS)),
    "connect": Faults((errno.ECONNREFUSED, errno.ETIMEDOUT)),
    "sendto": Faults((errno.ECONNRESET,)),
    "recvfrom": Faults((errno.ETIMEDOUT,), (errno.ECONNRESET,)),
}
# Few calls, and each is a boundary of its own: these run in every gate.
QUICK = ("mkdirat", "write", "fsync", "linkat", "unlinkat")

# What a tick may say of a call that failed: that it got on all the same, or one of these.
OF_THE_VOLUME = {Code.STORAGE_FAILED, Code.STORAGE_UNAVAILABLE}
OF_A_FULL_VOLUME = {*OF_THE_VOLUME, Code.STORAGE_LIMIT}
OF_THE_LOCK = {*OF_THE_VOLUME, Code.STORAGE_BUSY}
OF_THE_DATABASE = {Code.DATABASE_UNAVAILABLE, Code.OUTCOME_UNKNOWN, Code.EXPORT_FAILED}


def expected(kind: str, where: str, number: int) -> set[Code]:
    """Return the codes that a fault may be told with."""
    if where == SOCKET:
        return OF_THE_DATABASE
    if kind == "fcntl":
        return OF_THE_LOCK
    return OF_A_FULL_VOLUME if number in FULL else OF_THE_VOLUME


def untold(run: Run, act: Act) -> list[str]:
    """Return what is wrong with what the tick said of its fault."""
    if run.report is None:
        return [f"it ended by signal {run.signal}"]
    if "raised" in run.report:
        return [f"it raised {run.report['raised']}: {run.report['said']}"]
    code, (kind, where) = run.report["code"], run.hits[0]
    if code is None:
        return []
    if code not in expected(kind, where, act.errno):
        return [f"it said {code} {run.report['params']}"]
    said = words(code, run.report["params"])
    name = errno.errorcode[act.errno]
    if where != SOCKET and code == Code.STORAGE_FAILED and name not in said.happened:
        return [f"it said {said.happened!r}, and not {name}"]
    return []


def half_written(world: Scene) -> list[str]:
    """Return the files with a name of their own that are not whole."""
    broken = []
    for file in world.stage.root.glob("*-*-*/*.sql.zst"):
        try:
            parsed(file.name, file.read_bytes())
        except Unreadable as unreadable:
            broken.append(str(unreadable))
    return broken


def failed(here: Ground, act: Act) -> tuple[bool, list[str]]:
    """Let one call fail, and recover; returns whether there was such a call, and what is wrong."""
    with here.world() as world:
        run = here.tick(world, act)
        if not run.hits:
            return False, []
        where = f"{act.how} {act.kind} {act.nth} ({run.hits[0][1]}) {errno.errorcode[act.errno]}"
        faults = [*untold(run, act), *half_written(world)]
        recover(world.stage)
        faults += here.faults(world)
        return True, [f"{where}: {fault}" for fault in faults]


def sweep(here: Ground, world: str, kind: str) -> list[str]:
    """Let the calls of a kind fail in every way, until a run finishes untouched."""
    faults: list[str] = []
    ways = [("fail", number) for number in FAULTS[kind].instead]
    ways += [("fail-after", number) for number in FAULTS[kind].after]
    if world != THOROUGH:
        ways = [(how, number) for how, number in ways if number in TELLING]
    trials = 0
    for nth in itertools.count(1, EVERY):
        for how, number in ways:
            found, more = failed(here, Act(kind, nth, how, number))
            if not found:
                record.keep(record.Line("fault", world, kind, trials, trials, faults))
                return faults
            trials += 1
            faults += more
    raise AssertionError(kind)


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("world", WORLDS)
def test_a_call_that_fails_is_told_rightly_and_leaves_nothing_half_done(
    grounds: Grounds, world: str, kind: str
) -> None:
    assert sweep(grounds(world), world, kind) == []


@pytest.mark.parametrize("kind", QUICK)
def test_a_call_of_an_archive_that_fails_is_told_rightly_and_leaves_nothing_half_done(
    grounds: Grounds, kind: str
) -> None:
    assert sweep(grounds("archive"), "archive", kind) == []


def test_a_connection_that_breaks_at_any_answer_ends_no_job(grounds: Grounds) -> None:
    """To the control database or to the source, in mid COPY too."""
    here = grounds("archive")
    for nth in itertools.count(1):
        found, faults = failed(here, Act("recvfrom", nth, "fail", errno.ETIMEDOUT))
        assert faults == []
        if not found:
            return


# Calls that lose nothing when they fail, or come before any claim: the last such call of an archive's tick.
BY_THE_WAY = {
    "a directory that was read is closed": ("close", "job", errno.EIO, None),
    "the lock is closed": ("close", ".lock", errno.EIO, None),
    "the root is closed": ("close", ".", errno.EIO, None),
    "the time of the lock is set": ("utimensat", ".lock", errno.EROFS, Code.STORAGE_UNAVAILABLE),
    "evidence is looked for": ("openat", ".evidence", errno.ENOSPC, Code.STORAGE_LIMIT),
}


@pytest.mark.parametrize("what", BY_THE_WAY)
def test_an_error_beside_the_work_is_told_rightly_when(grounds: Grounds, what: str) -> None:
    kind, where, number, code = BY_THE_WAY[what]
    here = grounds("archive")
    with here.world() as world:
        calls = [call for call in here.tick(world).calls if call[0] == kind]
    how = "fail-after" if kind == "close" else "fail"
    nth = max(at for at, call in enumerate(calls, 1) if call == (kind, where))
    act = Act(kind, nth, how, number)
    with here.world() as world:
        run = here.tick(world, act)
        assert run.hits == ((kind, where),)
        assert run.code == code
        assert untold(run, act) == []
        recover(world.stage)
        assert here.faults(world) == []
