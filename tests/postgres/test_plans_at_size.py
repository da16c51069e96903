"""What the program asks a source costs the same at every place of a large table: it grows with the page only.

The statements are taken from the server's log of what was really sent. One that this suite does not know
fails it: whoever adds a statement says here what it may cost.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from handlers.cli import run
from shared.archive import page as paging
from shared.archive.file import Reading, page_bytes
from shared.archive.page import Page
from shared.archive.shape import Opening
from shared.archive.survey import READER
from shared.chain.batch import Header
from shared.clock import Deadline
from shared.db import embedded
from shared.db.connect import connect
from tests.conftest import SIGNED, TEST_PG_BIN
from tests.postgres.reading import definition_of, execute, opening_of
from tests.worlds import altered, rows

pytestmark = pytest.mark.system

ROOTS = 200_000
DAYS = 1_000
# A partition that small is read whole.
ROWS_OF_A_DAY = 60
PAGE = 500
# Rows that one statement of a page may look at: its roots, and on each of three levels a few for each.
LOOKED_AT_MAX = 20 * PAGE
# What the catalog says of a table with a thousand partitions.
CATALOG_MAX = 50 * DAYS

EV = 'root = "public.ev"\ntime = "at"\nrelated = ["public.item", "public.mark"]\n'
# Fifty thousand rows share each of its days.
DAILY = 'root = "public.daily"\ntime = "day"\nrelated = ["public.speck"]\n'
PARTED = 'root = "public.parted"\ntime = "at"\nrelated = ["public.shard"]\n'
KINDS = {"ev": EV, "daily": DAILY, "parted": PARTED}

FILL = (
    "CREATE TABLE ev (id bigint, at timestamptz NOT NULL, note text)",
    f"""INSERT INTO ev SELECT i, '2001-01-01Z'::timestamptz + i * interval '1 minute', 'n' || i
        FROM generate_series(1, {ROOTS}) AS i""",
    "ALTER TABLE ev ADD PRIMARY KEY (id)",
    "CREATE INDEX ON ev (at, id)",
    "CREATE TABLE item (id bigint, ev bigint)",
    f"INSERT INTO item SELECT i, 1 + i / 2 FROM generate_series(1, 2 * {ROOTS} - 2) AS i",
    "ALTER TABLE item ADD PRIMARY KEY (id), ADD FOREIGN KEY (ev) REFERENCES ev",
    "CREATE INDEX ON item (ev)",
    "CREATE TABLE mark (item bigint, said text)",
    "INSERT INTO mark SELECT id, 'm' FROM item",
    "ALTER TABLE mark ADD FOREIGN KEY (item) REFERENCES item",
    "CREATE INDEX ON mark (item)",
    "CREATE TABLE daily (id bigint, day date NOT NULL)",
    f"INSERT INTO daily SELECT i, '2001-01-01'::date + i / 50000 FROM generate_series(1, {ROOTS}) AS i",
    "ALTER TABLE daily ADD PRIMARY KEY (id)",
    "CREATE INDEX ON daily (day, id)",
    "CREATE TABLE speck (daily bigint)",
    "INSERT INTO speck SELECT id FROM daily",
    "ALTER TABLE speck ADD FOREIGN KEY (daily) REFERENCES daily",
    "CREATE INDEX ON speck (daily)",
    "CREATE TABLE parted (id bigint, at timestamptz, PRIMARY KEY (at, id)) PARTITION BY RANGE (at)",
    f"""DO $$ BEGIN FOR day IN 0..{DAYS - 1} LOOP
            EXECUTE format('CREATE TABLE parted_%s PARTITION OF parted FOR VALUES FROM (%L) TO (%L)', day,
                           '2001-01-01Z'::timestamptz + day * interval '1 day',
                           '2001-01-01Z'::timestamptz + (day + 1) * interval '1 day');
        END LOOP; END $$""",
    f"""INSERT INTO parted SELECT i, '2001-01-01Z'::timestamptz + i * interval '24 minutes'
        FROM generate_series(0, {ROWS_OF_A_DAY} * {DAYS} - 1) AS i""",
    "CREATE TABLE shard (at timestamptz, parted bigint)",
    "INSERT INTO shard SELECT at, id FROM parted",
    "CREATE INDEX ON shard (at, parted)",
    "VACUUM ANALYZE",
)
PARTED_SHARD = PARTED.replace(
    '"public.shard"', '{ table = "public.shard", foreign_key = ["at", "parted"] }'
)
KINDS["parted"] = PARTED_SHARD

EXPORT = ("archive", "export", "--until", "2001-01-02")
# What touches no table.
HARMLESS = re.compile(
    r"(BEGIN|SET|LOCK TABLE|ROLLBACK|COMMIT|EXPLAIN|DEALLOCATE|SHOW)\b|SELECT 1\b|"
    r"COPY \(SELECT now\(\)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Known:
    """A statement that the program sends: how it begins or what it holds, and how many rows it may look at.

    None where it grows with the table by its nature, and a time bounds it instead.
    """

    holds: str
    rows: int | None


KNOWN = {
    "roots of a page": Known(
        r"^COPY \(SELECT (\"r\"\.\"\w+\"(, )?)+ FROM \"public\"", LOOKED_AT_MAX
    ),
    "related rows of a page": Known(r"^COPY \(SELECT .* FROM \(SELECT c\.\*", LOOKED_AT_MAX),
    "is there more": Known(r"IS NOT NULL AS more", 2 * ROWS_OF_A_DAY),
    "cuts of what is left": Known(r"^SELECT ARRAY\[.* AS cuts$", 0),
    "a query of a page, planned only": Known(r"^COPY \(SELECT \* FROM \(", 5),
    "roots to go, up to a limit": Known(r"AS roots FROM \(SELECT FROM", 10_001),
    "damage passed over": Known(r"zero_damaged_pages", 10),
    "hours that come twice": Known(r"AS repeats FROM generate_series", 400),
    "size of a table": Known(r"pg_relation_size", CATALOG_MAX),
    # In preview, for late rows, for rows without a parent, and at both ends of a job: each count has a limit
    # of time, and where it is reached an estimate takes its place, or the number is unknown.
    "extent of the window": Known(r"^SELECT count\(\*\) AS roots, min\(", None),
    "late rows": Known(r"^SELECT count\(\*\) AS rows FROM", None),
    # Of a window that could be counted in that time.
    "places of a preview": Known(r"AS cursor FROM \(SELECT", None),
    "oldest and newest": Known(r"^SELECT min\(", 10),
    "tables in the catalog": Known(r"row_security_active", CATALOG_MAX),
    "largest group": Known(r"most_common_freqs", CATALOG_MAX),
    "end of a window": Known(r"least\((asked, newest, oldest|ends, now\(\))\)", 1_000),
    "prepared transactions": Known(r"pg_prepared_xacts", CATALOG_MAX),
    "who sees activity": Known(r"pg_read_all_stats", 10),
    "older readers": Known(r"pg_terminate_backend", 1_000),
    "facts of the source": Known(r"pg_is_in_recovery|has_table_privilege", CATALOG_MAX),
}


@dataclass(frozen=True)
class Source:
    """A server of its own whose log is read, and a database in it."""

    home: Path
    dsn: str

    def sent(self, act: Callable[[], object]) -> list[str]:
        """Return the statements that ``act`` has the source's server run, their parameters filled in."""
        log = embedded.Embedded(self.home).log
        begin = log.stat().st_size
        act()
        with log.open("rb") as file:
            file.seek(begin)
            return _statements(file.read().decode())


def _statements(text: str) -> list[str]:
    """Read the log: entries of the source's database, each a statement and perhaps its parameters."""
    found: list[str] = []
    for entry in re.split(r"^(?=<\w*>)", text, flags=re.MULTILINE):
        whole = entry.rstrip("\n").replace("\n\t", "\n")
        said = re.match(r"<big>LOG: +(?:statement|execute [^:]*): (.*)", whole, re.DOTALL)
        if said:
            found.append(said[1].strip())
        elif detail := re.match(r"<big>DETAIL: +[Pp]arameters: (.*)", whole, re.DOTALL):
            values = re.findall(r"\$(\d+) = ('(?:[^']|'')*'|NULL)", detail[1])
            for number, value in reversed(values):
                found[-1] = found[-1].replace(f"${number}", value)
    return [re.sub(r"^--.*\n", "", each, flags=re.MULTILINE).strip() for each in found]


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    with tempfile.TemporaryDirectory(prefix="tallystick-") as name:
        home = Path(name)
        server = embedded.start(
            home, durable=False, binaries=Path(TEST_PG_BIN) if TEST_PG_BIN else None
        )
        try:
            execute(server, "CREATE DATABASE big")
            big = psycopg.conninfo.make_conninfo(server, dbname="big")
            execute(big, *FILL)
            execute(
                server,
                "ALTER SYSTEM SET log_line_prefix = '<%d>'",
                "SELECT pg_reload_conf()",
                "ALTER DATABASE big SET log_statement = 'all'",
                # Each scan begins at the beginning, as it does where the table fits the buffers.
                "ALTER DATABASE big SET synchronize_seqscans = off",
            )
            yield Source(home, big)
        finally:
            embedded.stop(home)


def known_of(statement: str) -> str:
    """Return the name of a statement in this suite; fails for one it does not know."""
    for name, known in KNOWN.items():
        if re.search(known.holds, " ".join(statement.split())):
            return name
    pytest.fail(f"this suite does not know the statement: {statement}")


def looked_at(dsn: str, statement: str) -> int:
    """Run a statement again and return how many rows its scans looked at."""
    select = re.sub(r"^COPY \((.*)\) TO STDOUT$", r"\1", statement, flags=re.DOTALL)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET search_path = pg_catalog, pg_temp")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET log_statement = 'none'")
        row = connection.execute(
            b"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + select.encode()
        ).fetchone()
    assert row is not None
    return sum(map(_rows_of, _nodes(row[0][0]["Plan"])))


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _rows_of(node: dict[str, Any]) -> int:
    if "Scan" not in node["Node Type"] or node["Node Type"] in {"Subquery Scan", "CTE Scan"}:
        return 0
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    seen: float = (node["Actual Rows"] + removed) * node["Actual Loops"]
    return round(seen)


def costs(source: Source, act: Callable[[], object]) -> dict[str, int]:
    """Return the most rows that each statement looked at, by its name; checks those that have a limit."""
    found: dict[str, int] = {}
    for statement in source.sent(act):
        if HARMLESS.match(statement):
            continue
        name = known_of(statement)
        limit = KNOWN[name].rows
        if limit is not None:
            seen = looked_at(source.dsn, statement)
            assert seen <= limit, (name, seen, statement)
            found[name] = max(seen, found.get(name, 0))
    return found


def cursors(dsn: str, kind: str, opening: Opening) -> list[tuple[str, ...] | None]:
    """Return where the first page of a window begins, one in its middle, and the last."""
    table = kind.split('"')[1]
    order = sql.SQL(", ").join(sql.Identifier(column.name) for column in opening.shape.order)
    texts = sql.SQL(", ").join(
        sql.SQL("{}::text").format(sql.Identifier(column.name)) for column in opening.shape.order
    )
    found: list[tuple[str, ...] | None] = [None]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        (count,) = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() or (0,)
        for offset in (count // 2, count - PAGE - 1):
            query = sql.SQL("SELECT {} FROM {} ORDER BY {} OFFSET {} LIMIT 1").format(
                texts, sql.Identifier(*table.split(".")), order, sql.Literal(offset)
            )
            found.append(connection.execute(query).fetchone())
    return found


def read(dsn: str, kind: str, opening: Opening, after: tuple[str, ...] | None) -> None:
    header = Header("job", 1, "0" * 64, after, "test")
    page = Page(header, PAGE, Deadline.after(30))
    with connect(dsn) as connection:
        for _ in page_bytes(connection, Reading(definition_of(kind), opening, READER), page):
            pass


@pytest.mark.parametrize("name", KINDS)
def test_a_page_looks_at_as_many_rows_wherever_it_is(source: Source, name: str) -> None:
    kind = KINDS[name]
    opening = opening_of(source.dsn, kind, "2020-01-01")
    pages = [
        costs(source, lambda after=after: read(source.dsn, kind, opening, after))  # type: ignore[misc]
        for after in cursors(source.dsn, kind, opening)
    ]
    assert "related rows of a page" in pages[0]
    for later in pages[1:]:
        for statement in ("roots of a page", "related rows of a page"):
            assert later[statement] <= 1.2 * pages[0][statement] + 10, (statement, pages)


@pytest.mark.parametrize("name", KINDS)
def test_what_commands_ask_a_source_is_known_and_bounded(
    source: Source,
    database: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A check, a preview, an export, ticks of a plan, what is left, the doctor."""
    kinds = tmp_path / "kinds.toml"
    kinds.write_text(f'[kinds.{name}]\n{KINDS[name]}after = "30d"\nbatch = {PAGE}\n')
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o700)
    for setting, value in {
        "DATABASE_URL": database,
        "SOURCE_URL": source.dsn,
        "KINDS_FILE": str(kinds),
        "HOME": str(tmp_path / "home"),
    }.items():
        monkeypatch.setenv(f"TALLYSTICK_{setting}", value)
    assert run(["volume", "init", "--root", str(volume), "--json"]) == 0
    storage_id = json.loads(capsys.readouterr().out)["storage_id"]
    monkeypatch.setenv("TALLYSTICK_ARCHIVE_ROOT", str(volume))
    monkeypatch.setenv("TALLYSTICK_ARCHIVE_STORAGE_ID", storage_id)
    assert run(["policy", "set", name, "--after", "365d", *SIGNED]) == 0

    def planned() -> None:
        assert run(["plan", "set", name, "--batch-size", str(PAGE), "--enable", *SIGNED]) == 0
        for _ in range(3):
            assert run(["tick", "--json"]) == 0
        assert rows(database, "SELECT 1 FROM tallystick.unit") != []

    found: dict[str, int] = {}
    for act in (
        lambda: run(["kinds", "check", name]),
        lambda: run(["preview", name, "--batch-size", str(PAGE)]),
        lambda: run(["draft", f"public.{name}"]),
        lambda: run([*EXPORT, name, "--directory", str(tmp_path / "x")]),
        planned,
        lambda: run(["jobs", "list"]),
        lambda: run(["plan", "list"]),
        lambda: run(["doctor"]),
    ):
        for statement, seen in costs(source, act).items():
            found[statement] = max(seen, found.get(statement, 0))
    needed = {
        "roots of a page",
        "related rows of a page",
        "is there more",
        "tables in the catalog",
        "roots to go, up to a limit",
    }
    assert needed <= found.keys()


def test_the_suite_fails_for_a_statement_that_it_does_not_know(source: Source) -> None:
    with pytest.raises(pytest.fail.Exception, match="does not know"):
        costs(source, lambda: execute(source.dsn, "SELECT note FROM ev LIMIT 3"))


def test_without_the_bounds_on_the_time_alone_all_partitions_are_planned(source: Source) -> None:
    opening = opening_of(source.dsn, PARTED_SHARD, "2020-01-01")
    after = cursors(source.dsn, PARTED_SHARD, opening)[1]
    assert after is not None
    related = paging.related_select(opening, 1, after, after, 1).as_string(None)
    plain = f""""r"."at" >= CAST('{after[0]}' AS timestamp with time zone) AND """

    def planned(text: str) -> int:
        with psycopg.connect(source.dsn, autocommit=True) as connection:
            lines = connection.execute(b"EXPLAIN " + text.encode()).fetchall()
        return sum("parted_" in line[0] for line in lines)

    assert planned(related) < 5
    assert planned(altered(related, plain, "")) > DAYS / 3


@pytest.mark.parametrize("name", ["ev", "daily"])
def test_without_the_number_of_roots_or_the_plain_bounds_all_children_are_read(
    source: Source, name: str
) -> None:
    """Two comparisons of rows are no range to the planner; of many roots with one time it knows no better."""
    kind = KINDS[name]
    opening = opening_of(source.dsn, kind, "2020-01-01")
    after = cursors(source.dsn, kind, opening)[1]
    assert after is not None
    key = str(int(after[1]) + PAGE)
    with psycopg.connect(source.dsn, autocommit=True) as connection:
        time = opening.shape.order[0].name
        row = connection.execute(
            f"SELECT {time}::text FROM {name} WHERE id = {key}".encode()
        ).fetchone()
    assert row is not None
    last = (row[0], key)
    whole = paging.related_select(opening, 1, after, last, PAGE).as_string(None)
    loose = paging.related_select(opening, 1, after, last).as_string(None)
    loose = re.sub(r'"r"\."\w+" [<>]= CAST\([^)]*\) AND ', "", loose)
    assert looked_at(source.dsn, whole) <= LOOKED_AT_MAX
    assert looked_at(source.dsn, loose) > ROOTS


def test_with_exists_the_table_is_read_from_its_beginning(source: Source) -> None:
    opening = opening_of(source.dsn, EV, "2020-01-01")
    after = cursors(source.dsn, EV, opening)[1]
    ordered = paging.more_query(opening, after).as_string(None)
    found = re.fullmatch(
        r"SELECT \(SELECT true (.*) ORDER BY .*\) IS NOT NULL AS more", ordered, re.DOTALL
    )
    assert found
    assert looked_at(source.dsn, ordered) <= 1
    assert looked_at(source.dsn, f"SELECT EXISTS (SELECT {found[1]})") > ROOTS / 3
