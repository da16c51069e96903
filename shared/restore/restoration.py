"""THE flow of a restore: verify, check, make what is missing, bring batch after batch, move sequences.

Everything is verified before the first row is written, and every table is checked before any is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shared.errors import Code, Refused
from shared.restore import create, records, sequences, tables
from shared.restore.archives import Archive, Place, verified
from shared.restore.choose import choice
from shared.restore.load import Errand, Loaded, counted, load
from shared.restore.newest import Chain, repeated
from shared.restore.overlap import left_out, reach_of
from shared.restore.tables import Notice, Unfit, Warned
from shared.restore.target import connected, enforces_keys, found, is_empty, transaction
from shared.restore.trouble import target_errors

if TYPE_CHECKING:
    from shared.catalog.names import TableName
    from shared.chain.verify import BatchProof
    from shared.restore.choose import Choice
    from shared.restore.rows import Value
    from shared.restore.tables import Problem
    from shared.restore.target import Connection, Found


@dataclass(frozen=True)
class Request:
    """What somebody wants restored, as they said it; ``dry_run`` writes nothing."""

    table_map: Mapping[str, TableName] = field(default_factory=dict)
    to_schema: str | None = None
    create_tables: bool = False
    skip: bool = False
    dry_run: bool = False
    keys: tuple[str, ...] = ()
    where: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """How far it is: ``doing`` is verify or restore, ``done`` batches of ``batches``, ``rows`` so far.

    While verifying, how many batches there are is not known: ``batches`` is 0.
    """

    doing: str
    done: int
    batches: int
    rows: int


Watch = Callable[[Step], None]


@dataclass
class Account:
    """What came of it; ``rows`` holds rows restored and rows skipped by target table."""

    archives: tuple[Archive, ...] = ()
    targets: dict[str, str] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    warnings: list[Notice] = field(default_factory=list)
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)
    batches_restored: int = 0
    batches_skipped: int = 0
    sequences: list[dict[str, Any]] = field(default_factory=list)
    keys_missing: list[str] = field(default_factory=list)


def restore(
    places: Sequence[Place], url: str, request: Request, watch: Watch = lambda _: None
) -> Account:
    """Restore archives, oldest first, into the database at ``url``.

    Raises ``Refused`` (RESTORE_REFUSED, RESTORE_UNSAFE, CHOICE_INVALID) before anything is written,
    ``Verdict`` (ARCHIVE_BROKEN) for a damaged archive, also before, and ``Trouble`` (RESTORE_CONFLICT,
    RESTORE_FAILED) for what the target says of a batch: those before it stay, nothing of it does, and running
    it again goes on from there.
    """
    archives, warned = _taken(_verified(places, watch))
    account = Account(archives=archives, warnings=warned)
    with repeated([_chain(archive) for archive in archives]) as twice, connected(url) as connection:
        errands = [
            replace(_errand(archive, request), older=twice.of(place))
            for place, archive in enumerate(archives)
        ]
        if twice.roots:
            about = {"roots": twice.roots, "older": twice.older, "keys": list(twice.keys)}
            account.warnings.append(Notice(Warned.ROOTS_REPEATED, about))
        _check(connection, archives, errands, request, account)
        if not request.dry_run:
            with target_errors():
                records.prepare(connection)
        seen = _bring(connection, archives, errands, request, account, watch)
        if not request.dry_run:
            _move_sequences(connection, errands, account)
    account.keys_missing = _missing(errands, seen)
    return account


def _verified(places: Sequence[Place], watch: Watch) -> list[Archive]:
    done: list[int] = []

    def passed(proof: BatchProof) -> None:
        done.append(sum(count for _, count in proof.end.rows))
        watch(Step("verify", len(done), 0, sum(done)))

    return [verified(place, passed) for place in places]


def _taken(archives: Sequence[Archive]) -> tuple[tuple[Archive, ...], list[Notice]]:
    """Return the archives without those whose window a later one holds whole, and say which these are."""
    left = left_out([reach_of(archive) for archive in archives])
    warned = []
    for place, instead in left.items():
        archive = archives[place]
        about = {
            "directory": str(archive.path),
            "job": archive.manifest.job,
            "roots": sum(batch.end.roots for batch in archive.batches),
            "by": archives[instead].manifest.job,
        }
        warned.append(Notice(Warned.ARCHIVE_LEFT_OUT, about))
    return tuple(each for place, each in enumerate(archives) if place not in left), warned


def _chain(archive: Archive) -> Chain:
    digests = tuple(batch.sha256 for batch in archive.batches)
    return Chain(archive.path, archive.manifest, digests)


def _errand(archive: Archive, request: Request) -> Errand:
    manifest = archive.manifest
    names = tables.targets(manifest, request.table_map, request.to_schema)
    chosen: Choice | None = None
    if request.keys or request.where:
        chosen = choice(manifest, request.keys, request.where)
    return Errand(names, chosen, request.skip)


def _check(
    connection: Connection,
    archives: Sequence[Archive],
    errands: Sequence[Errand],
    request: Request,
    account: Account,
) -> None:
    """Compare every archive with the target, making missing tables if asked to; all differences at once."""
    if unsafe := _session_problems(connection):
        raise Refused(Code.RESTORE_UNSAFE, problems=unsafe)
    problems: list[Problem] = []
    for archive, errand in zip(archives, errands, strict=True):
        manifest, names = archive.manifest, errand.names
        for table, name in zip(manifest.tables, names, strict=True):
            account.targets[str(name)] = table.label
            account.rows.setdefault(str(name), (0, 0))
        made: list[str] = []
        if request.create_tables:
            made = create.created(connection, manifest, names, keep=not request.dry_run)
            account.created += [name for name in made if name not in account.created]
        with target_errors(), transaction(connection, keep=False):
            there = found(connection, names)
            restored = records.restored(connection, archive.batches, errand.purpose)
            records.check(archive.batches, restored)
            unsafe += _stale(connection, archive, errand, there, restored, made)
            unsafe += [each for each in tables.unenforced(there) if each not in unsafe]
        # Tables that were only tried out are gone again, and fitted.
        gone = set(made) if request.dry_run else set()
        problems += [
            problem
            for problem in tables.problems(manifest, there, skip=request.skip)
            if problem["table"] not in gone and problem not in problems
        ]
        if not problems:
            told = tables.warnings(manifest, there, skip=request.skip)
            account.warnings += [each for each in told if each not in account.warnings]
    if problems:
        raise Refused(Code.RESTORE_REFUSED, problems=problems)
    if unsafe:
        raise Refused(Code.RESTORE_UNSAFE, problems=unsafe)


def _session_problems(connection: Connection) -> list[Problem]:
    """Return what stands in the way whatever the archive is, before anything is made or believed."""
    with target_errors(), transaction(connection, keep=False):
        problems = records.unbelievable(connection)
        if not enforces_keys(connection):
            problems.append({"problem": Unfit.SESSION_REPLICA, "table": ""})
    return problems


def _stale(
    connection: Connection,
    archive: Archive,
    errand: Errand,
    there: Sequence[Found],
    restored: Mapping[int, str],
    made: Sequence[str],
) -> list[Problem]:
    """Return the tables that lack rows which the records say were brought.

    The tables were dropped or emptied since. Passing the batches over would end well and bring nothing.
    Of a chosen part only the roots are known to have come.
    """
    brought = dict.fromkeys((table.label for table in archive.manifest.tables), 0)
    for batch in archive.batches:
        # Of a batch whose older roots were left out, how many rows came is not known here.
        if batch.header.seq in restored and errand.older(batch.header.seq) is None:
            for label, count in batch.end.rows:
                brought[label] += count
    looked_at = there if errand.choice is None else there[:1]
    return [
        {
            "problem": Unfit.RECORDS_STALE,
            "table": str(target.facts.name),
            "job": archive.manifest.job,
        }
        for target, count in zip(looked_at, brought.values(), strict=False)
        if count and _lacks_all(connection, target, made)
    ]


def _lacks_all(connection: Connection, target: Found, made: Sequence[str]) -> bool:
    name, row = target.facts.name, target.facts.row
    if str(name) in made:
        return True
    readable = row["kind"] in {"r", "p"} and row["readable"] and not row["row_security"]
    return bool(readable) and is_empty(connection, name)


def _bring(
    connection: Connection,
    archives: Sequence[Archive],
    errands: Sequence[Errand],
    request: Request,
    account: Account,
    watch: Watch,
) -> set[tuple[Value, ...]]:
    """Bring every batch that is not there yet; return the keys of the roots that were chosen."""
    seen: set[tuple[Value, ...]] = set()
    total = sum(len(archive.batches) for archive in archives)
    done = rows = 0
    for archive, errand in zip(archives, errands, strict=True):
        with target_errors(), transaction(connection, keep=False):
            there = records.restored(connection, archive.batches, errand.purpose)
        for batch in archive.batches:
            if batch.header.seq in there and errand.choice is None:
                loaded = None
            elif request.dry_run:
                counts = _would_bring(archive, batch, errand, seen)
                loaded = None if batch.header.seq in there else counts
            else:
                loaded = load(connection, archive, batch, errand, seen)
            _add(account, errand, loaded)
            done += 1
            rows += sum(loaded.restored) if loaded else 0
            watch(Step("restore", done, total, rows))
    return seen


def _would_bring(
    archive: Archive, batch: BatchProof, errand: Errand, seen: set[tuple[Value, ...]]
) -> Loaded:
    if errand.choice is None and errand.older(batch.header.seq) is None:
        counts = tuple(dict(batch.end.rows)[table.label] for table in archive.manifest.tables)
    else:
        counts = counted(archive, batch, errand, seen)
    return Loaded(counts, (0,) * len(counts))


def _add(account: Account, errand: Errand, loaded: Loaded | None) -> None:
    if loaded is None:
        account.batches_skipped += 1
        return
    if errand.choice is None or any(loaded.restored) or any(loaded.skipped):
        account.batches_restored += 1
    for name, restored, skipped in zip(errand.names, loaded.restored, loaded.skipped, strict=True):
        before = account.rows[str(name)]
        account.rows[str(name)] = (before[0] + restored, before[1] + skipped)


def _move_sequences(connection: Connection, errands: Sequence[Errand], account: Account) -> None:
    # Also when every batch was there: the run before may have died just short of this.
    names = list(dict.fromkeys(name for errand in errands for name in errand.names))
    with target_errors(), transaction(connection, keep=False):
        there = found(connection, names)
    account.sequences = sequences.moved(connection, there)


def _missing(errands: Sequence[Errand], seen: set[tuple[Value, ...]]) -> list[str]:
    asked = {key for errand in errands if errand.choice for key in errand.choice.keys}
    lost = asked - seen
    return [",".join(str(part) for part in key) for key in sorted(lost, key=str)]
