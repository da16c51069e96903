"""``archive cat``: the rows of a table, exact, and never one that was not verified."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shared.chain.frame import compressor
from tests.operations import stage as stages
from tests.reading.scene import NOTE, Scene, copied, ordered
from tests.worlds import rows


def ids(shop: Scene, target: str | Path, table: str, column: str) -> list[str]:
    answered = shop("archive", "cat", target, "--table", table, "--columns", column)
    assert answered.code == 0
    return answered.raw.decode().split("\n")[1:-1]


@pytest.mark.parametrize("target", ["kind", "volume"])
def test_csv_of_a_kind_is_what_copy_gives_byte_for_byte(shop: Scene, target: str) -> None:
    where = "tickets" if target == "kind" else shop.stage.root
    tickets = shop("archive", "cat", where, "--table", "app.ticket")
    assert tickets.code == 0
    assert tickets.raw == copied(
        shop.stage.source,
        "COPY (SELECT shop, number, opened_at, title FROM app.ticket ORDER BY opened_at)"
        " TO STDOUT (FORMAT csv, HEADER)",
    )
    notes = shop("archive", "cat", where, "--table", NOTE)
    order = ids(shop, where, NOTE, "id")
    assert len(order) == 91
    assert notes.raw == copied(shop.stage.source, ordered(NOTE, "*", "id", order))


def test_a_column_alone_is_quoted_as_copy_quotes_it(shop: Scene) -> None:
    words = shop("archive", "cat", "tickets", "--table", "tag", "--columns", "word").raw
    expected = copied(
        shop.stage.source, "COPY (SELECT word FROM app.tag) TO STDOUT (FORMAT csv, HEADER)"
    )
    assert sorted(words.split(b"\n")) == sorted(expected.split(b"\n"))
    assert b'\n"\\."\n' in words
    assert b'\n""\n' in words
    assert b"\n\n" in words


def test_columns_come_in_the_order_asked_for(shop: Scene) -> None:
    found = shop("archive", "cat", "tickets", "--table", "ticket", "--columns", "title,number")
    expected = "COPY (SELECT title, number FROM app.ticket ORDER BY opened_at) TO STDOUT (FORMAT csv, HEADER)"
    assert found.raw == copied(shop.stage.source, expected)
    odd = shop("archive", "cat", "tickets", "--table", NOTE, "--columns", '"Body, ""long""",id')
    assert odd.raw.startswith(b'"Body, ""long""",id\n')


def test_json_lines_keep_every_digit_and_embed_documents(shop: Scene) -> None:
    answered = shop("archive", "cat", shop.directories[0], "--table", NOTE, "--format", "jsonl")
    assert answered.code == 0
    found = {note["id"]: note for note in answered.lines()}
    assert len(found) == 80
    columns = ("price", "part", "free", "ratio", "small", "cash", "tags")
    texts = ", ".join(f"{name}::text" for name in columns)
    for row in rows(shop.stage.source, f"SELECT id::text, {texts} FROM {NOTE} WHERE id < 1000"):
        note = found[row["id"]]
        assert [note[name] for name in columns] == [row[name] for name in columns]
        assert note["padded"] == "ab   "
        assert note["doc"] == {"b": ["2"], "a": "x"}
        assert note["docb"] == {"a": None, "b": "1.10"}
        assert note["ok"] in (True, False)
        assert note["raw"] == "\\x00ff5c"
    assert b'"free":12345678901234567890.12345678901234567890' in answered.raw


def test_json_is_one_document(shop: Scene) -> None:
    found = shop("archive", "cat", "tickets", "--table", "app.ticket", "--json").json()
    assert found["columns"] == ["shop", "number", "opened_at", "title"]
    assert len(found["items"]) == 51


def test_a_table_or_column_that_is_not_there_is_refused_by_name(shop: Scene) -> None:
    none = shop("archive", "cat", "tickets", "--table", "app.tickets")
    assert (none.code, none.raw) == (2, b"")
    assert "app.tag" in none.err
    column = shop("archive", "cat", "tickets", "--table", "ticket", "--columns", "titel")
    assert (column.code, column.raw) == (2, b"")
    assert "opened_at" in column.err
    generated = shop("archive", "cat", "tickets", "--table", "ticket", "--columns", "twice")
    assert "generated" in generated.err


@pytest.mark.parametrize("number", [0, 2, -2])
def test_nothing_is_printed_of_an_archive_with_a_file_that_was_changed(
    shop: Scene, number: int
) -> None:
    file = stages.batch_files(shop.stage, stages.jobs(shop.stage)[0])[number]
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)
    for target in (shop.directories[0], "tickets"):
        found = shop("archive", "cat", target, "--table", "app.ticket")
        assert (found.code, found.raw) == (1, b"")
        assert file.name in found.err or str(file.parent) in found.err


def test_a_batch_that_fails_prints_nothing_of_itself(shop: Scene) -> None:
    files = stages.batch_files(shop.stage, stages.jobs(shop.stage)[0])
    whole = shop("archive", "cat", shop.directories[0], "--table", "app.ticket").raw
    # Forged with care: nobody kept the tail, and only the rows show that they are one too few.
    text = re.sub(
        rb"\nCOPY [^;]+;\n[^\n]+\n",
        lambda match: match[0].rsplit(b"\n", 2)[0] + b"\n",
        stages.text_of(files[-1]),
        count=1,
    )
    frame = compressor()
    files[-1].write_bytes(frame.compress(text) + frame.flush())
    found = shop(
        "archive", "cat", shop.directories[0], "--table", "app.ticket", "--columns", "number"
    )
    assert found.code == 1
    assert files[-1].name in found.err
    assert found.raw.split() == [b"number", *(str(n).encode() for n in range(1, 36))]
    assert whole.count(b"2020-01-0") == 40


def test_a_tail_that_is_not_there_prints_nothing(shop: Scene) -> None:
    files = stages.batch_files(shop.stage, stages.jobs(shop.stage)[0])
    files[-1].unlink()
    assert shop("archive", "cat", "tickets", "--table", "ticket").raw == b""
    alone = shop("archive", "cat", shop.directories[0], "--table", "ticket")
    assert alone.code == 0
    assert "Not anchored" in alone.err


def test_files_past_the_expected_tail_are_left_out_and_said(shop: Scene) -> None:
    first = stages.jobs(shop.stage)[0]
    unit = stages.units(shop.stage, first)[1]
    found = shop(
        "archive", "cat", shop.directories[0], "--table", "ticket", "--columns", "number",
        "--expected-sha256", unit["sha256"],
    )  # fmt: skip
    assert found.raw.split() == [b"number", *(str(n).encode() for n in range(1, 15))]
    assert "4 files" in found.err


def test_columns_that_came_later_are_null_in_older_archives_and_said(shop: Scene) -> None:
    from tests.reading.scene import again

    again(
        shop.stage,
        "ALTER TABLE app.ticket ADD COLUMN extra text DEFAULT 'new'; UPDATE app.ticket SET extra = 'new'",
        "INSERT INTO app.ticket (shop, number, opened_at) VALUES ('third', 1, '2022-01-01+00')",
    )
    found = shop("archive", "cat", "tickets", "--table", "ticket", "--columns", "shop,extra")
    assert found.code == 0
    assert found.raw.endswith(b"late,\nthird,new\n")
    assert "extra" in found.err


def test_a_reader_that_has_seen_enough_ends_it_quietly(shop: Scene) -> None:
    reader = f"{sys.executable} -m handlers.cli archive cat {shop.directories[0]}"
    command = f"{reader} --table app.tag | head -c 5"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout == b"note_"
    assert b"Error" not in done.stderr
    assert b"Traceback" not in done.stderr


# As if the disk of temporary files had room for ten bytes, and every file were too large for memory.
CRAMPED = """
import resource, sys
from handlers.cli import run
from shared.restore import held
held.MEMORY_BYTES = 1
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
sys.exit(run(sys.argv[1:]))
"""


def test_no_room_for_a_copy_is_told_as_that_and_not_as_an_archive_that_cannot_be_read(
    shop: Scene,
) -> None:
    arguments = ("archive", "cat", str(shop.directories[0]), "--table", "ticket", "--json")
    done = subprocess.run(
        [sys.executable, "-c", CRAMPED, *arguments], capture_output=True, check=False
    )
    assert done.returncode == 2
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert (error["code"], error["params"]["cause"]) == ("TEMPORARY_UNUSABLE", "EFBIG")
    assert b"Exception ignored" not in done.stderr


ODD = """
CREATE TABLE public."a.b" (id integer PRIMARY KEY, at date NOT NULL);
CREATE TABLE public."select" (note integer REFERENCES public."a.b");
CREATE TABLE public."public.a.b" (note integer REFERENCES public."a.b");
INSERT INTO public."a.b" VALUES (1, '2020-01-01');
INSERT INTO public."select" VALUES (1);
INSERT INTO public."public.a.b" VALUES (1);
"""
ODD_KIND = """
[kinds.odd]
root = 'public."a.b"'
time = "at"
related = ["public.select", 'public."public.a.b"']
"""


@pytest.mark.parametrize(
    ("written", "header"),
    [
        ('public."a.b"', b"id,at\n"),
        ("a.b", b"id,at\n"),
        ('public."select"', b"note\n"),
        ("public.select", b"note\n"),
        ("select", b"note\n"),
        ('public."public.a.b"', b"note\n"),
        # As it stands, and not for public."a.b".
        ("public.a.b", b"note\n"),
    ],
)
def test_a_table_is_named_as_it_is_written_everywhere(
    database: str,
    volume_root: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    written: str,
    header: bytes,
) -> None:
    here = stages.stage(database, volume_root, ODD_KIND, ODD)
    stages.plan(here, "odd")
    here.until_idle()
    odd = Scene(here, capfdbinary)
    answered = odd("archive", "cat", odd.directories[0], "--table", written)
    assert answered.code == 0, answered.err
    assert answered.raw.startswith(header)
