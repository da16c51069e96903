"""The printed psql command commits a whole archive or nothing, and its exit code says which."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.chain.batch import file_name
from shared.chain.canonical import sha256_hex
from shared.chain.frame import decompressed
from tests.operations.stage import execute
from tests.restore.recipe import PAGES, ROOT, printed, recipe
from tests.unit.chain.scribe import JOB, MANIFEST, chain, page, stored
from tests.unit.chain.scribe import PAGES as ROWS
from tests.worlds import one

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TABLES = (
    "CREATE SCHEMA app",
    "CREATE TABLE app.tasks (id bigint, note text, done_at timestamptz)",
    'CREATE TABLE app."Task attempts" (task_id bigint, outcome text)',
)
HELD = 'SELECT (SELECT count(*) FROM app.tasks) + (SELECT count(*) FROM app."Task attempts")'
ALL = 7
VERIFY = recipe("README.md").partition(" && (")[0]
UNVERIFIED = recipe("README.md").replace(VERIFY, "true")
ONE, TWO, THREE, FOUR = map(file_name, (1, 2, 3, 4))


@pytest.fixture
def target(empty_database: str) -> str:
    execute(empty_database, *TABLES)
    return empty_database


def lay(place: Path, files: list[bytes], manifest: bytes = chain()[0]) -> Path:
    place.mkdir()
    (place / "manifest.json").write_bytes(manifest)
    for seq, data in enumerate(files, start=1):
        (place / file_name(seq)).write_bytes(data)
    return place


def whole(place: Path) -> tuple[Path, str]:
    files = chain()[1]
    return lay(place, files), sha256_hex(files[-1])


def text_of(file: Path) -> bytes:
    return b"".join(decompressed([file.read_bytes()]))


def cut_off(data: bytes) -> bytes:
    """Return a frame whose content ends here and whose end is missing, as a cut between blocks leaves it."""
    frame = zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})
    return frame.compress(data) + frame.flush(zstd.ZstdCompressor.FLUSH_BLOCK)


def test_every_page_prints_the_same_command() -> None:
    pipelines = {recipe(page).partition(" && (")[2] for page in PAGES}
    assert len(pipelines) == 1
    texts = [path.read_text(encoding="utf-8") for path in ROOT.glob("docs/**/*.md")]
    texts += [(ROOT / "README.md").read_text(encoding="utf-8")]
    texts += [
        path.read_text(encoding="utf-8") for path in ROOT.glob("shared/messages/pages/**/*.md")
    ]
    assert not [text for text in texts if "--single-transaction" in text or ".zst | psql" in text]


@pytest.mark.system
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_whole_archive_is_committed(target: str, tmp_path: Path, shell: str) -> None:
    directory, tail = whole(tmp_path / "archive")
    done = printed(directory, target, tail, shell=shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert one(target, HELD) == ALL


def forge(directory: Path) -> None:
    text = text_of(directory / TWO)
    (directory / TWO).write_bytes(stored(text.replace(b"COPY", b"\\! touch victim\nCOPY", 1)))


def cut(name: str, size: int) -> Callable[[Path], object]:
    return lambda at: (at / name).write_bytes((at / name).read_bytes()[:-size])


def swap(directory: Path) -> None:
    one_, two = (directory / name for name in (ONE, TWO))
    held = one_.read_bytes()
    one_.write_bytes(two.read_bytes())
    two.write_bytes(held)


SABOTAGE: dict[str, Callable[[Path], object]] = {
    "4 bytes cut off the newest": cut(THREE, 4),
    "half of the middle": lambda at: cut(TWO, len((at / TWO).read_bytes()) // 2)(at),
    "the newest is empty": lambda at: (at / THREE).write_bytes(b""),
    "no first file": lambda at: (at / ONE).unlink(),
    "no middle file": lambda at: (at / TWO).unlink(),
    "no last file": lambda at: (at / THREE).unlink(),
    "no files": lambda at: any(map(Path.unlink, at.glob("0*"))),
    "two files swapped": swap,
    "a file twice": lambda at: (at / FOUR).write_bytes((at / THREE).read_bytes()),
    "a middle file twice": lambda at: (at / THREE).write_bytes((at / TWO).read_bytes()),
    "a file of another archive": lambda at: (at / TWO).write_bytes(
        stored(text_of(at / TWO).replace(JOB.encode(), b"7d9e4b10-3c55-4f0a-8f5e-2a1b0c9d8e7f"))
    ),
    "an odd name": lambda at: (at / "1 2.sql.zst").write_bytes(b""),
}


@pytest.mark.system
def test_rows_of_one_text_column_swallow_no_end(target: str, tmp_path: Path) -> None:
    """Nothing is an error in such a table: what comes after a cut would be rows of it."""
    execute(target, "ALTER TABLE app.tasks DROP id, DROP done_at, ADD id int, ADD done_at int")
    directory, tail = whole(tmp_path / "archive")
    for seq in (1, 2, 3):
        text = text_of(directory / file_name(seq)).replace(
            b'("id", "note", "done_at")', b'("note")'
        )
        for row in ROWS[seq - 1][0].splitlines():
            text = text.replace(row + b"\n", row.split(b"\t")[1] + b"\n")
        (directory / file_name(seq)).write_bytes(stored(text))
    kept = {seq: (directory / file_name(seq)).read_bytes() for seq in (1, 2, 3)}
    for seq, data in kept.items():
        text = b"".join(decompressed([data]))
        (directory / file_name(seq)).write_bytes(stored(text[: text.index(b"stdin;\n") + 7]))
        done = printed(directory, target, tail, UNVERIFIED)
        assert (done.returncode != 0, one(target, HELD)) == (True, 0), seq
        (directory / file_name(seq)).write_bytes(data)
    assert printed(directory, target, tail, UNVERIFIED).returncode == 0
    assert one(target, HELD) == ALL


@pytest.mark.system
@pytest.mark.parametrize("how", SABOTAGE)
@pytest.mark.parametrize("command", [recipe("README.md"), UNVERIFIED], ids=["whole", "unverified"])
def test_nothing_is_committed_of_an_archive_that_is_not_whole(
    target: str, tmp_path: Path, how: str, command: str
) -> None:
    directory, tail = whole(tmp_path / "archive")
    SABOTAGE[how](directory)
    done = printed(directory, target, tail, command)
    assert done.returncode != 0
    assert done.stderr + done.stdout
    assert one(target, HELD) == 0


@pytest.mark.system
def test_a_forged_command_is_not_run(target: str, tmp_path: Path) -> None:
    directory, tail = whole(tmp_path / "archive")
    forge(directory)
    for trusted in (tail, sha256_hex((directory / THREE).read_bytes())):
        done = printed(directory, target, trusted)
        assert done.returncode != 0
        assert one(target, HELD) == 0
        assert not (directory / "victim").exists()
    printed(directory, target, tail, UNVERIFIED)
    assert (directory / "victim").exists(), "only verifying protects"


@pytest.mark.system
@pytest.mark.parametrize("seq", [1, 2, 3])
@pytest.mark.parametrize("framed", [stored, cut_off], ids=["whole frame", "cut frame"])
def test_a_cut_at_any_place_of_the_text_commits_nothing(
    target: str, tmp_path: Path, seq: int, framed: Callable[[bytes], bytes]
) -> None:
    directory, tail = whole(tmp_path / "archive")
    file = directory / file_name(seq)
    text = text_of(file)
    # Past this place of a whole frame nothing but a comment or the word on committing is lost.
    over = text.rindex(b"END$$;") if framed is stored else len(text)
    places = [at + shift for at, byte in enumerate(text) if byte == 10 for shift in (0, 3)]
    for at in (
        20,
        *places,
        text.index(b"$$BEGIN") + 30,
        text.rindex(b"FROM stdin;\n") + 13,
        len(text) - 1,
    ):
        if at < len(text):
            file.write_bytes(framed(text[:at]))
            done = printed(directory, target, tail, UNVERIFIED)
            came = (done.returncode, one(target, HELD))
            nothing = came[0] in (1, 3) and came[1] == 0
            assert nothing or (at > over and came == (0, ALL)), (at, done.stderr)
            if came[1]:
                execute(target, "TRUNCATE app.tasks", 'TRUNCATE app."Task attempts"')


@pytest.mark.system
def test_batches_refuse_to_run_outside_one_transaction(target: str, tmp_path: Path) -> None:
    directory, _ = whole(tmp_path / "archive")
    for command in (
        'zstd -dcq 000001.sql.zst | psql -X -q "$SCRATCH_DATABASE"',
        'zstd -dcq *.sql.zst | psql -X -q "$SCRATCH_DATABASE"',
        'for f in *.sql.zst; do zstd -dcq $f | psql -X -q -1 "$SCRATCH_DATABASE" || exit; done; exit 1',
    ):
        done = printed(directory, target, "", command)
        assert done.returncode != 0
        assert "transaction" in done.stderr
    # The first batch is whole by itself, and what it is not is the archive.
    assert one(target, HELD) == 5


@pytest.mark.system
def test_an_unfinished_archive_is_committed_only_when_asked_for(
    target: str, tmp_path: Path
) -> None:
    manifest, files = chain(final=False)
    directory = lay(tmp_path / "archive", files, manifest)
    tail = sha256_hex(files[-1])
    assert printed(directory, target, tail).returncode == 1
    assert one(target, HELD) == 0
    open_ended = recipe("README.md").replace(" --require-final", "")
    done = printed(directory, target, tail, open_ended)
    assert done.returncode == 3
    assert "the archive is not complete" in done.stderr
    assert one(target, HELD) == 0
    asked = open_ended.replace(":tallystick_end;", "COMMIT;")
    assert printed(directory, target, tail, asked).returncode == 0
    assert one(target, HELD) == ALL


@pytest.mark.system
def test_files_past_the_tail_that_was_kept_are_not_committed(target: str, tmp_path: Path) -> None:
    directory, _ = whole(tmp_path / "archive")
    tail = sha256_hex((directory / file_name(1)).read_bytes())
    assert printed(directory, target, tail).returncode == 1
    assert one(target, HELD) == 0


@pytest.mark.system
def test_the_order_is_that_of_the_numbers_beyond_six_digits(target: str, tmp_path: Path) -> None:
    numbers = (999_999, 1_000_000)
    manifest = chain()[0]
    (directory := tmp_path / "archive").mkdir()
    for seq, rows in zip(numbers, ROWS[:2], strict=True):
        made = page(MANIFEST, seq, sha256_hex(manifest), None, rows, final=seq == numbers[-1])
        (directory / file_name(seq)).write_bytes(stored(made.text()))
    begin = f"BEGIN; SET LOCAL tallystick.chain = '{JOB} {numbers[0] - 1}';"
    command = UNVERIFIED.replace("'BEGIN;'", f'"{begin}"')
    done = printed(directory, target, "", command)
    assert (done.returncode, done.stderr) == (0, "")
    assert one(target, HELD) == ALL
